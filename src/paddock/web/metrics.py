"""The metrics for Prometheus.

Counters and times live in the process that counted. Levels (how many wait, since when, what is left)
are read from the rows at each scrape, so that a leak cannot hide its own metric, and the series of a
deleted pool disappear with it (I61). Every replica reports the same levels: take the `max`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import structlog
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from paddock.dispatch.minting import MINTED, MINTS, TOO_LATE
from paddock.domain.github.errors import Kind
from paddock.domain.reading.overview import Levels
from paddock.domain.recovery.records import ActionOutcome
from paddock.domain.recovery.table import RULES
from paddock.domain.runners.endings import Ending
from paddock.domain.states import RunnerState
from paddock.forensics.conclusion import ENDINGS
from paddock.listener import HANDSHAKE_FAILURES
from paddock.ports import Clock
from paddock.ports.errors import StoreError
from paddock.ports.reading import Reading
from paddock.recovery.act import ACTIONS
from paddock.recovery.stamping import STAMPS

_log = structlog.get_logger()

#: More frequent requests get the last answer: strangers must not keep the database busy.
REMEMBERED: Final = 5.0
#: Prometheus gives up after ten seconds; this process's counters must reach it even without levels.
READ_TIMEOUT: Final = 5.0


class Metrics:
    def __init__(self, reading: Reading, clock: Clock) -> None:
        self._reading = reading
        self._clock = clock
        self._lock = asyncio.Lock()
        self._read_at = float("-inf")
        self._levels: bytes = b""
        _begin_at_zero()

    async def respond(self, _: Request) -> Response:
        # In this order: while the database does not answer, thousands of requests may wait here, and
        # must not keep an answer each.
        levels = await self._current()
        return Response(generate_latest() + levels, headers={"content-type": CONTENT_TYPE_LATEST})

    async def _current(self) -> bytes:
        async with self._lock:
            if self._clock.monotonic() - self._read_at > REMEMBERED:
                self._levels = await self._read()
                self._read_at = self._clock.monotonic()
            return self._levels

    async def _read(self) -> bytes:
        """Levels that cannot be read are absent: alerts notice a missing level, but not an old one."""
        try:
            async with asyncio.timeout(READ_TIMEOUT):
                levels = await self._reading.levels()
        except (TimeoutError, StoreError) as error:
            _log.warning("metrics.unreadable", error=str(error) or "no answer")
            return b""
        registry = CollectorRegistry(auto_describe=False)
        now = self._clock.now().timestamp()
        registry.register(_Fixed([level.family(levels, now) for level in LEVELS]))
        return generate_latest(registry)


def _begin_at_zero() -> None:
    """Create each series at zero: Prometheus sees no increase in a series that begins above zero, so
    the first deaths of a kind would raise no alarm."""
    for ending in Ending:
        ENDINGS.labels(ending)
    for outcome in (MINTED, TOO_LATE, *Kind):
        MINTS.labels(outcome)
    for rule in RULES:
        ACTIONS.labels(rule.name, rule.action, ActionOutcome.DONE)
    STAMPS.labels("failed")
    HANDSHAKE_FAILURES.labels("certificate")


class _Fixed(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


@dataclass(frozen=True, slots=True)
class Level:
    """A gauge that is read from rows: its name, its meaning, and its labels."""

    name: str
    meaning: str
    labels: tuple[str, ...]
    read: Callable[[Levels, float], Iterator[tuple[Sequence[str], float | None]]]

    def family(self, levels: Levels, now: float) -> Metric:
        gauge = GaugeMetricFamily(self.name, self.meaning, labels=list(self.labels))
        for labels, value in self.read(levels, now):
            if value is not None:
                gauge.add_metric(labels, value)
        return gauge


def _age(since: datetime, now: float) -> float:
    return max(0.0, now - since.timestamp())


LEVELS: Final = (
    Level(
        "paddock_queued_jobs",
        "Jobs that wait for a runner.",
        ("pool", "account"),
        lambda levels, _: (((q.pool, q.account), q.jobs) for q in levels.queues),
    ),
    Level(
        "paddock_oldest_queued_seconds",
        "For how long the oldest job has waited.",
        ("pool", "account"),
        lambda levels, now: (((q.pool, q.account), _age(q.oldest_at, now)) for q in levels.queues),
    ),
    Level(
        "paddock_runners",
        "Runners that are not gone.",
        ("pool", "state"),
        lambda levels, _: (
            ((pool.name, state), pool.runners.get(state, 0))
            for pool in levels.pools
            for state in RunnerState
            if state is not RunnerState.GONE
        ),
    ),
    Level(
        "paddock_pool_target_runners",
        "How many runners a pool should have, as last decided.",
        ("pool",),
        lambda levels, _: (
            ((p.name,), p.decision.target if p.decision else None) for p in levels.pools
        ),
    ),
    Level(
        "paddock_pool_max_runners",
        "How many runners a pool may have; absent where it says nothing.",
        ("pool",),
        lambda levels, _: (((p.name,), p.max_runners) for p in levels.pools),
    ),
    Level(
        "paddock_suspect_runners",
        "Runners whose container runs and that GitHub calls offline.",
        ("pool",),
        lambda levels, _: (((p.name,), levels.suspects.get(p.name, 0)) for p in levels.pools),
    ),
    Level(
        "paddock_host_fault_seconds",
        "For how long a host has called itself unfit for runners; absent where none does.",
        ("host", "reason"),
        lambda levels, now: (((f.host, f.reason), _age(f.since, now)) for f in levels.unfit_hosts),
    ),
    Level(
        "paddock_runner_version_end_timestamp_seconds",
        "When GitHub stops accepting the runner version of a pool's newest Pods; absent if not known.",
        ("pool", "version"),
        lambda levels, _: (
            ((v.pool, v.version), v.ends_at.timestamp())
            for v in levels.runner_versions
            if v.ends_at is not None
        ),
    ),
    Level(
        "paddock_runner_version_refused",
        "1 if nothing is minted for a pool's newest Pods because GitHub refuses their runner version.",
        ("pool", "version"),
        lambda levels, now: (
            ((v.pool, v.version), float(v.is_refused(datetime.fromtimestamp(now, UTC))))
            for v in levels.runner_versions
        ),
    ),
    Level(
        "paddock_limit_bypassing_jobs",
        "Jobs of a repository with limits on runners that its limits cannot refuse: foreign ones, or "
        "its organisation's.",
        ("account", "repository", "runner"),
        lambda levels, _: (
            ((b.account, b.repository, b.runner), b.jobs) for b in levels.limit_bypasses
        ),
    ),
    Level(
        "paddock_github_budget_left_ratio",
        "What is left of a budget towards GitHub, of 1, to the installation that has the least.",
        ("app", "bucket"),
        lambda levels, _: (((str(b.app), b.bucket), b.left) for b in levels.budgets),
    ),
    Level(
        "paddock_github_debts",
        "Runner records at GitHub that may have to be removed.",
        (),
        lambda levels, _: iter([((), levels.debts)]),
    ),
    Level(
        "paddock_dead_deliveries",
        "Webhook deliveries that could not be applied and were set aside.",
        (),
        lambda levels, _: iter([((), levels.dead_deliveries)]),
    ),
    Level(
        "paddock_oldest_pending_delivery_seconds",
        "For how long the oldest stored webhook delivery has waited to be applied.",
        (),
        lambda levels, now: iter(
            [((), _age(levels.oldest_pending_at, now) if levels.oldest_pending_at else 0.0)]
        ),
    ),
)
