"""From settings to the core's own objects, and what only the whole file can get wrong."""

from pathlib import Path

import pytest

from tokenweir.core.capacity.concurrency import Concurrency
from tokenweir.core.errors import ConfigError
from tokenweir.core.mode import Mode
from tokenweir.profiles import profile
from tokenweir.profiles.loading import profile_path
from tokenweir.settings.compose import (
    admitter_config,
    check_relations,
    mode_of,
    pool_policy,
    pool_profile,
)
from tokenweir.settings.loading import settings_from
from tokenweir.settings.model import Settings

POOL = {"replicas": [{"url": "http://127.0.0.1:8000"}]}


def settings_of(tree: object) -> Settings:
    """Settings from a tree that is right section by section."""
    return settings_from(tree, source="weir.yaml")


def test_pool_when_it_has_limits_then_the_core_gets_them() -> None:
    """Queue, SLO and concurrency arrive unchanged."""
    pool = settings_of({
        "pools": [
            {
                **POOL,
                "policy": "concurrency",
                "concurrency": 7,
                "queue": {"items": 3, "wait": "250ms", "debt": "10k", "backfill": 4},
                "first_token_slo": "1s",
            }
        ]
    }).pools[0]
    limits = admitter_config(pool).queue
    assert (limits.items_max, limits.wait_ns_max, limits.debt_tokens_max) == (
        3,
        250_000_000,
        10_000,
    )
    assert limits.first_token_slo_ns == 1_000_000_000
    assert limits.backfill_max == 4
    assert pool_policy(pool).capacity == Concurrency(in_flight_max=7)


@pytest.mark.parametrize(
    ("switches", "mode"),
    [({}, Mode.ENFORCE), ({"observe": True}, Mode.OBSERVE), ({"bypass": True}, Mode.BYPASS)],
)
def test_switches_when_set_then_choose_the_mode(switches: dict[str, bool], mode: Mode) -> None:
    """Each switch is one mode of the core."""
    assert mode_of(settings_of({"pools": [POOL], **switches})) is mode


@pytest.mark.parametrize(
    ("tree", "line"),
    [
        (
            {"pools": [{**POOL, "policy": "token_amrt"}]},
            "weir.yaml: pools[0].policy: unknown policy 'token_amrt', "
            "allowed: none, concurrency, aimd, engine_queue, token, token_amort, ledger, "
            "hard_gate, predictive",
        ),
        (
            {"pools": [{**POOL, "policy": "token", "length_mode": "declared"}]},
            "weir.yaml: pools[0].policy: length_mode declared does not belong to policy 'token', "
            "allowed: policies predictive",
        ),
        (
            {"pools": [{**POOL, "policy": "token", "concurrency": 4}]},
            "weir.yaml: pools[0].policy: concurrency 4 does not belong to policy 'token', "
            "allowed: policies concurrency and aimd",
        ),
        (
            {"pools": [{**POOL, "queue": {"backfill": 17}}]},
            "weir.yaml: pools[0].queue: backfill_max 17 is not allowed, allowed: 0 to 16",
        ),
        (
            {"pools": [{**POOL, "queue": {"wait": "0s"}}]},
            "weir.yaml: pools[0].queue.wait is '0s', "
            "allowed: a duration above 0 with a unit, as 500ms, 5s or 2m",
        ),
        (
            {
                "pools": [POOL],
                "listen": {"host": "0.0.0.0", "port": 9000},
                "admin": {"listen": {"port": 9000}},
            },
            "weir.yaml: admin.listen.port is 9000, which is the port of listen, "
            "allowed: another port",
        ),
        (
            {"pools": [POOL, POOL], "routes": [{"pool": "default"}]},
            "weir.yaml: pools[1].name is 'default', which another pool is called already",
        ),
        (
            {"pools": [{"replicas": POOL["replicas"] * 2}]},
            "weir.yaml: pools[0].replicas[1] is '127.0.0.1:8000', which another replica is called "
            "already, allowed: a url and name of its own",
        ),
        (
            {"pools": [POOL], "routes": [{"pool": "chat"}]},
            "weir.yaml: routes[0].pool is 'chat', allowed: default",
        ),
        (
            {"pools": [POOL, {**POOL, "name": "b"}], "routes": [{}]},
            "weir.yaml: routes[0].pool is missing, allowed: b, default",
        ),
        (
            {"pools": [POOL], "routes": [{"match": {"model": "m"}}]},
            "weir.yaml: routes has its default route (one without match) at none, "
            "allowed: exactly one, the last",
        ),
        (
            {"pools": [POOL], "routes": [{}, {"match": {"model": "m"}}]},
            "weir.yaml: routes has its default route (one without match) at [0], "
            "allowed: exactly one, the last",
        ),
        (
            {"pools": [POOL], "observe": True, "bypass": True},
            "weir.yaml: bypass is true, allowed: false while observe is true",
        ),
    ],
)
def test_relation_when_wrong_then_one_line_says_where_and_what_is_allowed(
    tree: object, line: str
) -> None:
    """Names, references and the core's own ranges are checked before anything starts."""
    with pytest.raises(ConfigError) as caught:
        check_relations(settings_of(tree), source="weir.yaml")
    assert str(caught.value) == line


def test_listeners_when_on_free_ports_or_other_addresses_then_they_are_right() -> None:
    """Two free ports differ, and so do two addresses."""
    for host, port in (("127.0.0.1", 0), ("127.0.0.2", 9000)):
        tree = {
            "pools": [POOL],
            "listen": {"host": host, "port": port},
            "admin": {"listen": {"port": port}},
        }
        check_relations(settings_of(tree), source="weir.yaml")


def test_pool_when_its_profile_is_a_file_then_it_is_read(tmp_path: Path) -> None:
    """A path does as well as a name, and what is wrong in the file has both paths before it."""
    path = tmp_path / "mine.toml"
    path.write_text(profile_path("8b-h100").read_text())
    settings = settings_of({"pools": [{**POOL, "profile": str(path)}]})
    check_relations(settings, source="weir.yaml")
    assert pool_profile(settings.pools[0]) == profile("8b-h100")
    path = tmp_path / "broken.toml"
    path.write_text("name = 5")
    broken = settings_of({"pools": [{**POOL, "profile": str(path)}]})
    with pytest.raises(ConfigError, match=r"weir\.yaml: pools\[0\]\.profile: .*broken\.toml: name"):
        check_relations(broken, source="weir.yaml")


def test_pool_when_its_profile_is_unknown_then_lists_the_allowed() -> None:
    """The path in the settings, the name, and what there is."""
    unknown = settings_of({"pools": [{**POOL, "profile": "abacus"}]})
    message = r"weir\.yaml: pools\[0\]\.profile: unknown profile 'abacus', allowed: 70b-4xh100, "
    with pytest.raises(ConfigError, match=message):
        check_relations(unknown, source="weir.yaml")
