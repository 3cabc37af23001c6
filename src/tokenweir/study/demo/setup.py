"""What does the demo run, and why just that?

* Engine: the profile ``demo`` in FIFO. It is the article's engine for lengths of a quarter, so the
  trace's lengths are multiplied by 1/4 too; one request then takes as long as it did there.
* Load: the Azure conversation trace from minute 5 on, because the recording begins with a minute
  far below its mean rate, at three times the engine's capacity. Clients declare a mix of loose
  maxima, give up after 10 s without a byte, and retry twice, as the common SDKs do.
* Admission: the policy ``predictive``, which knows the engine's profile and the SLO: what could
  not have its first token in time is refused at once, the rest waits before the engine, not in it.
* Both sides see the same arrivals and texts, go through the same gateway program, and are cut the
  same time after their last arrival.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tokenweir.core.errors import ConfigError
from tokenweir.core.profile import EngineProfile
from tokenweir.core.units import NS_PER_MS, NS_PER_S, ns_from_s
from tokenweir.profiles import profile
from tokenweir.sim.results import Slo
from tokenweir.sim.traces import read_trace
from tokenweir.study.load.plan import LoadShape, rate_for_load

__all__ = ["DemoSetup", "Side", "gateway_config"]


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two runs: name in the output, policy, whether the gateway only forwards."""

    name: str
    policy: str
    is_bypass: bool


@dataclass(frozen=True, slots=True)
class DemoSetup:
    """Everything both sides share.

    Attributes:
        seconds: Arrivals of one side end then; at least 5.
        load: Mean rate as a multiple of the engine's capacity.
    """

    seconds: float = 45.0
    load: float = 3.0
    trace: str = "azure-conv"
    skip_s: float = 300.0
    length_ratio: float = 0.25
    declaration: str = "mix"
    timeout_s: float = 10.0
    retries: int = 2
    drain_s: float = 5.0
    profile_name: str = "demo"
    policy: str = "predictive"
    queue_items: int = 200
    slo: Slo = field(default_factory=Slo)
    seed: int = 1

    def __post_init__(self) -> None:
        """Check the range."""
        if not 5 <= self.seconds <= 600:
            raise ConfigError(f"seconds {self.seconds:g} is not allowed, allowed: 5 to 600")

    @property
    def profile(self) -> EngineProfile:
        """The engine's profile."""
        return profile(self.profile_name)

    @property
    def sides(self) -> tuple[Side, Side]:
        """Without admission first."""
        return Side("without", "none", is_bypass=True), Side("with", self.policy, is_bypass=False)

    def rates_rps(self) -> tuple[float, float]:
        """Return (capacity, rate sent), per second."""
        arrivals = read_trace(self.trace)
        shape = LoadShape(
            duration_ns=ns_from_s(self.seconds),
            skip_ns=ns_from_s(self.skip_s),
            length_ratio=self.length_ratio,
            declaration=self.declaration,
            seed=self.seed,
        )
        rate = rate_for_load(arrivals, shape, load=self.load, profile=self.profile)
        return rate / self.load, rate

    def load_arguments(self, url: str, *, rate_rps: float) -> list[str]:
        """Return the arguments of ``tokenweir load`` for one side."""
        return [
            *("load", self.trace, "--url", url, "--rate", f"{rate_rps:.6f}"),
            *("--duration", f"{self.seconds:g}s", "--skip", f"{self.skip_s:g}s"),
            *("--scale-tokens", f"{self.length_ratio:g}", "--output-max", self.declaration),
            *("--timeout", f"{self.timeout_s:g}s", "--retries", str(self.retries)),
            *("--slo-ttft", f"{self.slo.ttft_ns / NS_PER_S:g}s"),
            *("--slo-tpot", f"{self.slo.tpot_ns / NS_PER_S:g}s"),
            *("--drain", f"{self.drain_s:g}s", "--seed", str(self.seed), "--json"),
        ]


def gateway_config(
    path: Path, setup: DemoSetup, *, side: Side, engine_url: str, ports: tuple[int, int]
) -> None:
    """Write the gateway's settings file; ``ports`` are the main and the admin one."""
    settings = {
        "listen": {"host": "127.0.0.1", "port": ports[0]},
        "admin": {"listen": {"host": "127.0.0.1", "port": ports[1]}},
        "pools": [
            {
                "replicas": [
                    {"url": engine_url, "name": "engine", "kv_tokens": setup.profile.kv_tokens}
                ],
                "policy": side.policy,
                "profile": setup.profile_name,
                "queue": {"items": setup.queue_items},
                # Tighter than what is measured, for processes that share two cores.
                "first_token_slo": f"{setup.slo.ttft_ns * 7 // 10 // NS_PER_MS}ms",
            }
        ],
        "bypass": side.is_bypass,
    }
    path.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
