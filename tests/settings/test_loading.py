"""The settings file: what is right is read, and what is wrong is named in one line."""

from pathlib import Path

import pytest

from tokenweir.core.errors import ConfigError
from tokenweir.settings.loading import load_settings, settings_from
from tokenweir.settings.model import Settings

POOL = {"replicas": [{"url": "http://127.0.0.1:8000"}]}

FULL = """
listen: {host: 127.0.0.1, port: 9000}
admin: {listen: {port: 9001}}
pools:
  - name: chat
    replicas:
      - {url: "http://127.0.0.1:8000/v1/", kv_tokens: 90k}
      - {url: "http://127.0.0.1:8001", name: second}
    policy: concurrency
    concurrency: 40
    queue: {items: 200, wait: 2.5s, debt: 1.5M}
    first_token_slo: 1s
    timeouts: {connect: 500ms, first_byte: 2m, idle: 30s, total: 10m}
    scrape: {interval: 1s, timeout: 800ms}
routes:
  - {match: {path: /v1/completions, model: small}, pool: chat, output_tokens_max: 256}
  - {output_tokens_max: 2k}
observe: true
limits: {body: 1MiB, connections: 500, drain: 10s}
"""


def write(tmp_path: Path, text: str) -> Path:
    """A settings file with this text."""
    path = tmp_path / "weir.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def errors_of(tree: object) -> list[str]:
    """The lines of the error that a tree of settings raises."""
    with pytest.raises(ConfigError) as caught:
        settings_from(tree, source="weir.yaml")
    return str(caught.value).splitlines()


def test_file_when_right_then_every_unit_is_converted(tmp_path: Path) -> None:
    """Durations become nanoseconds, sizes plain numbers, and a base URL loses its /v1."""
    settings = load_settings(write(tmp_path, FULL))
    pool = settings.pools[0]
    assert pool.replicas[0].url == "http://127.0.0.1:8000"
    assert pool.replicas[0].kv_tokens == 90_000
    assert (pool.queue.wait, pool.queue.debt) == (2_500_000_000, 1_500_000)
    assert pool.timeouts.first_byte == 120_000_000_000
    assert pool.scrape.timeout == 800_000_000
    assert settings.routes[1].output_tokens_max == 2_000
    assert settings.limits.body == 1 << 20
    assert settings.admin.listen is not None
    assert settings.admin.listen.port == 9001


def test_file_when_only_a_replica_is_named_then_all_else_has_a_default() -> None:
    """One URL is enough of a configuration."""
    settings = settings_from({"pools": [POOL]}, source="weir.yaml")
    assert settings.pools[0].policy == "predictive"
    assert settings.routes[0].output_tokens_max == 4_096
    assert settings.limits.body == 8 << 20


@pytest.mark.parametrize(
    ("tree", "line"),
    [
        (
            {"pools": [{"replicas": [{"ulr": "http://a:1", "url": "http://a:1"}]}]},
            "weir.yaml: pools[0].replicas[0].ulr is an unknown key, did you mean url? "
            "allowed: url, name, kv_tokens",
        ),
        (
            {"pools": [{"replicas": [{"url": "ftp://a:1"}]}]},
            "weir.yaml: pools[0].replicas[0].url is 'ftp://a:1', "
            "allowed: a URL such as http://127.0.0.1:8000, without query or user",
        ),
        (
            {"pools": [{**POOL, "queue": {"wait": 5}}]},
            "weir.yaml: pools[0].queue.wait is 5, "
            "allowed: a duration above 0 with a unit, as 500ms, 5s or 2m",
        ),
        (
            {"pools": [{**POOL, "concurrency": 0}]},
            "weir.yaml: pools[0].concurrency is 0, allowed: 1 or more",
        ),
        (
            {"pools": [POOL], "listen": {"port": 65_536}},
            "weir.yaml: listen.port is 65536, allowed: up to 65535",
        ),
        (
            {"pools": [POOL], "limits": {"body": "8XB"}},
            "weir.yaml: limits.body is '8XB', allowed: a size, as 65536, 64KiB or 8MiB",
        ),
        (
            {"pools": [POOL], "routes": [{"match": {"path": "/v1/embeddings"}}]},
            "weir.yaml: routes[0].match.path is '/v1/embeddings', "
            "allowed: '/v1/chat/completions' or '/v1/completions'",
        ),
        (
            {"pools": [POOL], "admin": {"listen": {"host": "0.0.0.0"}}},
            "weir.yaml: admin.listen.host is '0.0.0.0', "
            "allowed: a loopback address, since the admin listener asks for no credential",
        ),
        (
            {"pools": [POOL], "observe": "maybe"},
            "weir.yaml: observe is 'maybe', allowed: true or false",
        ),
        ({}, "weir.yaml: pools is missing, it is required"),
        (
            {"pools": [{"replicas": []}]},
            "weir.yaml: pools[0].replicas is [], allowed: 1 or more entries",
        ),
        (
            ["pools"],
            "weir.yaml: holds no settings, allowed keys: listen, admin, pools, routes, observe, "
            "bypass, limits",
        ),
    ],
)
def test_setting_when_wrong_then_one_line_names_path_value_and_what_is_allowed(
    tree: object, line: str
) -> None:
    """A mistake is repaired without opening the documentation."""
    assert errors_of(tree) == [line]


def test_settings_when_several_are_wrong_then_each_has_its_line() -> None:
    """All mistakes are shown at once, not one per start."""
    lines = errors_of({"pools": [{**POOL, "polcy": "token"}], "limits": 5})
    assert len(lines) == 2
    assert lines[0].startswith("weir.yaml: pools[0].polcy is an unknown key, did you mean policy?")
    assert lines[1].startswith("weir.yaml: limits is 5, allowed: a section with the keys body,")


def test_file_when_not_yaml_then_line_and_column_are_named(tmp_path: Path) -> None:
    """A broken file is located, not quoted."""
    path = write(tmp_path, "pools:\n  - {replicas: [\n")
    with pytest.raises(ConfigError, match=r"weir\.yaml:\d+:\d+: not YAML: ") as caught:
        load_settings(path)
    assert "\n" not in str(caught.value)


def test_file_when_a_key_stands_twice_then_it_is_refused(tmp_path: Path) -> None:
    """YAML would silently take the last one."""
    path = write(tmp_path, "observe: true\nobserve: false\n")
    with pytest.raises(ConfigError, match=r"weir\.yaml:2:1: not YAML: key 'observe' stands twice"):
        load_settings(path)


def test_file_when_missing_then_its_name_is_in_the_line(tmp_path: Path) -> None:
    """The path is repeated, since the user may have mistyped it."""
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: No such file"):
        load_settings(tmp_path / "none.yaml")


def test_settings_when_read_then_they_are_frozen() -> None:
    """Nothing changes a setting behind the back of who has read it."""
    assert Settings.model_config["frozen"] is True
