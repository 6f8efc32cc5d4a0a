"""The fake GitHub's state, its time, its ids and its random generators. All other parts act on this.

Ids start where GitHub's are today: above what 32 bits (jobs, runs) and above what a float
(deliveries) can hold, so that code which cannot keep them fails here first.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from uuid import UUID

from paddock.fakes.github.faults import FaultKind, Faults, Injected, Quotas, Range, Timing
from paddock.fakes.github.records import (
    Account,
    App,
    Delivery,
    Installation,
    Job,
    Repository,
    Run,
    Runner,
    RunnerEnd,
    RunnerGroup,
    Token,
    VersionDates,
)
from paddock.fakes.github.truth import Truth


class Schedule:
    """Events and their times. The model plays them only when a call tells it to `advance`. Ties are
    broken by the order of scheduling, so a run is the same every time."""

    def __init__(self) -> None:
        self._heap: list[tuple[datetime, int, Callable[[], None]]] = []
        self._sequence = 0
        #: Called when an event is due before all others: the server then sleeps shorter.
        self.on_sooner: Callable[[], None] = lambda: None

    def at(self, due: datetime, action: Callable[[], None]) -> None:
        self._sequence += 1
        sooner = not self._heap or due < self._heap[0][0]
        heapq.heappush(self._heap, (due, self._sequence, action))
        if sooner:
            self.on_sooner()

    @property
    def next_due(self) -> datetime | None:
        return self._heap[0][0] if self._heap else None

    def pop(self, now: datetime) -> tuple[datetime, Callable[[], None]] | None:
        if not self._heap or self._heap[0][0] > now:
            return None
        due, _, action = heapq.heappop(self._heap)
        return due, action


_ALPHANUMERIC = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

#: Removed registrations are kept for a while, to tell "deleted" from "never existed".
_KEPT_CLIENTS = 20_000


class Ids:
    def __init__(self, rng: random.Random, epoch: int = 0) -> None:
        """`epoch` separates successive fakes that use the same database: a GitHub that starts again
        must not repeat job numbers that the database still holds."""
        self._rng = rng
        self.account = itertools.count(210_001).__next__
        self.repository = itertools.count(900_000_001).__next__
        self.app = itertools.count(310_001).__next__
        self.installation = itertools.count(52_000_001).__next__
        self.hook = itertools.count(460_000_001).__next__
        self.group = itertools.count(2).__next__  # 1 is the default group
        self.runner = itertools.count(epoch + 1).__next__
        self.run = itertools.count(17_000_000_001 + epoch).__next__
        self.job = itertools.count(48_000_000_001 + epoch).__next__
        self.delivery = itertools.count(1_900_000_000_000_000_001 + epoch).__next__

    def guid(self) -> str:
        return str(UUID(int=self._rng.getrandbits(128), version=4))

    def text(self, length: int) -> str:
        return "".join(self._rng.choices(_ALPHANUMERIC, k=length))

    def hex(self, length: int) -> str:
        return f"{self._rng.getrandbits(4 * length):0{length}x}"

    def octets(self, length: int) -> bytes:
        return self._rng.randbytes(length)


class World:
    def __init__(
        self,
        *,
        now: Callable[[], datetime],
        rng: random.Random,
        api_url: str,
        html_url: str,
        faults: Faults,
        timing: Timing,
        quotas: Quotas,
        epoch: int = 0,
    ) -> None:
        self._clock = now
        self.api_url = api_url.rstrip("/")
        self.html_url = html_url.rstrip("/")
        self.faults = faults
        self.timing = timing
        self.quotas = quotas
        self.injected: list[Injected] = []
        # Separate streams: switching a fault on does not change later ids.
        self.ids = Ids(random.Random(rng.getrandbits(64)), epoch)  # noqa: S311 - seeded on purpose
        self.dice = random.Random(rng.getrandbits(64))  # noqa: S311
        self.schedule = Schedule()
        self.truth = Truth()
        #: The current moment: of the event that is due, or of the call.
        self.time = now()

        self.apps: dict[int, App] = {}
        self.accounts: dict[str, Account] = {}  # by lower-case login
        self.repositories: dict[str, Repository] = {}  # by lower-case full name
        self.installations: dict[int, Installation] = {}
        self.tokens: dict[str, Token] = {}
        self.groups: dict[int, list[RunnerGroup]] = {}  # by account
        self.runners: dict[int, Runner] = {}  # the records that exist
        self.by_client_id: dict[str, Runner] = {}  # also of records that are gone
        self.sessions: dict[str, Runner] = {}
        self.runs: dict[int, Run] = {}
        self.jobs: dict[int, Job] = {}
        self.deliveries: dict[int, Delivery] = {}
        #: Runner versions that GitHub no longer accepts, whatever dates it has announced.
        self.deprecated_versions: set[str] = set()
        #: The dates of each version that GitHub knows.
        self.version_dates: dict[str, VersionDates] = {}
        #: By account and version: what was answered last, and since when.
        self.version_answers: dict[tuple[str, str], tuple[VersionDates, datetime]] = {}
        #: Idle runners of other versions are told to install this one, unless they forbid updates.
        self.update_to: str | None = None

    def advance(self) -> None:
        """Plays all due events, each at its own time."""
        now = max(self._clock(), self.time)
        while due := self.schedule.pop(now):
            self.time = max(due[0], self.time)
            due[1]()
        self.time = now

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Acts at once if it takes no time, so that a faultless model needs no ticks for it."""
        if seconds <= 0:
            action()
        else:
            self.schedule.at(self.later(seconds), action)

    def later(self, seconds: float) -> datetime:
        return self.time + timedelta(seconds=seconds)

    def chance(self, probability: float, fault: str) -> bool:
        strikes = probability > 0 and self.dice.random() < probability
        if strikes:
            self.truth.happened[fault] += 1
        return strikes

    def draw(self, span: Range) -> float:
        low, high = span
        return low if low == high else self.dice.uniform(low, high)

    def take_runner_fault(self, route: str) -> FaultKind | None:
        """Only faults that name a runner's call hit it: the others are for the REST API."""
        for fault in self.injected:
            if fault.route in (route, "runner") and fault.hits(
                route=fault.route, owner=None, path="", now=self.time
            ):
                return self._spend(fault)
        return None

    def _spend(self, fault: Injected) -> FaultKind:
        if fault.times is not None:
            fault.times -= 1
        self.injected = [left for left in self.injected if not left.spent(self.time)]
        return fault.kind

    def take_injected(
        self, kinds: frozenset[FaultKind], *, route: str, owner: str | None, path: str
    ) -> FaultKind | None:
        for fault in self.injected:
            if fault.kind in kinds and fault.hits(
                route=route, owner=owner, path=path, now=self.time
            ):
                return self._spend(fault)
        return None

    def account(self, login: str) -> Account | None:
        return self.accounts.get(login.lower())

    def repository(self, full_name: str) -> Repository | None:
        return self.repositories.get(full_name.lower())

    def group(self, owner: Account, group_id: int) -> RunnerGroup | None:
        return next((group for group in self.groups[owner.id] if group.id == group_id), None)

    def runners_of(self, scope: Account | Repository) -> list[Runner]:
        if isinstance(scope, Repository):
            return [runner for runner in self.runners.values() if runner.repository is scope]
        return [
            runner
            for runner in self.runners.values()
            if runner.owner is scope and runner.repository is None
        ]

    def online(self, runner: Runner) -> bool:
        if runner.removed:
            return False
        if runner.foreign:
            return True
        silence = timedelta(seconds=self.timing.offline_after)
        return runner.session is not None and self.time - runner.session.contact_at < silence

    def says_busy(self, runner: Runner) -> bool:
        """What GitHub says, which may differ from the truth."""
        has_job = runner.job is not None or runner.offered is not None
        return has_job and (runner.busy_from is None or self.time >= runner.busy_from)

    def refuses_version(self, version: str) -> bool:
        dates = self.version_dates.get(version)
        ends_at = None if dates is None else dates.runtime_deprecates_at
        ended = ends_at is not None and ends_at <= self.time
        return ended or version in self.deprecated_versions

    def remove_runner(self, runner: Runner, end: RunnerEnd) -> None:
        """Removes the record. Its process, if it has one, is not told: it notices by itself. If it
        executes a job it can still report the result."""
        runner.removed = end
        self.runners.pop(runner.id, None)
        if runner.session is not None and runner.job is None:
            self.sessions.pop(runner.session.id, None)
        while len(self.by_client_id) > len(self.runners) + _KEPT_CLIENTS:
            del self.by_client_id[next(iter(self.by_client_id))]
