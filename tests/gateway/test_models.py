"""Which models a gateway says there are: those of its pools' engines that requests can reach."""

import json
from typing import Any

import openai
import pytest

from tests.gateway.clients import session
from tests.gateway.processes import gateway
from tests.gateway.scripted import ScriptedUpstream, scripted, stream

pytestmark = pytest.mark.integration

NOWHERE = "http://127.0.0.1:9"


def models(*names: str) -> bytes:
    """A list of models as an engine writes it, with spaces that a rewrite would lose."""
    rows = [{"id": name, "object": "model", "created": 1, "owned_by": "x"} for name in names]
    return json.dumps({"object": "list", "data": rows}).encode()


def two_pools(first: str, second: str) -> dict[str, Any]:
    """Model ``a`` goes to the first pool, all others to the second."""
    return {
        "pools": [
            {"name": "first", "replicas": [{"url": first}]},
            {"name": "second", "replicas": [{"url": second}]},
        ],
        "routes": [{"match": {"model": "a"}, "pool": "first"}, {"pool": "second"}],
    }


async def listed(url: str) -> list[str]:
    """The models that the real client reads."""
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as client:
        return [model.id async for model in client.models.list()]


async def test_models_when_there_is_one_pool_then_its_engines_list_passes_as_it_is() -> None:
    """Also what engines add to it."""
    async with session() as client, scripted(stream()) as upstream:
        upstream.models = models("m", "m:adapter")
        async with (
            gateway(upstream.url) as server,
            client.get(server.url + "/v1/models") as response,
        ):
            assert await response.read() == upstream.models
            assert response.headers["content-type"] == "application/json"


async def test_models_when_there_are_several_pools_then_each_is_listed_that_can_be_reached() -> (
    None
):
    """Of each pool what routes send it; of one that is down nothing; of none a 503."""
    async with scripted(stream()) as first, scripted(stream()) as second:
        first.models = models("a", "never sent here", "both")
        second.models = models("both", "b", "a")
        async with gateway(settings=two_pools(first.url, second.url)) as server:
            assert await listed(server.url) == ["a", "both", "b"]
            await odd_lists(second, server.url)
        async with gateway(settings=two_pools(NOWHERE, second.url)) as server:
            second.models = models("both", "b", "a")
            assert await listed(server.url) == ["both", "b"]
        async with gateway(settings=two_pools(NOWHERE, NOWHERE)) as server:
            with pytest.raises(openai.InternalServerError) as caught:
                await listed(server.url)
            assert caught.value.code == "upstream_unreachable"


async def odd_lists(upstream: ScriptedUpstream, url: str) -> None:
    """A list that is none adds nothing and breaks nothing."""
    for odd in (b"{}", b"[]", b"nonsense", b'{"data": {"id": "b"}}', b'{"data": [7, {"id": 7}]}'):
        upstream.models = odd
        assert await listed(url) == ["a"]
