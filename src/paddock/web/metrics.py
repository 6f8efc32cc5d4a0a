"""What Prometheus is told.

Counters and times live in the process that counted. Levels (how many wait, since when, what is left)
are read from the rows when somebody asks, so that a leak cannot hide its own metric and the series of
a deleted pool disappear with it (I61). Every replica tells the same levels: take the `max`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final

import structlog
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from paddock.domain.levels import Levels
from paddock.ports import Clock, Store
from paddock.store.errors import StoreError

_log = structlog.get_logger()

#: Whoever asks more often gets the last answer: the database is not for strangers to keep busy.
REMEMBERED: Final = 5.0
#: Prometheus gives up after ten seconds; the counters of this process must reach it all the same.
READ_TIMEOUT: Final = 5.0


class Metrics:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._lock = asyncio.Lock()
        self._read_at = float("-inf")
        self._levels: bytes = b""

    async def respond(self, _: Request) -> Response:
        return Response(
            generate_latest() + await self._current(), headers={"content-type": CONTENT_TYPE_LATEST}
        )

    async def _current(self) -> bytes:
        async with self._lock:
            if self._clock.monotonic() - self._read_at > REMEMBERED:
                self._levels = await self._read()
                self._read_at = self._clock.monotonic()
            return self._levels

    async def _read(self) -> bytes:
        """Levels that cannot be read are absent: alerts notice that, and nobody believes an old one."""
        try:
            async with asyncio.timeout(READ_TIMEOUT):
                levels = await self._store.levels()
        except (TimeoutError, StoreError) as error:
            _log.warning("levels could not be read for metrics", error=str(error) or "no answer")
            return b""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Fixed(list(_families(levels, self._clock.now().timestamp()))))
        return generate_latest(registry)


class _Fixed(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _families(levels: Levels, now: float) -> Iterator[Metric]:
    queued = GaugeMetricFamily(
        "paddock_queued_jobs", "Jobs that wait for a runner.", labels=["pool", "account"]
    )
    oldest = GaugeMetricFamily(
        "paddock_oldest_queued_seconds",
        "For how long the oldest job has waited.",
        labels=["pool", "account"],
    )
    for queue in levels.queues:
        queued.add_metric([queue.pool, queue.account], queue.jobs)
        age = max(0.0, now - queue.oldest_at.timestamp())
        oldest.add_metric([queue.pool, queue.account], age)
    runners = GaugeMetricFamily(
        "paddock_runners", "Runners that are not gone.", labels=["pool", "state"]
    )
    for crew in levels.crews:
        runners.add_metric([crew.pool, crew.state], crew.runners)
    left = GaugeMetricFamily(
        "paddock_github_budget_left_ratio",
        "What is left of a budget towards GitHub, of 1.",
        labels=["app", "bucket"],
    )
    for budget in levels.budgets:
        left.add_metric([str(budget.app), budget.bucket], budget.tokens / budget.capacity)
    yield from (queued, oldest, runners, left)
    yield GaugeMetricFamily(
        "paddock_github_debts",
        "Runner records at GitHub that may have to be removed.",
        value=levels.debts,
    )
    yield GaugeMetricFamily(
        "paddock_dead_deliveries",
        "Webhook deliveries that could not be applied and were set aside.",
        value=levels.dead_deliveries,
    )
