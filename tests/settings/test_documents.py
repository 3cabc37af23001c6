"""The settings that users copy from documents are right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tokenweir.core.classes import CLASSES
from tokenweir.core.units import NS_PER_MS
from tokenweir.settings.compose import admitter_config, check_relations
from tokenweir.settings.loading import settings_from

ROOT = Path(__file__).parents[2]
SECRET_FILE = "/run/secrets/acme"


@pytest.mark.parametrize("name", ["README.md", "docs/settings.md"])
def test_example_when_copied_then_is_a_right_settings_file(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With the keys that it names in their places."""
    for number, variable in enumerate(("ACME_KEY", "TICKET_KEY", "TICKET_KEY_BEFORE")):
        monkeypatch.setenv(variable, f"{number}123456789abcdef" * 2)
    secret = tmp_path / "acme"
    secret.write_text("sk-another-key-of-acme")
    (text,) = re.findall(r"```yaml\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.S)
    tree = yaml.safe_load(text.replace(SECRET_FILE, str(secret)))
    settings = settings_from(tree, source=name)
    check_relations(settings, source=name)
    for pool in settings.pools:
        admitter_config(pool, tenants=settings.tenants)


def test_table_of_classes_when_read_then_says_what_the_core_has() -> None:
    """Ceiling, floor, wait, and how each may be held up; P1's wait is the queue's."""
    text = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| P\d [^|]*\|(.*)\|$", text, re.M)
    assert len(rows) == len(CLASSES)
    for line, row in zip(rows, CLASSES.values(), strict=True):
        ceiling, floor, wait, *rest = (cell.strip() for cell in line.split("|"))
        assert (float(ceiling), float(floor)) == (row.ceiling_fraction, row.floor_fraction)
        if row.wait_ns_max is not None:
            number, unit = wait.split()
            scale = NS_PER_MS if unit == "ms" else 1_000 * NS_PER_MS
            assert int(number) * scale == row.wait_ns_max
        yes = {True: "yes", False: "no"}
        how_far = row.interruptible.value.replace("_", " ").replace("before ", "before the ")
        assert rest == [yes[row.is_interactive], yes[row.is_pausable], how_far]
