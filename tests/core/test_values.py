"""Values that are made at every request: compared, hashed and shown by what is in them."""

import dataclasses

from tokenweir.core.cost import Estimate
from tokenweir.core.request import Request, Usage
from tokenweir.core.values import value


@value
class Pair:
    """Two numbers."""

    first: int
    second: int = 2


def test_value_when_made_then_is_what_is_in_it() -> None:
    """Equal fields, equal values; of another class they are not."""
    assert Pair(1) == Pair(1, second=2) != Pair(2)
    assert len({Pair(1), Pair(1, 2), Pair(3)}) == 2
    assert repr(Pair(1)) == "Pair(first=1, second=2)"
    assert dataclasses.replace(Pair(1), first=5) == Pair(5)
    assert Estimate(1, 2) != Usage(1, 2)


def test_value_when_made_then_holds_its_fields_and_no_more() -> None:
    """Slots: a misspelt field is an error and takes no memory."""
    assert not hasattr(Pair(1), "__dict__")
    assert not hasattr(Request("a", 1, 1), "__dict__")
