"""The layers hold: import-linter's contracts, and what the core may import."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
CORE = ROOT / "src" / "tokenweir" / "core"
ALLOWED_IN_CORE = sys.stdlib_module_names | {"numpy"}


def test_layers_when_linted_then_every_contract_is_kept() -> None:
    """No module imports what stands above it or beside it."""
    command = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command; lint_imports_command()",
    ]
    result = subprocess.run(
        [*command, "--no-cache", "--no-logo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_core_when_its_imports_are_read_then_all_are_standard_library_or_numpy() -> None:
    """The core needs no other package: a list of what is allowed, not of what is forbidden."""
    foreign = {
        f"{path.relative_to(ROOT)}: {module}"
        for path in sorted(CORE.rglob("*.py"))
        for module in imported_modules(path)
        if module.split(".")[0] not in ALLOWED_IN_CORE
        and not (module == "tokenweir.core" or module.startswith("tokenweir.core."))
    }
    assert foreign == set()


def imported_modules(path: Path) -> Iterator[str]:
    """Yield the absolute name of every module that a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "."
