"""Profile files: those with names, and those of a user."""

import subprocess
import sys
from pathlib import Path

import pytest

from tokenweir.core.errors import ConfigError
from tokenweir.profiles import PROFILE_NAMES, profile

ARCHITECTURE_NAMES = {"article", "8b-a100", "8b-h100", "70b-4xh100"}

GOOD = """
name = "mine"
source = "measured on a Tuesday"
step_ns = 5_000_000
step_tokens_max = 512
chunk_tokens_max = 512
kv_tokens = 41_408
sequences_max = 128
token_ns = 12.5
"""


def written(folder: Path, text: str | bytes) -> str:
    """Write a profile file and return its path."""
    path = folder / "mine.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


@pytest.mark.parametrize("name", PROFILE_NAMES)
def test_profile_when_looked_up_then_names_itself_and_its_source(name: str) -> None:
    """Every file says where its numbers come from, and is called what its profile is called."""
    row = profile(name)
    assert row.name == name
    assert len(row.source) > 20


def test_names_when_listed_then_hold_those_of_the_architecture() -> None:
    """Nobody loses a profile that documents name."""
    assert set(PROFILE_NAMES) >= ARCHITECTURE_NAMES


def test_profile_when_given_as_a_file_then_is_read_from_it(tmp_path: Path) -> None:
    """A path works wherever a name does; what is left out keeps its default."""
    row = profile(written(tmp_path, GOOD))
    assert (row.name, row.kv_tokens, row.token_ns, row.kv_token_ns) == ("mine", 41_408, 12.5, 0.0)


def test_profile_when_unknown_then_lists_the_allowed() -> None:
    """A wrong name is answered with the right ones, and with how a file is named."""
    with pytest.raises(ConfigError, match=r"unknown profile 'abacus', allowed: .*article.*\.toml"):
        profile("abacus")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace("kv_tokens", "kv_token"), "unknown key 'kv_token', allowed: name, source"),
        (GOOD.replace("kv_tokens = 41_408", ""), "kv_tokens is missing, allowed: a whole number"),
        (GOOD.replace("41_408", "41_408.5"), "kv_tokens 41408.5 is not allowed, allowed: a whole"),
        (GOOD.replace("41_408", "true"), "kv_tokens True is not allowed, allowed: a whole number"),
        (GOOD.replace("41_408", "0"), "kv_tokens 0 is not allowed, allowed: 1 or more"),
        (GOOD.replace("12.5", "nan"), "token_ns nan is not allowed, allowed: a number"),
        (GOOD.replace("12.5", "inf"), "token_ns inf is not allowed, allowed: a number"),
        (GOOD.replace("12.5", "[1]"), r"token_ns \[1\] is not allowed, allowed: a number"),
        (GOOD.replace('"mine"', '" "'), "name ' ' is not allowed, allowed: text"),
        (GOOD + "kv_tokens = 1", "is not TOML: "),
        (b"\xff\xfe", "is not TOML: "),
        (b"#" * 70_000, "is above 65,536 bytes, allowed: a profile file"),
    ],
    ids=range(12),
)
def test_profile_when_its_file_is_wrong_then_says_what_and_where(
    text: str | bytes, message: str, tmp_path: Path
) -> None:
    """One line with the file, the key, the value and what is allowed."""
    path = written(tmp_path, text)
    with pytest.raises(ConfigError, match=f"mine.toml.* ?{message}") as raised:
        profile(path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["nowhere/mine.toml", "/", "a\0.toml"])
def test_profile_when_its_file_cannot_be_read_then_says_why(name: str) -> None:
    """A missing file, a folder and a path that cannot exist."""
    with pytest.raises(ConfigError, match="cannot read profile "):
        profile(name)


def test_import_when_nothing_is_asked_for_then_reads_no_toml() -> None:
    """Commands that use no profile, or only list names, do not pay for a parser."""
    code = "import sys, tokenweir.profiles; sys.exit('tomllib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
