"""The settings that hold: complete, readable again, and without secrets."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tokenweir.core.units import NS_PER_MS
from tokenweir.settings.compose import admitter_config, check_relations
from tokenweir.settings.effective import effective, written_duration
from tokenweir.settings.loading import settings_from
from tokenweir.settings.model import Settings
from tokenweir.settings.quantities import parse_duration

REPLICAS = {"replicas": [{"url": "http://127.0.0.1:8000"}]}
FULL = {
    "admin": {"listen": {"port": 9001}},
    "pools": [
        {
            **REPLICAS,
            "policy": "token",
            "ordering": "fifo",
            "fairness": "sfq",
            "queue": {"items": 9, "wait": "1500ms", "debt": "10k"},
            "classes": {"P0": {"wait": "0.25ms"}, "P2": {"floor": 0.2, "interactive": True}},
            "first_token_slo": "1s",
        },
        {**REPLICAS, "name": "second"},
    ],
    "routes": [
        {"match": {"model": "m", "classes": ["P2", "P3"]}, "pool": "second"},
        {"pool": "default"},
    ],
    "tenants": [
        {"name": "a", "keys": [{"sha256": "ab" * 32}], "weight": 2, "highest_class": "P0"},
        {"name": "b", "keys": [{"sha256": "cd" * 32}], "wait": "2m", "default_class": "P2"},
    ],
}


def settings_of(tree: Any) -> Settings:
    """Settings, checked as far as no environment is needed."""
    return settings_from(tree, source="weir.yaml")


@pytest.mark.parametrize("tree", [{"pools": [REPLICAS]}, FULL], ids=["least", "full"])
def test_settings_when_written_as_they_hold_then_read_again_they_mean_the_same(tree: Any) -> None:
    """Through YAML, as a user would keep them."""
    settings = settings_of(tree)
    written = effective(settings)
    again = settings_of(yaml.safe_load(yaml.safe_dump(written)))
    check_relations(again, source="weir.yaml")
    assert effective(again) == written
    for before, after in zip(settings.pools, again.pools, strict=True):
        ours = admitter_config(before, tenants=settings.tenants)
        theirs = admitter_config(after, tenants=again.tenants)
        for name in ("a", "b", "default"):
            assert ours.tenants.of(name) == theirs.tenants.of(name)
        for priority, row in ours.queue.classes.items():
            assert ours.queue.wait_ns_max_of(priority) == theirs.queue.wait_ns_max_of(priority)
            assert row.ceiling_fraction == theirs.queue.classes[priority].ceiling_fraction
            assert row.is_pausable == theirs.queue.classes[priority].is_pausable
            assert row.interruptible is theirs.queue.classes[priority].interruptible
            assert row.floor_fraction == theirs.queue.classes[priority].floor_fraction
        assert (ours.ordering, ours.fairness) == (theirs.ordering, theirs.fairness)


def test_settings_when_little_is_written_then_all_that_holds_is_shown() -> None:
    """Rows, classes, lengths and the tenant of who has no key."""
    (pool,) = effective(settings_of({"pools": [REPLICAS]}))["pools"]
    assert (pool["policy"], pool["length_mode"]) == ("predictive", "sampled")
    assert (pool["ordering"], pool["fairness"]) == ("earliest_deadline", "vtc")
    assert {name: row["wait"] for name, row in pool["classes"].items()} == {
        "P0": "500ms",
        "P1": "5s",
        "P2": "30s",
        "P3": "600s",
    }
    assert pool["classes"]["P1"] == {
        "ceiling": 0.92,
        "floor": 0.1,
        "wait": "5s",
        "interactive": True,
        "pausable": False,
        "interruptible": "never",
    }
    (tenant,) = effective(settings_of({"pools": [REPLICAS]}))["tenants"]
    assert tenant == {
        "name": "default",
        "keys": [],
        "weight": 1.0,
        "highest_class": "P1",
        "default_class": "P1",
        "shortest_deadline": "1s",
    }


def test_settings_when_some_are_written_then_they_are_what_holds() -> None:
    """Beside the defaults of the others; a pool that predicts nothing has no mode of lengths."""
    tree = effective(settings_of(FULL))
    first = tree["pools"][0]
    assert "length_mode" not in first
    assert (first["ordering"], first["fairness"]) == ("fifo", "sfq")
    assert first["classes"]["P0"]["wait"] == "0.25ms"
    assert first["classes"]["P1"]["wait"] == "1500ms"
    assert first["classes"]["P2"]["floor"] == 0.2
    assert [(t["name"], t["default_class"]) for t in tree["tenants"]] == [
        ("a", "P1"),
        ("b", "P2"),
        ("default", "P1"),
    ]
    assert tree["tenants"][1]["wait"] == "120s"
    assert tree["routes"][0]["match"] == {"model": "m", "classes": ["P2", "P3"]}


@given(st.integers(1, 8 * 10**9))
def test_duration_when_written_then_is_read_as_the_same(eighths_ms: int) -> None:
    """Up to days, in whole and broken milliseconds."""
    duration_ns = eighths_ms * NS_PER_MS // 8
    assert parse_duration(written_duration(duration_ns)) == duration_ns
