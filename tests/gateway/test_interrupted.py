"""A running request gives way to an urgent one: put back unseen, or told; nothing leaks."""

from __future__ import annotations

import asyncio
import dataclasses
import json

import pytest

from tests.gateway.test_exchange_cancel import EVENT, STOPS, Bench, ended
from tokenweir.core.admitter_config import AdmitterConfig
from tokenweir.core.classes import CLASSES, Interruptible
from tokenweir.core.decision import Reject
from tokenweir.core.ledger import LedgerConfig
from tokenweir.core.queues import QueueLimits
from tokenweir.core.request import Outcome, Priority, Request, Usage
from tokenweir.driver.flight import Flight
from tokenweir.driver.pool import PoolDriver

P0, P2 = Priority.P0, Priority.P2
# More turns of the loop than the batch request needs.
TURNS = 30
BOTH = [Interruptible.BEFORE_FIRST_BYTE, Interruptible.ALWAYS]


class BatchDriver(PoolDriver):
    """Takes what comes over HTTP for batch work."""

    async def admit(self, request: Request) -> Flight | Reject:
        """Ask for admission, as P2 unless it is urgent."""
        if request.priority is not P0:
            request = dataclasses.replace(request, priority=P2)
        return await super().admit(request)


def bench(kind: str, interruptible: Interruptible, *, items_max: int = 10) -> Bench:
    """A gateway with one seat, in which nobody is in time who has to wait for another's end."""
    classes = dict(CLASSES)
    classes[P2] = dataclasses.replace(classes[P2], interruptible=interruptible)
    config = AdmitterConfig(
        queue=QueueLimits(items_max=items_max, classes=classes),
        ledger=LedgerConfig(abort_time_ns=0),
        rate_hint_tokens_per_s=100.0,
    )
    return Bench(kind, config=config, in_flight_max=1, driver=BatchDriver)


async def urgent_flight(bench: Bench) -> Flight | Reject:
    """Ask for the seat as somebody urgent."""
    return await bench.driver.admit(Request("urgent", 10, 10, priority=P0))


def has_ended(bench: Bench) -> bool:
    """Whether the batch request's client has its whole answer."""
    return bool(bench.sent) and bench.sent[-1] == {"type": "http.response.body", "body": b""}


@pytest.mark.parametrize("kind", ["stream", "plain"])
@pytest.mark.parametrize("interruptible", BOTH)
async def test_batch_when_interrupted_at_any_await_then_answered_whole_or_told(
    kind: str, interruptible: Interruptible
) -> None:
    """Before the first byte its client sees nothing but time; after it, a reason and a time."""
    fates = set()
    for turns in range(TURNS):
        built = bench(kind, interruptible)
        task = asyncio.create_task(built.run())
        for _ in range(turns):
            await asyncio.sleep(0)
        asking = asyncio.create_task(urgent_flight(built))
        await asyncio.sleep(0)
        if built.driver.snapshot().queued:
            # It was put back, or had not entered yet: the urgent one runs first.
            fates.add("put back")
        urgent = await asking
        if isinstance(urgent, Flight):
            assert built.driver.open_count() <= 1, "one seat"
            urgent.settle(Usage(10, 10), outcome=Outcome.FINISHED)
        async with asyncio.timeout(5):
            await ended(task)
        if has_ended(built):
            fates.add("whole")
            assert built.sent[0]["status"] == 200
        else:
            # Only what may be broken was, and only a stream.
            assert interruptible is Interruptible.ALWAYS
            assert kind == "stream"
            assert isinstance(urgent, Flight)
            fates.add("told")
            last = built.sent[-1]["body"].decode()
            assert last.lstrip().startswith("event: error")
            error = json.loads(last.split("data: ", 1)[1])["error"]
            assert error["code"] == "interrupted"
            assert error["tokenweir"]["retry_after"] > 0
        built.check_empty()
    told = {"told"} if interruptible is Interruptible.ALWAYS and kind == "stream" else set()
    assert fates == {"put back", "whole"} | told


@pytest.mark.parametrize("stop", STOPS, ids=lambda stop: stop.replace(" ", "-"))
@pytest.mark.parametrize("interruptible", BOTH)
@pytest.mark.parametrize("later", [0, 1, 3])
async def test_batch_when_stopped_as_it_is_interrupted_then_nothing_is_held(
    stop: str, interruptible: Interruptible, later: int
) -> None:
    """In the same turn of the loop, or while it waits again, whoever stops it."""
    for turns in range(TURNS):
        built = bench("stream", interruptible)
        task = asyncio.create_task(built.run())
        for _ in range(turns):
            await asyncio.sleep(0)
        asking = asyncio.create_task(urgent_flight(built))
        await asyncio.sleep(0)
        for _ in range(later):
            await asyncio.sleep(0)
        STOPS[stop](built, task)
        built.left.set()
        await ended(task)
        urgent = await asking
        if isinstance(urgent, Flight):
            urgent.settle(Usage(10, 10), outcome=Outcome.FINISHED)
        built.check_empty()


async def test_batch_when_there_is_no_place_to_go_back_to_then_told_before_its_first_byte() -> None:
    """An ordinary refusal with a time, since nothing has been sent."""
    seen = set()
    for turns in range(TURNS):
        built = bench("stream", Interruptible.BEFORE_FIRST_BYTE, items_max=1)
        task = asyncio.create_task(built.run())
        for _ in range(turns):
            await asyncio.sleep(0)
        urgent = await urgent_flight(built)
        if isinstance(urgent, Flight):
            urgent.settle(Usage(10, 10), outcome=Outcome.FINISHED)
        await ended(task)
        status = built.sent[0]["status"]
        seen.add(status)
        if status != 200:
            error = json.loads(built.sent[1]["body"])["error"]
            assert (status, error["code"]) == (429, "interrupted")
            names = dict(built.sent[0]["headers"])
            assert int(names[b"retry-after"]) >= 1
        built.check_empty()
    assert seen == {200, 429}


async def test_batch_when_put_back_then_sent_again_and_the_first_upstream_is_cut() -> None:
    """The engine is told to stop at once, by the closed connection."""
    built = bench("stream", Interruptible.BEFORE_FIRST_BYTE)
    task = asyncio.create_task(built.run())
    for _ in range(TURNS):
        if built.upstream.responses:
            break
        await asyncio.sleep(0)
    urgent = await urgent_flight(built)
    assert isinstance(urgent, Flight)
    await asyncio.sleep(0)
    assert [response.is_closed for response in built.upstream.responses] == [True]
    assert built.driver.snapshot().queued == 1
    urgent.settle(Usage(10, 10), outcome=Outcome.FINISHED)
    await ended(task)
    assert len(built.upstream.responses) == 2
    assert b"".join(m.get("body", b"") for m in built.sent).count(EVENT.strip()) == 2
    assert built.core.counts["put_back"] == 1
    built.check_empty()
