"""Ask GitHub to redeliver the webhooks that did not arrive.

`paddock.domain.github.redelivery` decides what to ask for; this module reads GitHub's list of
deliveries and stores the cursor. All deliveries before the cursor are settled. Those read since and not
settled are kept in memory: one delivery that keeps failing holds the cursor for days, and reading all
those days again every minute would spend the App's quota. Losing the memory costs one long read. Two
replicas doing this at once cost a few redeliveries, which are recognised by their GUID (I6).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import structlog
from prometheus_client import Counter, Gauge

from paddock.dispatch.installations import RegisteredApp
from paddock.domain.github.errors import GitHubError, Kind
from paddock.domain.github.objects import AppKey, DeliveryId, DeliveryRecord
from paddock.domain.github.redelivery import OVERLAP, Asked, RedeliveryPlan, look_back, plan
from paddock.github.budget import Budget
from paddock.ports import Clock, GitHub
from paddock.ports.deliveries import RedeliveryStore

_log = structlog.get_logger()

#: The longest a failed delivery waits until the list is read.
EVERY: Final = 60.0
#: The two together make 4,200 requests in the worst hour, of the App's 5,000: the rest is enough to
#: refresh the tokens of hundreds of installations. Forty pages are 4,000 deliveries: one round reads
#: all deliveries of an App that gets twenty a second, overlap included.
PAGES: Final = 40
REDELIVERIES: Final = 30
#: The share of the App's own quota that is reserved for token requests.
RESERVE: Final = 0.1
#: Some 20 MB. With more unsettled deliveries than this, reading further back stops until some are
#: settled.
MOST_KEPT: Final = 50_000

REQUESTED = Counter(
    "paddock_redeliveries_requested_total",
    "Webhook deliveries that GitHub was asked to repeat.",
    ["app"],
)
GIVEN_UP = Counter(
    "paddock_deliveries_given_up_total",
    "Webhook deliveries that never arrived and that GitHub no longer repeats.",
    ["app"],
)
CURSOR_AGE = Gauge(
    "paddock_redelivery_cursor_age_seconds",
    "Age of the moment before which every webhook delivery has arrived or was given up. An App that"
    " gets no webhooks has a cursor as old as its last one.",
    ["app"],
)

# GitHub does not know this one delivery, or will not repeat it; other deliveries are not affected.
_REFUSED = frozenset({Kind.NOT_FOUND, Kind.NOT_FOUND_PROVEN, Kind.INVALID_REQUEST})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gap:
    """Where reading back stopped: deliveries from `since` on have been read; older ones begin at
    `page`."""

    page: str
    since: datetime


@dataclass(slots=True)
class _Reading:
    """The deliveries of one App's list that were read and are not settled."""

    attempts: dict[DeliveryId, DeliveryRecord] = field(default_factory=dict)
    asked: dict[str, Asked] = field(default_factory=dict)
    given_up: frozenset[str] = frozenset()
    #: The newest attempt read so far: the next read begins at the list's new end and must reach it.
    newest: datetime | None = None
    gap: _Gap | None = None

    def add(self, deliveries: Iterable[DeliveryRecord]) -> None:
        self.attempts |= {delivery.id: delivery for delivery in deliveries}

    @property
    def guids(self) -> list[str]:
        return sorted({each.guid for each in self.attempts.values()})

    def keep(self, guids: frozenset[str]) -> None:
        self.attempts = {each.id: each for each in self.attempts.values() if each.guid in guids}
        self.asked = {guid: asked for guid, asked in self.asked.items() if guid in guids}

    def start_over(self) -> None:
        self.newest = self.gap = None


class Redelivery:
    def __init__(
        self,
        *,
        store: RedeliveryStore,
        github: GitHub,
        budget: Budget,
        clock: Clock,
        apps: Sequence[RegisteredApp],
    ) -> None:
        self._store = store
        self._github = github
        self._budget = budget
        self._clock = clock
        self._apps = apps
        self._readings = {app.app: _Reading() for app in apps}
        self._failing: set[AppKey] = set()
        for app in apps:
            GIVEN_UP.labels(str(app.key))  # begins at zero, so that the first loss is an increase

    async def run(self) -> None:
        while True:
            await self.round()
            await self._clock.sleep(EVERY)

    async def round(self) -> None:
        """Every App once; a failure of one App does not affect the others."""
        for app in self._apps:
            try:
                await self._round(app)
            except GitHubError as error:
                if app.key not in self._failing:
                    _log.warning(
                        "redelivery.failed",
                        app=str(app.key),
                        error=error.failure.sentence,
                    )
                self._failing.add(app.key)
            else:
                self._failing.discard(app.key)

    async def _round(self, app: RegisteredApp) -> None:
        cursor = await self._store.hook_cursor(app.app)
        self._show_age(app.key, cursor)
        if (await self._budget.quotas_left(app.key)).get(None, 1.0) < RESERVE:
            return
        reading = self._readings[app.app]
        await self._read(app.key, reading, look_back(cursor))
        decided = plan(
            reading.attempts.values(),
            arrived=await self._store.known_guids(app.host, reading.guids),
            asked=reading.asked,
            cursor=cursor,
            seen_since=reading.gap.since if reading.gap else look_back(cursor),
            now=self._clock.now(),
            most=REDELIVERIES,
        )
        await self._store.move_hook_cursor(app.app, decided.cursor)
        self._show_age(app.key, decided.cursor)
        self._report_given_up(app.key, reading, decided)
        reading.keep(decided.keep)
        for delivery in decided.ask:
            await self._ask(app.key, reading, delivery)

    async def _read(self, app: AppKey, reading: _Reading, since: datetime) -> None:
        met = reading.newest
        gap, pages = await self._read_back(
            app, reading, None, since if met is None else met - OVERLAP, PAGES
        )
        # If this read reached what was read before, there is no new gap, even if the overlap is short.
        # If not, the older gap is replaced and what lies below is read again: a single gap is simple to
        # get right, two are not.
        if gap is not None and (met is None or gap.since >= met):
            reading.gap = gap
        reading.newest = max((each.delivered_at for each in reading.attempts.values()), default=met)
        if reading.gap is None or not pages or len(reading.attempts) > MOST_KEPT:
            return
        try:
            reading.gap, _ = await self._read_back(app, reading, reading.gap.page, since, pages)
        except GitHubError as error:
            if error.failure.kind is Kind.INVALID_REQUEST:  # GitHub no longer knows the page
                reading.start_over()
            raise

    async def _read_back(
        self, app: AppKey, reading: _Reading, page: str | None, until: datetime, pages: int
    ) -> tuple[_Gap | None, int]:
        """Read towards the past until everything listed since `until` is read. If this round's pages
        run out first, return the gap."""
        while pages:
            found = await self._github.list_deliveries(app, cursor=page)
            reading.add(found.deliveries)
            pages -= 1
            oldest = min((each.delivered_at for each in found.deliveries), default=until)
            if found.next is None or oldest < until:
                return None, pages
            page = found.next
            if not pages:
                return _Gap(page=page, since=oldest), 0
        raise AssertionError("reading begins with a page to read")

    async def _ask(self, app: AppKey, reading: _Reading, delivery: DeliveryRecord) -> None:
        try:
            await self._github.redeliver(app, delivery.id)
        except GitHubError as error:
            kind = error.failure.kind
            if kind in _REFUSED or kind is Kind.OUTCOME_UNKNOWN:
                self._remember(reading, delivery.guid)
            if kind not in _REFUSED:
                raise
        else:
            self._remember(reading, delivery.guid)
            REQUESTED.labels(str(app)).inc()

    def _remember(self, reading: _Reading, guid: str) -> None:
        before = reading.asked.get(guid)
        reading.asked[guid] = Asked(times=before.times + 1 if before else 1, last=self._clock.now())

    def _report_given_up(self, app: AppKey, reading: _Reading, decided: RedeliveryPlan) -> None:
        lost = decided.given_up - reading.given_up
        reading.given_up = decided.given_up
        if lost:
            GIVEN_UP.labels(str(app)).inc(len(lost))
            _log.warning("redelivery.given_up", app=str(app), count=len(lost))

    def _show_age(self, app: AppKey, cursor: datetime) -> None:
        CURSOR_AGE.labels(str(app)).set((self._clock.now() - cursor).total_seconds())
