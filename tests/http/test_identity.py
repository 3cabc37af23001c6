"""Whose request it is, by its key alone."""

from __future__ import annotations

import hashlib

import pytest

from tokenweir.http.identity import Identities, Identity

ACME, OTHERS = Identity("acme"), Identity("default")
KNOWN = Identities({hashlib.sha256(b"sk-acme").digest(): ACME}, others=OTHERS)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([(b"authorization", b"Bearer sk-acme")], ACME),
        ([(b"authorization", b"bearer   sk-acme ")], ACME),
        ([(b"authorization", b"Bearer sk-acme2")], OTHERS),
        ([(b"authorization", b"Bearer")], OTHERS),
        ([(b"authorization", b"sk-acme")], OTHERS),
        ([(b"authorization", b"Basic sk-acme")], OTHERS),
        ([(b"x-api-key", b"sk-acme")], ACME),
        ([(b"x-api-key", b"sk-acme"), (b"authorization", b"Bearer other")], OTHERS),
        ([(b"x-api-key", b"other"), (b"authorization", b"Bearer sk-acme")], ACME),
        ([(b"x-api-key", b"sk-acme2")], OTHERS),
        ([(b"x-tokenweir-tenant", b"acme")], OTHERS),
        ([], OTHERS),
    ],
)
def test_request_when_it_has_a_known_key_then_is_its_tenants_and_else_the_others(
    headers: list[tuple[bytes, bytes]], expected: Identity
) -> None:
    """No header but those that must be secret chooses whose share is used."""
    assert KNOWN.of(headers) is expected


def test_request_when_there_are_no_keys_then_all_are_one_tenant() -> None:
    """Without tenants a key is between the client and what stands behind us."""
    assert Identities({}, others=OTHERS).of([(b"authorization", b"Bearer x")]) is OTHERS
