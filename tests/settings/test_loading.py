"""The settings file: what is right is read, and what is wrong is named in one line."""

from pathlib import Path

import pytest

from tokenweir.core.errors import ConfigError
from tokenweir.settings.loading import load_settings, settings_from
from tokenweir.settings.model import Settings

POOL = {"replicas": [{"url": "http://127.0.0.1:8000"}]}

# Python refuses to write out an int of so many digits.
HUGE = pytest.param(10**5_000, id="huge")

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
            {"pools": [POOL], "routes": [{"match": {"path": "/v1/audio/speech"}}]},
            "weir.yaml: routes[0].match.path is '/v1/audio/speech', "
            "allowed: '/v1/chat/completions', '/v1/completions', '/v1/embeddings', "
            "'/v1/responses' or '/v1/messages'",
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
            "weir.yaml: holds no settings, allowed keys: listen, admin, pools, routes, tenants, "
            "tickets, observe, bypass, limits",
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


def loading_error(tmp_path: Path, text: str) -> str:
    """What is said of a file with this text, without the file's name."""
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_settings(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    return message[len(str(path)) :]


def test_file_when_it_holds_a_bomb_then_it_is_refused_at_once(tmp_path: Path) -> None:
    """Some hundred bytes of aliases stand for more than any memory holds."""
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    message = loading_error(tmp_path, "\n".join([*lines, "listen: *a9"]))
    assert message == ":2:10: not YAML: an alias is not taken, write the value itself"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("listen: {host: 2001-99-99}", ":1:16: not YAML: '2001-99-99' is no timestamp"),
        ("listen: {port: !!int abc}", ":1:16: not YAML: 'abc' is no int"),
        ("listen: {port: !!int ''}", ":1:16: not YAML: '' is no int"),
        ("listen: {port: 0x_}", ":1:16: not YAML: '0x_' is no int"),
        ("listen: {port: !!float abc}", ":1:16: not YAML: 'abc' is no float"),
        ("observe: !!bool abc", ":1:10: not YAML: 'abc' is no bool"),
        ("5: 1", ":1:1: not YAML: key '5' is not a text, which is written in quotes"),
        ("on: 1", ":1:1: not YAML: key 'on' is not a text, which is written in quotes"),
        ("? [a]\n: 1", ":1:3: not YAML: a key is not a text, which is written in quotes"),
        ("&a a: *a", ":1:7: not YAML: an alias is not taken, write the value itself"),
        ("a: " + "[" * 5_000, ": is nested too deeply"),
    ],
)
def test_file_when_yaml_itself_stumbles_then_one_line_says_where(
    tmp_path: Path, text: str, message: str
) -> None:
    """Whatever the parser's own code raises is a mistake in the file."""
    assert loading_error(tmp_path, text) == message


@pytest.mark.parametrize("port", ["9" * 5_000, "0x" + "f" * 5_000, "!!str " + "9" * 5_000])
def test_number_when_of_thousands_of_digits_then_the_line_stays_short(
    tmp_path: Path, port: str
) -> None:
    """Python itself refuses to write out such a number."""
    message = loading_error(tmp_path, f"listen: {{port: {port}}}\npools: []")
    assert len(message) < 300
    assert "Traceback" not in message


def test_key_when_it_moves_the_cursor_then_it_is_shown_escaped(tmp_path: Path) -> None:
    """What is in the file does not steer the terminal."""
    message = loading_error(tmp_path, '"\\e[31mred": {"a\\nb": "\\e[2J"}\nobserve: "\\e[2J"')
    assert all(line.isprintable() for line in message.splitlines())


@pytest.mark.parametrize(
    "value",
    [
        "0s",
        "0ms",
        "0.0s",
        "\u0663s",
        "9" * 400 + "s",
        "1e9s",
        "101000000s",
        pytest.param(10**5_000, id="huge"),
    ],
)
def test_duration_when_not_one_above_zero_then_the_key_is_named(value: object) -> None:
    """No value is nothing, overflows, or is read in another script's digits."""
    (line,) = errors_of({"pools": [POOL], "limits": {"drain": value}})
    assert line.startswith("weir.yaml: limits.drain is ")
    assert "allowed: a duration above 0 with a unit, as 500ms, 5s or 2m" in line


@pytest.mark.parametrize(
    "value", ["9" * 400, "9" * 5_000, 10**30, pytest.param(10**5_000, id="huge"), "\u0663", "1e3"]
)
def test_count_when_no_such_number_then_the_key_is_named(value: object) -> None:
    """Counts and sizes are bounded as well."""
    for key in ("body", "connections"):
        (line,) = errors_of({"pools": [POOL], "limits": {key: value}})
        assert line.startswith(f"weir.yaml: limits.{key} is ")


@pytest.mark.parametrize(
    "url",
    [
        "http://a b:80",
        "http://127.0.0.1:1/a b",
        "http://127.0.0.1:1/a\nb",
        "http://127.0.0.1\t:1",
        "http://a..b:80",
        "http://.a:80",
        "http://-a:80",
        "http://" + "a" * 70,
        "http://" + "a." * 130 + "b",
        "http://[::1",
        "http://:80",
        "http://:key@a:80",
        "http://a:80?",
        "http://a:80#",
        "http://a:99999",
        "http://\u00e9:80",
        "http://a\\b",
    ],
)
def test_url_when_no_request_could_be_sent_there_then_it_is_refused(url: str) -> None:
    """The start says so, not the first request."""
    (line,) = errors_of({"pools": [{"replicas": [{"url": url}]}]})
    assert line.startswith("weir.yaml: pools[0].replicas[0].url is ")
    assert line.isprintable()


@pytest.mark.parametrize(
    "url",
    ["http://a", "https://a-b.c_d.example.:8443/x/y%20z", "http://[::1]:80", "http://10.0.0.1"],
)
def test_url_when_right_then_it_is_taken(url: str) -> None:
    """Names, addresses of both kinds, ports and paths."""
    settings = settings_from({"pools": [{"replicas": [{"url": url}]}]}, source="weir.yaml")
    assert settings.pools[0].replicas[0].url == url
