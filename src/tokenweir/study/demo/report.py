"""What does the demo say in the end? The difference, whether it can be believed, what next."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from tokenweir.core.units import NS_PER_S
from tokenweir.study.cpu import CPU_FRACTION_MAX
from tokenweir.study.demo.setup import DemoSetup
from tokenweir.study.load.report import figure

__all__ = ["GOODPUT_RATIO_MIN", "demo_table", "next_steps", "preface", "verdict"]

# What the demo claims.
GOODPUT_RATIO_MIN = 5.0

# (name in the JSON output, what it is called, kind of figure)
_LINES: tuple[tuple[str, str, str], ...] = (
    ("goodput_unique", "goodput, unique requests", "share"),
    ("goodput_first_arrival", "  TTFT from the first arrival", "share"),
    ("goodput_per_attempt", "goodput, attempts", "share"),
    ("goodput_tokens", "goodput, tokens", "share"),
    ("ttft_p50_s", "TTFT p50, completed", "seconds"),
    ("ttft_p99_s", "TTFT p99, completed", "seconds"),
    ("ttft_p50_all_s", "TTFT p50, all unique", "seconds"),
    ("tpot_p99_s", "TPOT p99", "seconds"),
    ("unique", "unique requests", "count"),
    ("arrivals", "attempts", "count"),
    ("completed", "completed", "count"),
    ("refused", "refused", "count"),
    ("abandoned", "given up by the client", "count"),
    ("errors", "errors", "count"),
    ("unserved", "open when the run was cut", "count"),
    ("tokens_per_s", "tokens/s received", "rate"),
    ("preemptions", "preemptions", "count"),
    ("kv_max_fraction", "KV pool, peak", "share"),
    ("engine_waiting_max", "line inside the engine, peak", "count"),
)


def preface(setup: DemoSetup, *, capacity_rps: float, rate_rps: float) -> str:
    """Return what is about to be run, so that the figures can be judged."""
    engine = setup.profile
    return (
        f"engine     emulated, profile {engine.name}, FIFO: {engine.tokens_per_s:,.0f} tokens/s, "
        f"{engine.kv_tokens:,} KV tokens\n"
        f"load       {setup.trace} from minute {setup.skip_s / 60:g}, lengths scaled down to "
        f"{setup.length_ratio:g} of the trace's, declared maxima {setup.declaration!r}\n"
        f"rate       {rate_rps:.1f} requests/s = {setup.load:g} x capacity "
        f"({capacity_rps:.1f} requests/s = 1 / mean engine seconds per request)\n"
        f"clients    give up after {setup.timeout_s:g} s without a byte, retry "
        f"{setup.retries} times, as the common SDKs do\n"
        f"admission  policy {setup.policy}, queue {setup.queue_items}; SLO: TTFT "
        f"{setup.slo.ttft_ns / NS_PER_S:g} s, TPOT {setup.slo.tpot_ns / NS_PER_S:g} s\n"
        f"each side  {setup.seconds:g} s of arrivals, cut {setup.drain_s:g} s after the last one"
    )


def demo_table(document: dict[str, Any]) -> Table:
    """Return the table of the sides that have run."""
    table = Table(title="three processes a side: engine, gateway, load", title_justify="left")
    table.add_column("")
    names = [name for name in ("without", "with") if name in document]
    for name in names:
        table.add_column(f"{name} admission", justify="right")
    for key, label, kind in _LINES:
        table.add_row(label, *(figure(document[name][key], kind) for name in names))
    for process in ("engine", "gateway", "load"):
        shares = (document[name]["cpu_fractions"].get(process) for name in names)
        table.add_row(f"CPU of {process}, of one core", *(figure(s, "share") for s in shares))
    return table


def verdict(document: dict[str, Any], setup: DemoSetup) -> list[str]:
    """Return what the run showed and whether it counts, one line each."""
    lines = [
        f"VOID: a process of the side {name!r} used over {CPU_FRACTION_MAX:.0%} of a core"
        for name in ("without", "with")
        if name in document and document[name]["is_void"]
    ]
    if "with" not in document or "without" not in document:
        return [*lines, "interrupted: only what had been sent until then"]
    ours, bare = document["with"], document["without"]
    if not (ours["is_complete"] and bare["is_complete"]):
        lines.append("interrupted: the figures cover what was sent until then")
    slo_s = setup.slo.ttft_ns / NS_PER_S
    p99_s = ours["ttft_p99_s"]
    lines.append(_ratio_line(ours["goodput_unique"], bare["goodput_unique"]))
    if p99_s is not None:
        word = "within" if p99_s <= slo_s else "NOT within"
        lines.append(f"TTFT p99 of completed requests {p99_s:.3f} s, {word} the SLO of {slo_s:g} s")
    after = document["ledger_after"]
    lines.append(f"ledger after the run: {after} tokens reserved or draining")
    return lines


def next_steps() -> str:
    """Return how to go on by hand."""
    body = (
        '{"model":"emulated","messages":[{"role":"user","content":"hello"}],'
        '"max_tokens":32,"stream":true}'
    )
    return (
        "The demo's servers have stopped. Try it by hand:\n"
        "  tokenweir serve --port 8080\n"
        "  curl -N http://127.0.0.1:8080/v1/chat/completions "
        f"-H 'content-type: application/json' -d '{body}'\n"
        "In front of a real engine:\n"
        "  tokenweir serve --upstream http://your-vllm:8000"
    )


def _ratio_line(ours: float, bare: float) -> str:
    if bare <= 0:
        return f"goodput with admission {ours:.3f}, without none at all"
    return (
        f"goodput with admission {ours / bare:.1f} x that without "
        f"(claimed: {GOODPUT_RATIO_MIN:g} x or more)"
    )
