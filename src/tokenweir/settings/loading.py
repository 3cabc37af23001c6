"""Is this file right, and if not, where and what would be? One line per mistake."""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tokenweir.core.errors import ConfigError
from tokenweir.settings.model import Settings
from tokenweir.settings.secrets import SecretSource

__all__ = ["load_settings", "settings_from"]

_FILE_BYTES_MAX = 1 << 20
_ERRORS_SHOWN_MAX = 20
_VALUE_CHARS_MAX = 60
_TEXT_TAG = "tag:yaml.org,2002:str"
# What may stand in a message as it is.
_PLAIN_KEY = re.compile(r"[\w.:-]{1,60}", re.ASCII)


def load_settings(path: Path) -> Settings:
    """Read and check the settings file.

    Raises:
        ConfigError: The file cannot be read, is not YAML, or a setting is wrong; one line each.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    if len(content) > _FILE_BYTES_MAX:
        raise ConfigError(f"{path}: is larger than {_FILE_BYTES_MAX} bytes")
    try:
        tree = yaml.load(content, Loader=_StrictLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{mark.line + 1}:{mark.column + 1}: " if mark is not None else " "
        raise ConfigError(f"{path}:{where}not YAML: {error.problem}") from None
    except RecursionError:
        raise ConfigError(f"{path}: is nested too deeply") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise ConfigError(f"{path}: not YAML in UTF-8") from None
    return settings_from(tree, source=str(path))


def settings_from(tree: Any, *, source: str) -> Settings:
    """Check a tree of settings.

    Args:
        tree: As read from YAML.
        source: The file's name, for messages.

    Raises:
        ConfigError: A setting is wrong; one line for each, with path, value and what is allowed.
    """
    if not isinstance(tree, dict):
        raise ConfigError(f"{source}: holds no settings, allowed keys: {_listed(Settings)}")
    try:
        return Settings.model_validate(tree)
    except ValidationError as error:
        details = error.errors(include_url=False)
    # A list whose entries are all wrong is called too short as well.
    lines = [
        f"{source}: {_explained(detail)}"
        for detail in details
        if detail["type"] != "too_short"
        or not any(_is_below(other["loc"], detail["loc"]) for other in details)
    ]
    if len(lines) > _ERRORS_SHOWN_MAX:
        more = len(lines) - _ERRORS_SHOWN_MAX
        lines = [*lines[:_ERRORS_SHOWN_MAX], f"{source}: and {more} more mistakes"]
    raise ConfigError("\n".join(lines)) from None


class _StrictLoader(yaml.SafeLoader):
    """Takes what a settings file needs of YAML, and says of all else where it stands.

    Keys are texts, and each stands once, where YAML would silently take the last. A value is never
    shared by an alias: some hundred bytes of those stand for more than any memory holds.
    """

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Build a node, unless it is an alias."""
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call] # yaml's
            raise yaml.composer.ComposerError(
                None, None, "an alias is not taken, write the value itself", mark
            )
        return super().compose_node(parent, index)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT001, FBT002 - yaml's signature
        """Build a value; what its type cannot be made of is a mistake like any other."""
        try:
            return super().construct_object(node, deep=deep)
        except (yaml.YAMLError, RecursionError):
            raise
        except Exception:  # noqa: BLE001 - yaml lets through whatever int, float and datetime raise
            kind = str(node.tag).rpartition(":")[2]
            raise yaml.constructor.ConstructorError(
                None, None, f"{_shown(node.value)} is no {kind}", node.start_mark
            ) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - yaml's signature
        """Build a mapping, each key once."""
        seen = set()
        for key_node, _ in node.value:
            key, is_text = key_node.value, key_node.tag == _TEXT_TAG
            if not is_text or key in seen:
                shown = f"key {_shown(key)}" if isinstance(key, str) else "a key"
                problem = "stands twice" if is_text else "is not a text, which is written in quotes"
                raise yaml.constructor.ConstructorError(
                    None, None, f"{shown} {problem}", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


# --- from pydantic's errors to ours ---------------------------------------------------------------


def _explained(detail: ErrorDetails) -> str:
    """Say path, value and what is allowed, in one line."""
    where, kind = detail["loc"], detail["type"]
    context = detail.get("ctx", {})
    path = _path(where)
    if kind == "extra_forbidden":
        return _unknown_key(where)
    if kind == "missing":
        return f"{path} is missing, it is required"
    # People write a secret where its place is asked for.
    value = "(not shown)" if _is_secret(where) else _shown(detail["input"])
    if kind == "value_error":
        return f"{path} is {value}, allowed: {context['error']}"
    return f"{path} is {value}, allowed: {_allowed(detail, where)}"


def _allowed(detail: ErrorDetails, where: Sequence[int | str]) -> str:
    context = detail.get("ctx", {})
    bounds = {
        "greater_than_equal": ("ge", "{} or more"),
        "greater_than": ("gt", "above {}"),
        "less_than_equal": ("le", "up to {}"),
        "less_than": ("lt", "below {}"),
        "too_short": ("min_length", "{} or more entries"),
        "too_long": ("max_length", "up to {} entries"),
        "string_too_short": ("min_length", "{} characters or more"),
        "string_too_long": ("max_length", "up to {} characters"),
        "literal_error": ("expected", "{}"),
    }
    row = bounds.get(detail["type"])
    if row is not None:
        bound = context[row[0]]
        # Bounds of fractions are floats, and whole all the same.
        return row[1].format(
            int(bound) if isinstance(bound, float) and bound.is_integer() else bound
        )
    if detail["type"] in {"model_type", "model_attributes_type", "dict_type"}:
        model = _model_at(where)
        return "a section" + (f" with the keys {_listed(model)}" if model is not None else "")
    plain = {
        "bool_type": "true or false",
        "bool_parsing": "true or false",
        "float_type": "a number",
        "int_type": "a whole number",
        "int_parsing": "a whole number",
        "string_type": "a text",
        "tuple_type": "a list",
        "string_pattern_mismatch": "letters, digits and . _ : -, a letter or digit first",
    }
    return plain.get(detail["type"], detail["msg"].lower())


def _is_below(inner: Sequence[int | str], outer: Sequence[int | str]) -> bool:
    return len(inner) > len(outer) and inner[: len(outer)] == outer


def _unknown_key(where: Sequence[int | str]) -> str:
    key = str(where[-1])
    model = _model_at(where[:-1])
    allowed = list(model.model_fields) if model is not None else []
    near = difflib.get_close_matches(key[:_VALUE_CHARS_MAX], allowed, n=1)
    hint = f", did you mean {near[0]}?" if near else ","
    return f"{_path(where)} is an unknown key{hint} allowed: {', '.join(allowed)}"


def _is_secret(where: Sequence[int | str]) -> bool:
    models = (_model_at(where[:length]) for length in range(1, len(where) + 1))
    return any(model is not None and issubclass(model, SecretSource) for model in models)


def _model_at(where: Sequence[int | str]) -> type[BaseModel] | None:
    """Return the section at a path of the file, or None where there is no section."""
    model: type[BaseModel] | None = Settings
    for step in where:
        if isinstance(step, int):
            continue
        if model is None or step not in model.model_fields:
            return None
        model = _section_in(model.model_fields[step].annotation)
    return model


def _section_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in {Union, types.UnionType, tuple}:
        found = (_section_in(argument) for argument in get_args(annotation))
        return next((section for section in found if section is not None), None)
    return None


def _path(where: Sequence[int | str]) -> str:
    path = ""
    for step in where:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            key = step if _PLAIN_KEY.fullmatch(step) else _shown(step)
            path += f".{key}" if path else key
    return path


def _shown(value: Any) -> str:
    """Return a value as it may stand in a line on a terminal."""
    try:
        # Of a long text the beginning is enough.
        text = repr(value[: 2 * _VALUE_CHARS_MAX] if isinstance(value, str) else value)
        text = " ".join(text.split())
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= _VALUE_CHARS_MAX else text[: _VALUE_CHARS_MAX - 3] + "..."


def _listed(model: type[BaseModel]) -> str:
    return ", ".join(model.model_fields)
