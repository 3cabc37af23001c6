"""Reading traces: three formats, and what is said of a broken line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tokenweir.core.errors import ConfigError
from tokenweir.core.prefix import NO_PREFIX, Prefix
from tokenweir.sim.traces import BUNDLED, Arrival, bundled, read_trace

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
SERVEGEN = "arrival_s,tenant,prompt_tokens,output_tokens\n0.5,c056,223,41\n"
MOONCAKE = '{"timestamp": 3000, "input_length": 6758, "output_length": 500, "hash_ids": [0]}\n'


@pytest.mark.parametrize(
    ("name", "rows", "last_s", "tenants"),
    [
        ("agentic-coding", 484, 14_430.0, 12),
        ("azure-conv", 19_366, 3_501.7, 1),
        ("mooncake-conv", 12_031, 3_537.0, 1),
        ("servegen-cheap", 106_619, 7_799.9, 56),
        ("servegen-costly", 42_416, 8_399.9, 45),
    ],
)
def test_bundled_trace_when_read_then_it_has_its_published_size(
    name: str, rows: int, last_s: float, tenants: int
) -> None:
    """Rows, span and tenants are those that the data's own description states."""
    arrivals = read_trace(name)
    assert len(arrivals) == rows
    assert arrivals[-1].arrival_ns / 1e9 == pytest.approx(last_s, abs=0.2)
    assert len({a.tenant for a in arrivals}) == tenants
    assert arrivals[0].arrival_ns == 0


def test_bundled_when_name_is_unknown_then_the_error_lists_what_there_is() -> None:
    """The text names the short names."""
    with pytest.raises(ConfigError, match="azure-conv"):
        bundled("nothing.csv")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (AZURE, Arrival(0, 374, 44)),
        (SERVEGEN, Arrival(0, 223, 41, "c056")),
        (MOONCAKE, Arrival(0, 6_758, 500, prefix=Prefix(512, (0,)))),
    ],
)
@pytest.mark.parametrize("is_zipped", [False, True])
def test_read_when_format_is_known_then_rows_come_out(
    tmp_path: Path, text: str, expected: Arrival, is_zipped: bool
) -> None:
    """Each format is told by its first line, plain or gzip."""
    path = tmp_path / ("trace.gz" if is_zipped else "trace")
    path.write_bytes(gzip.compress(text.encode()) if is_zipped else text.encode())
    assert read_trace(path) == [expected]


def test_read_when_there_are_hash_ids_then_each_stands_for_all_before_it(tmp_path: Path) -> None:
    """The same id after another beginning, or in another session, is another block."""
    rows = [
        ('"s"', "[5, 6, 7]"),
        ('"s"', "[5, 6, 8]"),
        ('"s"', "[4, 6]"),
        ('"t"', "[5, 6]"),
        ('"t"', "[]"),
    ]
    path = tmp_path / "t.jsonl"
    path.write_text(
        "".join(
            f'{{"timestamp": {n}, "input_length": 200, "output_length": 1, "block_size": 64, '
            f'"session": {session}, "hash_ids": {ids}}}\n'
            for n, (session, ids) in enumerate(rows)
        )
    )
    arrivals = read_trace(path)
    ids = ((0, 1, 2), (0, 1, 3), (4, 5), (6, 7))
    assert [a.prefix for a in arrivals] == [*(Prefix(64, i) for i in ids), NO_PREFIX]
    assert [a.tenant for a in arrivals] == ["s", "s", "s", "t", "t"]


def test_read_when_azure_has_seven_digits_then_they_all_count(tmp_path: Path) -> None:
    """The trace's 100 ns digit is kept, and lines out of order are sorted."""
    path = tmp_path / "t.csv"
    path.write_text(AZURE + "2023-11-16 18:15:46.6805901,1,2\n2023-11-16 18:15:46.6805899,3,4\n")
    assert [a.arrival_ns for a in read_trace(path)] == [0, 100, 200]


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        (AZURE + "2023-11-16 18:15,1\n", ":3:", "TIME,PROMPT,OUTPUT"),
        (AZURE + "yesterday,1,2\n", ":3:", "TIME,PROMPT,OUTPUT"),
        (AZURE + "2023-11-16 18:15:47.1,0,2\n", ":3:", "below 1"),
        (SERVEGEN + "0.6,c1,ten,2\n", ":3:", "SECONDS,TENANT"),
        (SERVEGEN + "inf,c1,1,2\n", ":3:", "SECONDS,TENANT"),
        (SERVEGEN + "nan,c1,1,2\n", ":3:", "SECONDS,TENANT"),
        (SERVEGEN + "-1,c1,1,2\n", ":3:", "below 0"),
        (MOONCAKE + '{"timestamp": 1}\n', ":2:", "input_length"),
        (MOONCAKE + "[1, 2]\n", ":2:", "input_length"),
        (MOONCAKE + '{"timestamp": 1, "input_length": "9", "output_length": 1}\n', ":2:", "JSON"),
        (MOONCAKE + '{"a":' + "[" * 100_000 + "\n", ":2:", "JSON"),
        (MOONCAKE + '{"timestamp": "9", "input_length": 9, "output_length": 1}\n', ":2:", "JSON"),
        (
            MOONCAKE + f'{{"timestamp": {"9" * 400}, "input_length": 9, "output_length": 1}}\n',
            ":2:",
            "too large",
        ),
        (
            MOONCAKE + '{"timestamp": 1e999, "input_length": 9, "output_length": 1}\n',
            ":2:",
            "JSON",
        ),
        (MOONCAKE.replace("[0]", "[0.5]"), ":1:", "JSON"),
        (MOONCAKE.replace("[0]", "7"), ":1:", "JSON"),
        (MOONCAKE.replace("[0]", '[0], "block_size": 0'), ":1:", "JSON"),
        (MOONCAKE.replace("[0]", '[0], "session": 3'), ":1:", "JSON"),
        (SERVEGEN + f"{'9' * 400},c1,1,2\n", ":3:", "SECONDS,TENANT"),
        (SERVEGEN + f"0.6,c1,{10**12},2\n", ":3:", "up to 10,000,000 tokens"),
        (SERVEGEN + f"0.6,c1,2,{10**12}\n", ":3:", "up to 10,000,000 tokens"),
        (SERVEGEN + f"0.6,c1,{'9' * 5_000},2\n", ":3:", "SECONDS,TENANT"),
        (SERVEGEN + "9" * 2_000_000, ":3:", "SECONDS,TENANT"),
        ("when,what\n1,2\n", ":1:", "unknown trace format"),
        ("", ":1:", "unknown trace format"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "", "no requests"),
    ],
)
def test_read_when_a_line_is_broken_then_the_error_names_file_line_and_form(
    tmp_path: Path, text: str, where: str, what: str
) -> None:
    """One line says where and what was expected."""
    path = tmp_path / "broken.csv"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_trace(path)
    message = str(caught.value)
    assert f"broken.csv{where}" in message
    assert what in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("missing.csv", None),
        ("not-gzip.csv.gz", b"plain text"),
        ("cut.csv.gz", gzip.compress(AZURE.encode() * 50)[:-12]),
        ("corrupt.csv.gz", gzip.compress(AZURE.encode() * 50)[:30] + b"\xff" * 60),
        ("binary.csv", b"\xff\xfe\x00\x01"),
    ],
)
def test_read_when_file_is_unreadable_then_the_error_is_one_line(
    tmp_path: Path, name: str, content: bytes | None
) -> None:
    """Missing, truncated and foreign files are no traceback."""
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_trace(path)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_read_when_limited_then_only_the_first_rows_are_read() -> None:
    """A limit spares the rest of a long file."""
    assert len(read_trace("azure-conv", limit=10)) == 10
    assert set(BUNDLED) == {
        "agentic-coding",
        "azure-conv",
        "mooncake-conv",
        "servegen-cheap",
        "servegen-costly",
        "vtc-arena",
    }
