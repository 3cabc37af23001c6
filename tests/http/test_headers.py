"""Which headers go on, and which belong to one connection."""

import pytest

from tokenweir.http.headers import for_client, for_upstream

SENT = [
    (b"connection", b"keep-alive"),
    (b"x-one", b"1"),
    (b"connection", b"X-One , x-two"),
    (b"x-two", b"2"),
    (b"connection", b"close,x-three"),
    (b"x-three", b"3"),
    (b"x-four", b"4"),
]


def test_headers_when_any_connection_line_names_them_then_they_stay_behind() -> None:
    """Each such line counts, in both directions."""
    assert for_upstream(SENT, request_id=b"id") == [(b"x-four", b"4"), (b"x-request-id", b"id")]
    assert for_client(SENT, keeps_length=True) == [(b"x-four", b"4")]


@pytest.mark.parametrize("value", [b"close", b"keep-alive", b"", b",", b"Close"])
def test_headers_when_the_connection_line_names_none_then_all_go_on(value: bytes) -> None:
    """The usual values name no header."""
    assert for_client([(b"connection", value), (b"x-a", b"1")], keeps_length=True) == [
        (b"x-a", b"1")
    ]
