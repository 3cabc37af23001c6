"""Secrets: where they are, which are too weak, and that none is ever shown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tokenweir.core.errors import ConfigError
from tokenweir.settings.compose import check_relations
from tokenweir.settings.loading import settings_from
from tokenweir.settings.secrets import SecretSource, TicketSettings, read_secret, ticket_keys

POOLS = [{"replicas": [{"url": "http://127.0.0.1:8000"}]}]
STRONG = "0123456789abcdef" * 2
SECRET = "hunter2-hunter2-hunter2"
ALLOWED = "allowed: 32 random characters or more, as openssl rand -hex 32 prints them"


def keys_of(*values: str) -> Sequence[bytes]:
    """The ticket keys of an environment that has these."""
    environ = {f"KEY{number}": value for number, value in enumerate(values)}
    settings = TicketSettings.model_validate({"keys": [{"env": name} for name in environ]})
    return ticket_keys(settings, path="tickets", environ=environ)


def test_ticket_keys_when_several_then_they_stay_in_order() -> None:
    """The first seals; none means none, and then a process has its own."""
    assert keys_of(STRONG, STRONG[::-1]) == [STRONG.encode(), STRONG[::-1].encode()]
    assert keys_of() == []


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ([STRONG[:31]], f"tickets.keys[0] has 31 characters, {ALLOWED}"),
        ([STRONG, "ab" * 16], f"tickets.keys[1] has 2 different characters, {ALLOWED}"),
        (["abcdefg" * 8], f"tickets.keys[0] has 7 different characters, {ALLOWED}"),
        (
            [STRONG, STRONG],
            "tickets.keys[1] is the same as another key, allowed: each once",
        ),
        ([" \n"], "tickets.keys[0]: environment variable KEY0 is empty"),
    ],
)
def test_ticket_key_when_weak_then_one_line_says_so_and_how_to_make_one(
    values: list[str], line: str
) -> None:
    """Whoever can guess it can come back whenever it likes."""
    with pytest.raises(ConfigError) as caught:
        keys_of(*values)
    assert str(caught.value) == line


@pytest.mark.parametrize("key", ["abcdefgh" * 4, STRONG])
def test_ticket_key_when_just_strong_enough_then_is_taken(key: str) -> None:
    """32 characters, 8 of them different."""
    assert keys_of(key) == [key.encode()]


def test_secret_when_in_a_file_then_the_line_end_does_not_count(tmp_path: Path) -> None:
    """As editors and echo write it."""
    path = tmp_path / "secret"
    path.write_bytes(b"some-secret\r\n")
    assert read_secret(SecretSource(file=str(path))) == "some-secret"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"\xff\xfe", "cannot be read: not a text in UTF-8"),
        (b"", "is empty"),
        (b"x" * 4_097, "is longer than 4096 bytes"),
    ],
)
def test_secret_when_its_file_is_of_no_use_then_one_line_says_why(
    tmp_path: Path, content: bytes | None, reason: str
) -> None:
    """With the path, since it may be mistyped."""
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_secret(SecretSource(file=str(path)))
    assert str(caught.value) == f"file {path} {reason}"


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (SECRET, "(not shown), allowed: a section with the keys env, file"),
        ({}, "(not shown), allowed: exactly one of env, file"),
        ({"env": "A", "file": SECRET}, "(not shown), allowed: exactly one of env, file"),
    ],
)
def test_source_when_the_secret_itself_stands_there_then_it_is_not_repeated(
    source: Any, line: str
) -> None:
    """Errors end up in logs, and people write secrets where their place is asked for."""
    with pytest.raises(ConfigError) as caught:
        settings_from({"pools": POOLS, "tickets": {"keys": [source]}}, source="w")
    assert str(caught.value) == f"w: tickets.keys[0] is {line}"


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ({"env": SECRET}, "env is (not shown), allowed: the name of an environment variable"),
        (
            {"sha256": SECRET},
            "sha256 is (not shown), allowed: 64 hexadecimal digits, as sha256sum prints them",
        ),
        ({"file": ["x"]}, "file is (not shown), allowed: a text"),
    ],
)
def test_source_when_a_member_is_wrong_then_is_not_repeated_either(
    source: dict[str, Any], line: str
) -> None:
    """The same for API keys."""
    tenants = [{"name": "a", "keys": [source]}]
    with pytest.raises(ConfigError) as caught:
        settings_from({"pools": POOLS, "tenants": tenants}, source="w")
    assert str(caught.value) == f"w: tenants[0].keys[0].{line}"


def test_relations_when_a_key_is_missing_then_nothing_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Checked before a port is opened, in the process's own environment."""
    settings = settings_from(
        {"pools": POOLS, "tickets": {"keys": [{"env": "TICKET_KEY"}]}}, source="w"
    )
    monkeypatch.delenv("TICKET_KEY", raising=False)
    with pytest.raises(ConfigError) as caught:
        check_relations(settings, source="w")
    assert str(caught.value) == "w: tickets.keys[0]: environment variable TICKET_KEY is not set"
    monkeypatch.setenv("TICKET_KEY", STRONG)
    check_relations(settings, source="w")
