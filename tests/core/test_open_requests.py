"""What a tenant is charged for a prompt: what had to be read of it, as far as that is known."""

import pytest

from tokenweir.core.cost import Estimate
from tokenweir.core.open_requests import OpenRequest, OpenRequests
from tokenweir.core.request import Request, Usage
from tokenweir.core.tenants import TenantConfig
from tokenweir.core.units import ReservationId

ID = ReservationId("r")


class Purse:
    """Adds up what one tenant is charged."""

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.output_tokens = 0

    def charge(self, tenant: str, *, weight: float, prompt_tokens: int, output_tokens: int) -> bool:
        self.settle(tenant, prompt_tokens=prompt_tokens, output_tokens=output_tokens)
        return True

    def settle(self, tenant: str, *, prompt_tokens: int, output_tokens: int) -> None:
        self.prompt_tokens += prompt_tokens
        self.output_tokens += output_tokens


@pytest.mark.parametrize(
    ("usage", "charged"),
    [
        # Engines that say nothing of a cache: the forecast of it stands.
        (Usage(1_000, 20), 600),
        (Usage(1_200, 20), 600),
        # Engines that do: what was read, whatever was expected.
        (Usage(1_000, 20, 0), 1_000),
        (Usage(1_000, 20, 400), 600),
        (Usage(1_000, 20, 960), 40),
        (Usage(1_200, 20, 400), 800),
        # Nothing was read.
        (Usage(0, 0), 0),
        (Usage(0, 0, 0), 0),
    ],
)
def test_charge_when_settled_then_is_what_had_to_be_read_of_the_prompt(
    usage: Usage, charged: int
) -> None:
    """What a cache spared costs its tenant nothing; what was hoped of it and did not come does."""
    purse, opened = Purse(), OpenRequests(TenantConfig())
    opened.open(
        ID,
        OpenRequest(
            request=Request("r", 1_000, 50, cached_prompt_tokens=400),
            estimate=Estimate(1_000, 50, 400),
            fairness=purse,
            charged_output_tokens=50,
            arrived_ns=0,
        ),
    )
    assert (purse.prompt_tokens, purse.output_tokens) == (600, 50)
    opened.close(ID, usage=usage)
    assert (purse.prompt_tokens, purse.output_tokens) == (charged, usage.output_tokens)
