"""vLLM's page becomes signals, garbage becomes none, and silence becomes ill health."""

import asyncio
import functools
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenweir.adapters.vllm import VllmPage, VllmTelemetry, read_context, read_page
from tokenweir.core.signals import Signals
from tokenweir.core.units import ReplicaId
from tokenweir.ports.upstream import Headers, UpstreamBroken, UpstreamUnreachable

WIRE = Path(__file__).parents[1] / "fixtures" / "wire"
REPLICA = ReplicaId("one")

OLD_PAGE = """
# HELP vllm:gpu_cache_usage_perc GPU KV-cache usage. 1 means 100 percent usage.
vllm:gpu_cache_usage_perc{model_name="m"} 0.5
vllm:num_requests_running{model_name="m"} 3.0
vllm:num_requests_waiting{model_name="m"} 1.0
vllm:num_preemptions_total{model_name="m"} 2.0
vllm:cache_config_info{block_size="16",num_gpu_blocks="100",cache_dtype="auto"} 1.0
"""


class Page:
    """An answer of an upstream."""

    headers: Headers = ()

    def __init__(self, text: str, *, status: int = 200) -> None:
        self.status = status
        self._rest = text.encode()

    async def next_chunk(self) -> bytes:
        chunk, self._rest = self._rest[:4_096], self._rest[4_096:]
        return chunk

    def close(self) -> None:
        pass


class Engine:
    """An upstream that does what its scripts say, by path."""

    def __init__(self, **pages: Callable[[], Page]) -> None:
        self.pages = pages
        self.asked: list[str] = []

    async def send(self, method: str, target: str, *, headers: Headers, body: bytes | None) -> Page:
        self.asked.append(target)
        page = self.pages.get(target.removeprefix("/"))
        return page() if page is not None else Page("not found", status=404)


def telemetry(engine: Engine, *, kv_tokens: int | None = None) -> VllmTelemetry:
    """Telemetry with a clock that moves 10 ns at each look at it."""
    ticks = iter(range(100, 10_000, 10))
    return VllmTelemetry(
        REPLICA, engine, clock=lambda: next(ticks), kv_tokens=kv_tokens, timeout_ns=50_000_000
    )


def refused() -> Page:
    """What happens when nothing listens."""
    raise UpstreamUnreachable("refused")


def broken() -> Page:
    """What happens when the connection breaks."""
    raise UpstreamBroken("broken")


def test_page_when_recorded_under_overload_then_read_right() -> None:
    """The page of a real engine with 17 running and 120 waiting."""
    page = read_page((WIRE / "metrics_overloaded.txt").read_text(encoding="utf-8"))
    assert page.kv_tokens == 12_288
    assert page.used_fraction == pytest.approx(0.8947, abs=1e-4)
    assert (page.running, page.waiting, page.preemptions_total) == (17, 120, 15)


def test_page_when_of_an_old_version_then_read_by_the_old_names() -> None:
    """Blocks times block size, where the size in tokens is not told."""
    assert read_page(OLD_PAGE) == VllmPage(0.5, 1_600, 3, 1, 2)


def test_page_when_of_two_ranks_then_they_add_up() -> None:
    """Data parallel engines share a page."""
    text = "".join(
        f'vllm:kv_cache_usage_perc{{engine="{rank}"}} {used}\n'
        f'vllm:num_requests_running{{engine="{rank}"}} 2\n'
        f'vllm:cache_config_info{{engine="{rank}",kv_cache_size_tokens="1000"}} 1\n'
        for rank, used in enumerate((0.2, 0.6))
    )
    assert read_page(text) == VllmPage(0.4, 2_000, 4, None, None)


@given(st.text())
def test_page_when_garbage_then_nothing_breaks(text: str) -> None:
    """Any text is a page without signals."""
    read_page("vllm:num_requests_running" + text + "\n" + text)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "x", "", "1e999"])
def test_value_when_not_a_number_then_left_out(value: str) -> None:
    """Such a value is no count."""
    assert read_page(f"vllm:num_requests_running {value}\n").running is None


def size_page(tokens: object, *, used: object = 0.5) -> str:
    """A page that tells a size and how much of it is used."""
    return (
        f'vllm:cache_config_info{{kv_cache_size_tokens="{tokens}"}} 1\n'
        f"vllm:kv_cache_usage_perc {used}\nvllm:num_requests_running 3\n"
    )


def size_answer(tokens: int) -> Page:
    """The answer with such a page of a full engine."""
    return Page(size_page(tokens, used=1))


@pytest.mark.parametrize(
    "size", ["\u00b2", "\u0663", "9" * 30, "9" * 400, "9" * 5_000, "-5", "0", "1e3"]
)
def test_size_when_no_engine_has_it_then_left_out_and_the_rest_is_read(size: str) -> None:
    """One garbled label costs no more than itself."""
    assert read_page(size_page(size)) == VllmPage(0.5, None, 3, None, None)
    blocks = f'vllm:cache_config_info{{num_gpu_blocks="{size}",block_size="16"}} 1\n'
    assert read_page(blocks).kv_tokens is None


@pytest.mark.parametrize("used", ["5", "-1", "1e308", "NaN"])
def test_used_when_it_is_no_fraction_then_left_out(used: str) -> None:
    """What is read as full would refuse everybody."""
    assert read_page(size_page(1_000, used=used)) == VllmPage(None, 1_000, 3, None, None)


def test_counts_when_their_sum_overflows_then_left_out() -> None:
    """Two ranks that say nonsense do not break the look."""
    text = "".join(
        f"{name} 1e308\n" * 2
        for name in ("vllm:num_requests_running", "vllm:num_preemptions_total")
    )
    assert read_page(text) == VllmPage()


async def test_size_when_it_jumps_then_believed_after_three_looks_in_a_row() -> None:
    """One wrong page changes nothing, also not what is taken to be used; a new engine does."""
    engine = Engine()
    looker = telemetry(engine)
    seen = []
    for size in (1_000, 1_500, 1, 1_500, 1, 2, 1, 1, 1, 1_500, 1_500, 1_500):
        engine.pages["metrics"] = functools.partial(size_answer, size)
        signals = await looker.look()
        assert signals is not None
        seen.append((signals.kv_tokens, signals.kv_used_tokens))
    known = (1_500, 1_500)
    doubted = (1_500, None)
    assert seen == [
        (1_000, 1_000), known, doubted, known, doubted, doubted, doubted, doubted, (1, 1),
        (1, None), (1, None), known,
    ]  # fmt: skip


async def test_size_when_the_engine_was_away_then_the_new_one_is_believed_at_once() -> None:
    """It may have been started with another model."""
    engine = Engine(metrics=lambda: Page(size_page(1_000)))
    looker = telemetry(engine)
    await looker.look()
    engine.pages["metrics"] = refused
    await looker.look()
    engine.pages["metrics"] = lambda: Page(size_page(90_000))
    signals = await looker.look()
    assert signals is not None
    assert (signals.kv_tokens, signals.kv_used_tokens) == (90_000, 45_000)


async def test_size_when_not_repeated_then_it_is_stale() -> None:
    """What was told once is no reason to refuse for good later."""
    pages = [size_page(1), "", "", size_page(1), size_page(90_000)]
    engine = Engine(metrics=lambda: Page(pages.pop(0)))
    looker = telemetry(engine)
    fixed = telemetry(Engine(), kv_tokens=5)
    stale = [looker.is_size_stale()]
    for _ in range(5):
        await looker.look()
        await fixed.look()
        stale.append(looker.is_size_stale())
    assert stale == [False, False, False, True, False, True]
    assert not fixed.is_size_stale()


async def test_look_when_page_is_good_then_signals_carry_the_middle_of_the_request() -> None:
    """The page was true some time between question and answer."""
    signals = await telemetry(Engine(metrics=lambda: Page(OLD_PAGE))).look()
    assert signals == Signals(
        REPLICA,
        scraped_ns=105,
        kv_used_tokens=800,
        kv_tokens=1_600,
        running=3,
        waiting=1,
        preemptions_total=2,
    )


async def test_look_when_size_is_set_by_hand_then_it_holds() -> None:
    """The fraction stays one of the engine's own size."""
    signals = await telemetry(Engine(metrics=lambda: Page(OLD_PAGE)), kv_tokens=1_000).look()
    assert signals is not None
    assert (signals.kv_tokens, signals.kv_used_tokens) == (1_000, 800)


@pytest.mark.parametrize("page", [Page("<html>nothing here</html>"), Page("not found", status=404)])
async def test_look_when_there_is_nothing_of_vllm_then_healthy_without_signals(
    page: Page, caplog: pytest.LogCaptureFixture
) -> None:
    """A provider without such a page serves all the same and is never calibrated."""
    caplog.set_level(logging.WARNING)
    looker = telemetry(Engine(metrics=lambda: page))
    for _ in range(3):
        signals = await looker.look()
        assert signals is not None
        assert signals.is_healthy
        assert (signals.kv_used_tokens, signals.kv_tokens) == (None, None)
    assert len(caplog.records) <= 1


async def test_look_when_refused_then_unhealthy_at_once_and_back_with_the_first_page() -> None:
    """Nothing listens: nothing is sent there."""
    engine = Engine(metrics=refused)
    looker = telemetry(engine)
    signals = await looker.look()
    assert signals is not None
    assert not signals.is_healthy
    engine.pages["metrics"] = lambda: Page(OLD_PAGE)
    signals = await looker.look()
    assert signals is not None
    assert signals.is_healthy


async def test_look_when_silent_three_times_then_health_decides() -> None:
    """One slow page is no illness; an engine that answers nothing at all is ill."""
    engine = Engine(metrics=broken, health=lambda: Page(""))
    looker = telemetry(engine)
    assert await looker.look() is None
    assert await looker.look() is None
    signals = await looker.look()
    assert signals is not None
    assert signals.is_healthy
    engine.pages["health"] = broken
    signals = await looker.look()
    assert signals is not None
    assert not signals.is_healthy


async def test_look_when_the_engine_hangs_then_it_ends_in_time() -> None:
    """A hung engine does not hold up whoever looks at it."""

    class Hung(Engine):
        async def send(
            self, method: str, target: str, *, headers: Headers, body: bytes | None
        ) -> Page:
            await asyncio.Event().wait()
            raise AssertionError

    looker = telemetry(Hung())
    async with asyncio.timeout(5):
        looks = [await looker.look() for _ in range(3)]
    assert looks[:2] == [None, None]
    assert looks[2] is not None
    assert not looks[2].is_healthy


async def test_look_when_models_tell_their_context_then_the_smallest_is_known() -> None:
    """It is asked for at the first look and then once a minute, and again after an outage."""
    models = '{"data": [{"id": "a", "max_model_len": 8192}, {"id": "b", "max_model_len": 4096}]}'
    pages = {"metrics": lambda: Page(OLD_PAGE), "v1/models": lambda: Page(models)}
    engine = Engine(**pages)
    watching = telemetry(engine)
    assert watching.context_tokens is None
    for _ in range(20):
        await watching.look()
    assert watching.context_tokens == 4_096
    assert engine.asked.count("/v1/models") == 1
    engine.pages = {"metrics": refused}
    await watching.look()
    engine.pages = pages
    await watching.look()
    assert engine.asked.count("/v1/models") == 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"data": 3}',
        '{"data": [3]}',
        '{"data": [{"max_model_len": true}]}',
        "[" * 9,
    ],
)
def test_context_when_the_body_is_something_else_then_is_unknown(text: str) -> None:
    """A provider that tells no context leaves it unknown."""
    assert read_context(text) is None
