"""What of a gateway's settings file does a simulated pool run?

Rule: all that a gateway makes its admitter of, by the same functions: policy, queue, classes,
orders, tenants and how returns are paced; and what it makes of a request that asks for nothing: its
tenant's class, longest wait and length mode. A tenant of the trace whose name is not in the file is
``default``, as a caller without a key of its own is. Engines are as many as the pool has replicas,
and as fast as its profile says.
What needs a socket has no meaning here: listeners, routes, time limits, keys; and so have
``observe`` and ``bypass``, under which a gateway does not act on what its policy says.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from tokenweir.core.errors import ConfigError
from tokenweir.core.profile import EngineProfile
from tokenweir.core.queues import QueueLimits
from tokenweir.settings.compose import admitter_config, check_relations, pool_policy, pool_profile
from tokenweir.settings.loading import load_settings
from tokenweir.settings.model import PoolSettings, Settings
from tokenweir.settings.tenants import DEFAULT_TENANT, TenantSettings, classes_of
from tokenweir.sim.terms import Terms, TermsByTenant
from tokenweir.study.experiment import Experiment

__all__ = ["OPTIONS", "read_pool", "with_pool"]

# Options of a run that a file answers too; one that is given goes before the file.
OPTIONS = (
    *("policy", "profile", "replicas", "fairness", "ordering"),
    *("wait", "wait_items", "slo_ttft"),
)


def read_pool(path: Path, *, name: str | None) -> tuple[Settings, PoolSettings]:
    """Read a settings file, and find the pool that is simulated.

    Keys are not looked for: where the file is tried out they need not be.

    Args:
        path: The file.
        name: Of the pool, None for the only one.

    Raises:
        ConfigError: The file is wrong, or has no such pool; one line each, with its path.
    """
    settings = load_settings(path)
    check_relations(settings, source=str(path), reads_secrets=False)
    names = [pool.name for pool in settings.pools]
    if name is None and len(names) > 1:
        raise ConfigError(f"--pool is missing, pools of {path}: {', '.join(names)}")
    if name is not None and name not in names:
        raise ConfigError(f"--pool {name!r} is not allowed, pools of {path}: {', '.join(names)}")
    return settings, settings.pools[0 if name is None else names.index(name)]


def with_pool(
    experiment: Experiment, pool: PoolSettings, *, settings: Settings, given: Collection[str]
) -> Experiment:
    """Return an experiment that runs a pool of a settings file.

    Args:
        experiment: As the options say; its policy is replaced.
        pool: Of ``settings``.
        settings: Checked by ``read_pool``.
        given: Those of ``OPTIONS`` that were given, which the file does not replace.

    Raises:
        ConfigError: It is not said how fast the engines are, or they are not all alike.
    """
    config = admitter_config(pool, tenants=settings.tenants)
    policy = pool_policy(pool)
    slo_ns, slo = pool.first_token_slo, experiment.slo
    if slo_ns is not None and "slo_ttft" not in given:
        slo = replace(slo, ttft_ns=slo_ns)
    return replace(
        experiment,
        policy=pool.policy,
        capacity=policy.capacity if pool.concurrency is not None else None,
        length_mode=pool.length_mode,
        queue=_queue(experiment, config.queue, given=given),
        fairness=experiment.fairness if "fairness" in given else config.fairness,
        ordering=experiment.ordering if "ordering" in given else config.ordering,
        tenants=config.tenants,
        terms=_terms(settings.tenants),
        returns=config.returns,
        engine=_engine(experiment, pool, given=given),
        replicas=experiment.replicas if "replicas" in given else len(pool.replicas),
        tells_profile=pool.profile is not None,
        slo=slo,
    )


def _queue(experiment: Experiment, limits: QueueLimits, *, given: Collection[str]) -> QueueLimits:
    if "wait_items" in given:
        limits = replace(limits, items_max=experiment.queue.items_max)
    if "wait" in given:
        limits = replace(limits, wait_ns_max=experiment.queue.wait_ns_max)
    return limits


def _engine(experiment: Experiment, pool: PoolSettings, *, given: Collection[str]) -> EngineProfile:
    engine = experiment.engine if "profile" in given else pool_profile(pool)
    if engine is None:
        raise ConfigError(
            f"pool {pool.name!r} has no profile, so nobody knows how fast its engines are, "
            "allowed: --profile beside the file"
        )
    # Whose size its own metrics tell is taken to be like the others.
    sizes = {replica.kv_tokens for replica in pool.replicas if replica.kv_tokens is not None}
    if len(sizes) > 1:
        raise ConfigError(
            f"the replicas of pool {pool.name!r} differ in kv_tokens, allowed: the same for all, "
            "as simulated engines are all alike"
        )
    return replace(engine, kv_tokens=sizes.pop()) if sizes else engine


def _terms(tenants: Collection[TenantSettings]) -> TermsByTenant:
    named = {tenant.name: _terms_of(tenant) for tenant in tenants}
    return TermsByTenant(named, named.get(DEFAULT_TENANT, Terms(DEFAULT_TENANT)))


def _terms_of(tenant: TenantSettings) -> Terms:
    _, priority = classes_of(tenant)
    return Terms(tenant.name, priority, tenant.wait, tenant.length_mode)
