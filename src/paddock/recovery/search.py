"""One search at GitHub for all Pods whose names at GitHub no row knows (I81).

A Pod that no row knows, or whose row is older than it, may be registered all the same. A runner's name
is made from its Pod's name, so one list of the runners of a scope answers for every Pod at once. This
search lists every scope where a runner of ours may be registered, one page at a time, beside recovery's
rounds: they read its answers from memory and never wait for it.

    scopes      each organisation, and each repository that has a key. The App's own list of its
                installations tells whether the store knows them all. A removed installation is an
                answer: nothing can be asked there, ever again. A suspended one is none.
    a list      counts if all of its pages were read. A failed or partial list says nothing (I29), and
                its scope alone is asked again.
    presence    is believed from the newest list.
    absence     is believed if two lists of every scope, a minute apart, did not have the Pod. A list is
                not a snapshot: a record can slip from one page to another while they are read.

The answers are kept in memory. The next leader begins anew; until a Pod is answered it is protected.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import structlog
from prometheus_client import Counter

from paddock.dispatch.installations import RegisteredApp
from paddock.domain.github.budgets import TokenBucket
from paddock.domain.github.errors import GitHubError
from paddock.domain.github.objects import (
    Absent,
    AccountType,
    AppKey,
    InstallationKey,
    RunnerPage,
    RunnerRecord,
    Scope,
)
from paddock.domain.ids import KeyId
from paddock.domain.names import PodName, RunnerName, pod_of
from paddock.domain.pods.pod import Pod
from paddock.domain.recovery.records import FoundRecord, RunnerScope
from paddock.domain.recovery.stale_claim import MINT_SETTLED
from paddock.ports import Clock, GitHub
from paddock.ports.recovery import RunnerSearchStore

_log = structlog.get_logger()

#: A Pod's absence is believed after this many lists of each scope in a row without it.
_TIMES: Final = 2
#: Between two lists of one scope. A mint that was under way when a Pod lost its row is settled by the
#: second list.
APART: Final = MINT_SETTLED
#: A record that was found is looked at again after this: its runner may have finished its job.
GOOD_FOR: Final = timedelta(minutes=10)
#: A Pod is searched for until recovery has not asked about it for this long. Recovery asks twice a
#: minute.
_WANTED_FOR: Final = timedelta(minutes=5)
#: Requests for one installation. A burst lists 10,000 runners; a burst and an hour's refill are 1,900
#: requests, less than half of the smallest hourly quota, which is 5,000.
_BURST: Final = 100
_PER_MINUTE: Final = 30
#: Installations of one App that are asked for the first time: each needs a token, of which the client
#: gets 120 a minute. The other half is for mints.
_NEW_BURST: Final = 30
_NEW_PER_MINUTE: Final = 60
#: A token lasts for an hour.
_TOKEN_LASTS: Final = timedelta(minutes=50)
#: Lists that are read side by side.
_AT_ONCE: Final = 8
#: Pages of one list. A longer list is taken for an error.
_MOST_PAGES: Final = 200
#: After a failure; twice as long after the next, and at most a minute.
_PAUSE: Final = 5.0
#: The failure of a place that is logged as a warning: some five minutes after the first.
_TELL_AFTER: Final = 8
_LONGEST_PAUSE: Final = 60.0

LISTS = Counter(
    "paddock_recovery_lists_total",
    "Lists of a scope's runners that the search for unknown Pods read.",
    ["outcome"],
)

#: What is listed: a scope through an installation, or an App's installations.
_Place = tuple[InstallationKey, Scope] | AppKey
#: Records by the name of the Pod that they belong to.
_Records = Mapping[PodName, tuple[tuple[int, RunnerRecord], ...]]


@dataclass(frozen=True, slots=True)
class Registration:
    """A record at GitHub that can only be of one Pod. `key` is the demand key it was minted for, if
    there is one."""

    generation: int
    record: RunnerRecord
    key: KeyId | None

    def found(self) -> FoundRecord | None:
        if self.key is None:
            return None
        return FoundRecord(
            key=self.key,
            name=RunnerName(self.record.name),
            generation=self.generation,
            github_id=self.record.id,
        )


@dataclass(frozen=True, slots=True)
class _List:
    began: datetime
    records: _Records = field(default_factory=dict)


@dataclass(slots=True)
class _Unfinished:
    """A list of which some pages were read; it goes on when there is budget for the next."""

    began: datetime
    runners: list[RunnerRecord] = field(default_factory=list)
    page: str | None = None
    pages: int = 0


class RunnerSearch:
    def __init__(
        self,
        *,
        store: RunnerSearchStore,
        github: GitHub,
        clock: Clock,
        apps: Iterable[RegisteredApp],
    ) -> None:
        self._store = store
        self._github = github
        self._clock = clock
        self._apps = {app.key: app for app in apps}
        self._budgets: dict[InstallationKey | AppKey, TokenBucket] = {}
        self._asked: dict[InstallationKey, datetime] = {}
        self.forget()

    def forget(self) -> None:
        """Drop what was found out: another replica may have led meanwhile."""
        #: By the Pod's UID: since when it is searched for, and until when.
        self._wanted: dict[str, tuple[PodName, datetime, datetime]] = {}
        self._scopes: dict[_Place, RunnerScope] = {}
        #: The installations of each App that the store knows and that are not removed.
        self._known: dict[AppKey, frozenset[int]] = {}
        #: The newest lists of each place, `_TIMES` at most.
        self._lists: dict[_Place, tuple[_List, ...]] = {}
        self._unfinished: dict[_Place, _Unfinished] = {}
        self._paused: dict[_Place, datetime] = {}
        self._failures: dict[_Place, int] = {}
        #: The places where at least one list has the Pod.
        self._where: dict[PodName, dict[_Place, None]] = {}
        #: Absence is proven for a Pod that is searched for since this or earlier.
        self._covered: datetime | None = None

    def registrations(
        self, pod: Pod, *, since: datetime, after: int = 0
    ) -> list[Registration] | None:
        """The Pod's records of generations above `after`; `None` while not every scope has answered.
        Only lists begun after `since` count. This sends no request: `round` does."""
        self._wanted[pod.uid] = (pod.name, since, self._clock.now() + _WANTED_FOR)
        found: list[Registration] = []
        slipped = False
        for place in self._where.get(pod.name, ()):
            lists = [each for each in self._lists[place] if each.began >= since]
            here = [r for r in self._of(pod, place, lists[-1:]) if r.generation > after]
            slipped |= not here and bool(self._of(pod, place, lists))
            found += here
        if any(each.record.busy for each in found):
            return found
        if slipped or self._covered is None or self._covered < since:
            return None
        return sorted(found, key=lambda each: (each.generation, each.record.id))

    def _of(self, pod: Pod, place: _Place, lists: Iterable[_List]) -> list[Registration]:
        scope = self._scopes.get(place)
        key = scope.keys.get(pod.pool) if scope is not None else None
        return [
            Registration(generation, record, key)
            for each in lists
            for generation, record in each.records.get(pod.name, ())
        ]

    async def round(self) -> None:
        """Read what is due and what the budget allows."""
        now = self._clock.now()
        self._wanted = {uid: each for uid, each in self._wanted.items() if each[2] > now}
        if not self._wanted:
            self.forget()
            return
        self._scopes = {(each.who, each.scope): each for each in await self._store.runner_scopes()}
        self._known = {
            key: frozenset(await self._store.active_installations(app.app))
            for key, app in self._apps.items()
        }
        askable = set(self._places())
        for place in [place for place in self._lists if place not in askable]:
            self._drop(place)
        places = asyncio.Semaphore(_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for place in self._due(now):
                if isinstance(place, AppKey) or self._pay(place[0]):
                    group.create_task(self._read(place, places))
        self._covered = self._coverage()

    # What has to be read.

    def _due(self, now: datetime) -> list[_Place]:
        """Those that were never listed first, then those whose list is oldest."""
        since = [each[1] for each in self._wanted.values() if not self._is_busy(each[0])]
        found: set[_Place] = set()
        slipped: set[_Place] = set()
        for name, _, _ in self._wanted.values():
            for place in self._where.get(name, ()):
                here = name in self._lists[place][-1].records
                (found if here else slipped).add(place)
        latest = max(since, default=None)
        due: dict[_Place, float] = {}
        for place in self._places():
            lists = self._lists.get(place)
            age = now - lists[-1].began if lists else None
            if self._paused.get(place, now) > now or (age is not None and age < APART):
                continue
            expired = age is not None and age >= GOOD_FOR and place in found
            unproven = latest is not None and not self._pair(place, latest)
            if expired or unproven or place in slipped:
                due[place] = math.inf if age is None else age.total_seconds()
        return sorted(due, key=lambda place: -due[place])

    def _places(self) -> list[_Place]:
        """All that can be asked."""
        scopes: list[_Place] = [
            place
            for place, scope in self._scopes.items()
            if scope.state == "active" and scope.who.app_key in self._apps
        ]
        return [*self._apps, *scopes]

    def _is_busy(self, name: PodName) -> bool:
        return any(
            record.busy
            for place in self._where.get(name, ())
            for _, record in self._lists[place][-1].records.get(name, ())
        )

    def _pair(self, place: _Place, since: datetime) -> bool:
        lists = self._lists.get(place, ())
        return len(lists) == _TIMES and lists[0].began >= since

    def _coverage(self) -> datetime | None:
        """When the first list of a scope's latest pair began, for the scope where that was longest
        ago."""
        askable = set(self._places())
        if any(
            scope.state != "removed" and place not in askable
            for place, scope in self._scopes.items()
        ):
            return None
        pairs = [self._lists.get(place, ()) for place in askable]
        if not pairs or any(len(pair) < _TIMES for pair in pairs):
            return None
        return min(pair[0].began for pair in pairs)

    # Reading it.

    async def _read(self, place: _Place, places: asyncio.Semaphore) -> None:
        async with places:
            try:
                if isinstance(place, AppKey):
                    await self._read_app(place)
                else:
                    await self._read_scope(place, *place)
            except GitHubError as error:
                LISTS.labels("failed").inc()
                self._pause(place, error.failure.backoff_s)
                # One place that never answers keeps the Pods without rows of all accounts protected.
                tell = _log.warning if self._failures[place] == _TELL_AFTER else _log.info
                tell(
                    "search.list_failed",
                    place=_words(place),
                    failures=self._failures[place],
                    error=error.failure.sentence,
                )

    async def _read_app(self, app: AppKey) -> None:
        """A list that names an installation which the store does not know is no answer: its account
        may have runners, and will be known soon."""
        began = self._clock.now()
        listed = {
            record.id
            for record in await self._github.list_installations(app)
            if record.account_type != AccountType.ENTERPRISE
        }
        if listed <= self._known[app]:
            self._note(app, _List(began))
        else:
            self._pause(app, _PAUSE)

    async def _read_scope(self, place: _Place, who: InstallationKey, scope: Scope) -> None:
        """The request for its next page is paid for."""
        reading = self._unfinished.pop(place, None) or _Unfinished(self._clock.now())
        while True:
            answer = await self._github.list_runners(who, scope, page=reading.page)
            if isinstance(answer, Absent):
                answer = RunnerPage(runners=(), next=None)  # a deleted repository has no runners
            reading.runners += answer.runners
            reading.page, reading.pages = answer.next, reading.pages + 1
            if answer.next is None:
                LISTS.labels("complete").inc()
                self._note(place, _List(reading.began, _by_pod(reading.runners)))
                return
            if reading.pages == _MOST_PAGES:
                _log.warning("search.list_endless", place=_words(place), pages=reading.pages)
                return
            if not self._pay(who):
                self._unfinished[place] = reading
                return

    def _note(self, place: _Place, read: _List) -> None:
        lists = (*self._lists.get(place, ()), read)[-_TIMES:]
        self._drop(place)
        self._lists[place] = lists
        self._failures.pop(place, None)
        for each in self._lists[place]:
            for name in each.records:
                self._where.setdefault(name, {})[place] = None

    def _drop(self, place: _Place) -> None:
        for each in self._lists.pop(place, ()):
            for name in each.records:
                self._where.get(name, {}).pop(place, None)

    def _pause(self, place: _Place, seconds: float) -> None:
        failures = self._failures[place] = self._failures.get(place, 0) + 1
        pause = min(max(seconds, _PAUSE * 2.0 ** min(failures - 1, 10)), _LONGEST_PAUSE)
        self._paused[place] = self._clock.now() + timedelta(seconds=pause)

    # The budget.

    def _pay(self, who: InstallationKey) -> bool:
        """Whether one more request may be made for this installation now."""
        now = self._clock.now()
        asked = self._asked.get(who)
        cold = asked is None or now - asked > _TOKEN_LASTS
        if cold and not self._take(who.app_key, _NEW_BURST, _NEW_PER_MINUTE, now):
            return False
        if not self._take(who, _BURST, _PER_MINUTE, now):
            return False
        if cold:
            self._asked[who] = now
        return True

    def _take(
        self, whose: InstallationKey | AppKey, burst: int, per_minute: int, now: datetime
    ) -> bool:
        full = TokenBucket.full(capacity=burst, per_s=per_minute / 60, now=now)
        taken = self._budgets.get(whose, full).at(now).take(1)
        if taken is not None:
            self._budgets[whose] = taken
        return taken is not None


def _by_pod(runners: Iterable[RunnerRecord]) -> _Records:
    found: dict[PodName, dict[int, tuple[int, RunnerRecord]]] = {}
    for record in runners:
        if (parts := pod_of(record.name)) is not None:
            pod, generation = parts
            found.setdefault(pod, {})[record.id] = generation, record
    return {pod: tuple(records.values()) for pod, records in found.items()}


def _words(place: _Place) -> str:
    return str(place) if isinstance(place, AppKey) else str(place[1])
