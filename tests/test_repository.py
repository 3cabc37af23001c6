"""What must never enter the repository does not."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.lock"
# Written in parts, so that this file does not contain what it looks for.
MACHINE_PATH = re.compile(r"(?<![\w.~-])/" + r"(?:work|root|home/\w+|Users/\w+)" + r"/")
REGISTRY_HOST = re.compile(
    "|".join(
        re.escape(".".join(labels))
        for labels in (("pypi", "org"), ("pythonhosted", "org"), ("pypi", "python", "org"))
    )
)


def test_lock_when_read_then_has_no_url() -> None:
    """The lock names versions and hashes, never a place they were fetched from."""
    assert "://" not in LOCK.read_text(encoding="utf-8")


def test_lock_when_read_then_every_requirement_is_pinned_with_a_hash() -> None:
    """No requirement of the lock can be replaced unseen."""
    requirements = re.split(r"\n(?=[A-Za-z0-9])", LOCK.read_text(encoding="utf-8"))[1:]
    assert len(requirements) > 20
    loose = [
        requirement.splitlines()[0]
        for requirement in requirements
        if "--hash=sha256:" not in requirement or "==" not in requirement.splitlines()[0]
    ]
    assert loose == []


def test_tracked_files_when_searched_then_name_no_path_of_a_machine() -> None:
    """Nothing in the repository depends on where somebody has checked it out."""
    assert lines_matching(MACHINE_PATH) == []


def test_tracked_files_when_searched_then_name_no_package_registry() -> None:
    """Where packages come from is the installer's setting, not the project's."""
    assert lines_matching(REGISTRY_HOST) == []


@pytest.mark.parametrize("name", ["uv.lock", "pylock.toml", ".env"])
def test_tracked_files_when_listed_then_exclude_local_ones(name: str) -> None:
    """Files that record one machine's sources or secrets stay out."""
    assert [path for path in tracked_files() if path.name == name] == []


def lines_matching(pattern: re.Pattern[str]) -> list[str]:
    """Return ``file:line`` of each line of a tracked text file in which the pattern occurs."""
    found = []
    for path in tracked_files():
        content = path.read_bytes()
        if b"\0" in content:
            continue
        for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), start=1):
            if pattern.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}")
    return found


def tracked_files() -> list[Path]:
    """Return the files that git tracks and that exist; skip the test outside a checkout."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    # The owner of a checkout in a container is often another user than the one who runs the tests.
    listing = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout
    paths = [ROOT / name.decode() for name in listing.split(b"\0") if name]
    return [path for path in paths if path.is_file()]
