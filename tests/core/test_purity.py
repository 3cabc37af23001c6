"""The core does no I/O and has no clock and no dice."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import tokenweir.core

CORE = Path(tokenweir.core.__file__).parent
MODULES = sorted(CORE.rglob("*.py"))
BANNED = {
    "asyncio",
    "concurrent",
    "datetime",
    "io",
    "logging",
    "multiprocessing",
    "os",
    "pathlib",
    "random",
    "secrets",
    "select",
    "socket",
    "subprocess",
    "sys",
    "threading",
    "time",
    "uuid",
}
BANNED_CALLS = {"open", "print", "input", "id", "hash", "exec", "eval", "__import__"}


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the first part of every module that is imported anywhere in a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").split(".")[0]


def called(tree: ast.AST) -> Iterator[str]:
    """Yield the name of every plain function that is called anywhere in a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


def shown(path: Path) -> str:
    """Return a path as it reads below the core."""
    return str(path.relative_to(CORE))


@pytest.mark.parametrize("path", MODULES, ids=shown)
def test_core_when_imports_are_read_then_none_reaches_the_world(path: Path) -> None:
    """Time, chance, threads, logs, files and sockets come in from outside or not at all."""
    assert set(imported(ast.parse(path.read_text(encoding="utf-8")))) & BANNED == set()


@pytest.mark.parametrize("path", MODULES, ids=shown)
def test_core_when_calls_are_read_then_none_depends_on_the_process(path: Path) -> None:
    """Nothing is printed or opened, and nothing depends on an address or a hash seed."""
    assert set(called(ast.parse(path.read_text(encoding="utf-8")))) & BANNED_CALLS == set()


def test_core_when_listed_then_is_not_empty() -> None:
    """The walk found the package, so that the tests above say something."""
    assert {"admitter.py", "ledger.py", "capacity/occupancy.py"} <= {shown(p) for p in MODULES}
