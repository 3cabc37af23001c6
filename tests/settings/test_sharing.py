"""Classes, orders and tenants: from the file to the core, and what is wrong in one line."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from tokenweir.core.admitter_config import AdmitterConfig
from tokenweir.core.classes import CLASSES, ClassLimits, Interruptible
from tokenweir.core.errors import ConfigError
from tokenweir.core.fairness import FAIRNESS
from tokenweir.core.queues import ORDERINGS
from tokenweir.core.request import Priority
from tokenweir.core.tenants import TenantLimits
from tokenweir.settings.compose import admitter_config, check_relations
from tokenweir.settings.loading import settings_from
from tokenweir.settings.model import PoolSettings, Settings
from tokenweir.settings.tenants import TenantSettings, classes_of, tenants_by_key

REPLICAS = {"replicas": [{"url": "http://127.0.0.1:8000"}]}
KEY = "sk-a-key-of-tenant-a"
DIGEST = hashlib.sha256(KEY.encode()).hexdigest()
HASHED = [{"sha256": DIGEST}]


def settings_of(*, pool: dict[str, Any] | None = None, **sections: Any) -> Settings:
    """Settings with one pool."""
    return settings_from({"pools": [{**REPLICAS, **(pool or {})}], **sections}, source="weir.yaml")


def pool_of(**pool: Any) -> PoolSettings:
    """The only pool of a file."""
    return settings_of(pool=pool).pools[0]


def error_of(**sections: Any) -> str:
    """What is said of a file."""
    with pytest.raises(ConfigError) as caught:
        check_relations(settings_of(**sections), source="weir.yaml")
    return str(caught.value)


def test_pool_when_it_says_nothing_then_the_core_has_its_own_defaults() -> None:
    """The usual case needs no setting, and none of ours differs from the core's."""
    config, default = admitter_config(pool_of()), AdmitterConfig()
    assert (config.ordering, config.fairness) == (default.ordering, default.fairness)
    assert config.queue.classes == CLASSES
    assert config.tenants == default.tenants


@pytest.mark.parametrize(("key", "table"), [("ordering", ORDERINGS), ("fairness", FAIRNESS)])
def test_pool_when_it_names_a_row_then_the_core_gets_it_and_else_all_rows_are_listed(
    key: str, table: dict[str, Any]
) -> None:
    """Each row of the table, and no other."""
    for row in table:
        assert getattr(admitter_config(pool_of(**{key: row})), key) == row
    assert error_of(pool={key: "lottery"}) == (
        f"weir.yaml: pools[0].{key} is 'lottery', allowed: {', '.join(table)}"
    )


def test_classes_when_some_bounds_are_set_then_all_others_stay() -> None:
    """Every bound arrives, in its own class, over that class's default."""
    classes = {
        "P0": {"wait": "200ms"},
        "P2": {
            "ceiling": 0.6,
            "floor": 0.2,
            "wait": "1m",
            "items": 7,
            "debt": "9k",
            "interactive": True,
            "pausable": True,
            "interruptible": "always",
        },
    }
    limits = admitter_config(pool_of(classes=classes)).queue.classes
    assert limits == {
        Priority.P0: ClassLimits(wait_ns_max=200_000_000),
        Priority.P1: CLASSES[Priority.P1],
        Priority.P2: ClassLimits(
            0.6,
            0.2,
            60_000_000_000,
            7,
            9_000,
            is_interactive=True,
            is_pausable=True,
            interruptible=Interruptible.ALWAYS,
        ),
        Priority.P3: CLASSES[Priority.P3],
    }


def test_classes_when_a_bound_is_nought_then_it_is_not_taken_for_left_out() -> None:
    """0 entries and no floor are settings; so is false."""
    never = {"pausable": False, "interruptible": "never"}
    classes = {"P1": {"floor": 0, "items": 0, "debt": 0, "interactive": False}, "P3": never}
    set_now = admitter_config(pool_of(classes=classes)).queue.classes
    batch, limits = set_now[Priority.P3], set_now[Priority.P1]
    assert (batch.is_pausable, batch.interruptible) == (False, Interruptible.NEVER)
    assert (limits.floor_fraction, limits.items_max, limits.debt_tokens_max) == (0.0, 0, 0)
    assert not limits.is_interactive


@pytest.mark.parametrize(
    ("classes", "line"),
    [
        ({"P9": {}}, "P9 is an unknown key, allowed: P0, P1, P2, P3"),
        (
            {"P0": {"cieling": 1}},
            "P0.cieling is an unknown key, did you mean ceiling? allowed: ceiling, floor, wait, "
            "items, debt, interactive, pausable, interruptible",
        ),
        ({"P0": {"ceiling": 0}}, "P0.ceiling is 0, allowed: above 0"),
        ({"P0": {"ceiling": 1.1}}, "P0.ceiling is 1.1, allowed: up to 1"),
        ({"P0": {"ceiling": "90%"}}, "P0.ceiling is '90%', allowed: a number"),
        ({"P0": {"ceiling": float("nan")}}, "P0.ceiling is nan, allowed: up to 1"),
        ({"P1": {"floor": -0.1}}, "P1.floor is -0.1, allowed: 0 or more"),
        ({"P1": {"floor": 1}}, "P1.floor is 1, allowed: below 1"),
        (
            {"P3": {"wait": 600}},
            "P3.wait is 600, allowed: a duration above 0 with a unit, as 500ms, 5s or 2m",
        ),
        (
            {"P3": {"items": -1}},
            "P3.items is -1, allowed: a whole number, as 5600, 90k or 1.5M",
        ),
        (
            {"P3": {"interruptible": "sometimes"}},
            "P3.interruptible is 'sometimes', allowed: 'never', 'before_first_byte' or 'always'",
        ),
        ({"P3": {"pausable": 1}}, "P3.pausable is 1, allowed: true or false"),
        ({"P3": {"interactive": "no"}}, "P3.interactive is 'no', allowed: true or false"),
    ],
)
def test_class_when_wrong_then_one_line_says_where_and_what_is_allowed(
    classes: dict[str, Any], line: str
) -> None:
    """Names, types and ranges."""
    assert error_of(pool={"classes": classes}) == f"weir.yaml: pools[0].classes.{line}"


def test_classes_when_their_floors_leave_nothing_then_are_refused() -> None:
    """Each is right by itself; what is left is the default of P1."""
    classes = {"P2": {"floor": 0.5}, "P3": {"floor": 0.4}}
    assert error_of(pool={"classes": classes}) == (
        "weir.yaml: pools[0].classes: the floors of all classes are 1, allowed: below 1 together"
    )
    check_relations(
        settings_of(pool={"classes": {"P2": {"floor": 0.5}, "P3": {"floor": 0.3}}}), source="w"
    )


# --- tenants --------------------------------------------------------------------------------------


def test_tenants_when_they_have_limits_then_the_core_gets_them() -> None:
    """Weight and cap by name; who is not named has the core's own."""
    tenants = [
        {"name": "a", "keys": HASHED, "weight": 2.5, "concurrency": 40},
        {"name": "default", "weight": 0.5},
    ]
    settings = settings_of(tenants=tenants)
    check_relations(settings, source="weir.yaml")
    config = admitter_config(settings.pools[0], tenants=settings.tenants).tenants
    assert config.of("a") == TenantLimits(weight=2.5, in_flight_max=40)
    assert config.of("default") == TenantLimits(weight=0.5)
    assert config.of("somebody") == TenantLimits()


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        ({}, (Priority.P1, Priority.P1)),
        ({"highest_class": "P0"}, (Priority.P0, Priority.P1)),
        ({"highest_class": "P2"}, (Priority.P2, Priority.P2)),
        ({"default_class": "P0"}, (Priority.P0, Priority.P0)),
        ({"default_class": "P2"}, (Priority.P2, Priority.P2)),
        ({"default_class": "P2", "highest_class": "P1"}, (Priority.P1, Priority.P2)),
    ],
)
def test_tenant_when_it_names_classes_then_nothing_above_them_is_given_away(
    classes: dict[str, Any], expected: tuple[Priority, Priority]
) -> None:
    """Highest and default; one follows from the other, and P0 from nothing."""
    assert classes_of(TenantSettings(name="a", **classes)) == expected


@pytest.mark.parametrize(
    ("tenants", "line"),
    [
        ([{"keys": HASHED}], "[0].name is missing, it is required"),
        (
            [{"name": "a b", "keys": HASHED}],
            "[0].name is 'a b', allowed: letters, digits and . _ : -, a letter or digit first",
        ),
        (
            [{"name": "a"}],
            "[0].keys is missing, so that nobody is 'a', allowed: 1 or more entries, "
            "or the name default",
        ),
        (
            [{"name": "default"}, {"name": "default"}],
            "[1].name is 'default', which another is called already",
        ),
        ([{"name": "default", "weight": 0}], "[0].weight is 0, allowed: above 0"),
        ([{"name": "default", "weight": 1e7}], "[0].weight is 10000000.0, allowed: up to 1000000"),
        ([{"name": "default", "concurrency": 0}], "[0].concurrency is 0, allowed: 1 or more"),
        (
            [{"name": "default", "highest_class": "system"}],
            "[0].highest_class is 'system', allowed: 'P0', 'P1', 'P2' or 'P3'",
        ),
        (
            [{"name": "default", "highest_class": "P2", "default_class": "P1"}],
            "[0].default_class is P1, allowed: P2, its highest_class, or below",
        ),
        (
            [{"name": "default", "wait": "0s"}],
            "[0].wait is '0s', allowed: a duration above 0 with a unit, as 500ms, 5s or 2m",
        ),
        (
            [{"name": "default", "length_mode": "guessed"}],
            "[0].length_mode is 'guessed', allowed: 'sampled', 'conformal' or 'declared'",
        ),
        (
            [{"name": "default", "wieght": 2}],
            "[0].wieght is an unknown key, did you mean weight? allowed: name, keys, weight, "
            "concurrency, highest_class, default_class, wait, shortest_deadline, length_mode",
        ),
        (
            [{"name": "a", "keys": HASHED}, {"name": "b", "keys": HASHED}],
            "[1].keys[0] is a key of 'a' already",
        ),
    ],
)
def test_tenant_when_wrong_then_one_line_says_where_and_what_is_allowed(
    tenants: list[dict[str, Any]], line: str
) -> None:
    """What a section can see alone, and what it cannot."""
    assert error_of(tenants=tenants) == f"weir.yaml: tenants{line}"


def test_length_mode_when_no_pool_predicts_then_a_tenant_cannot_have_one() -> None:
    """It would promise what nobody keeps; with one pool that predicts it is right."""
    tenants = [{"name": "default", "length_mode": "declared"}]
    assert error_of(pool={"policy": "token"}, tenants=tenants) == (
        "weir.yaml: tenants[0].length_mode is 'declared', "
        "allowed: where a pool has the policy predictive"
    )
    check_relations(settings_of(tenants=tenants), source="weir.yaml")


def test_keys_when_in_environment_file_or_hashed_then_all_are_found(tmp_path: Path) -> None:
    """The hash of what is in the first two, without the line end; the third as it stands."""
    path = tmp_path / "key"
    path.write_text("sk-another-key-of-a\n")
    tenants = settings_of(
        tenants=[
            {"name": "a", "keys": [{"env": "KEY_A"}, {"file": str(path)}]},
            {"name": "b", "keys": [{"sha256": "AB" * 32}]},
        ]
    ).tenants
    found = tenants_by_key(tenants, path="tenants", environ={"KEY_A": KEY})
    assert found == {
        bytes.fromhex(DIGEST): "a",
        hashlib.sha256(b"sk-another-key-of-a").digest(): "a",
        b"\xab" * 32: "b",
    }


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("short", "tenants[0].keys[0] has 5 characters, allowed: 16 or more"),
        (
            "a key with spaces in it",
            "tenants[0].keys[0] cannot be sent in a header, allowed: ASCII without spaces",
        ),
        (
            "schlüssel-des-mandanten",
            "tenants[0].keys[0] cannot be sent in a header, allowed: ASCII without spaces",
        ),
        (None, "tenants[0].keys[0]: environment variable KEY_A is not set"),
    ],
)
def test_key_when_it_is_no_key_then_one_line_says_so_without_it(key: str | None, line: str) -> None:
    """Its length is told, and nothing else."""
    tenants = settings_of(tenants=[{"name": "a", "keys": [{"env": "KEY_A"}]}]).tenants
    environ = {} if key is None else {"KEY_A": key}
    with pytest.raises(ConfigError) as caught:
        tenants_by_key(tenants, path="tenants", environ=environ)
    assert str(caught.value) == line
