"""The matcher's turn: lock, read, allocate, write, commit.

Serial and batched beats concurrent and contended: under one advisory lock no cap race exists (I25),
and one commit pays for many claims. The cost grows with the number of keys and the batch, never with
the depth of the queue or the number of waiting Pods (I77). A turn is two messages: the first takes the
lock and reads, the last writes, commits and releases the lock. If a replica stalls between them, the
server's idle-session time-out ends its session, which releases the lock (I72).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from paddock.domain.allocation import (
    AccountTerms,
    Allocation,
    KeyDemand,
    PoolTerms,
    QueuedJob,
    RepositoryTerms,
    Supplies,
    Withheld,
    allocate,
)
from paddock.domain.ids import AccountId, AppId, JobId, KeyId, PoolId, RepositoryId, RunnerId
from paddock.domain.limits import NOTHING, Resources
from paddock.domain.names import RunnerName, runner_name
from paddock.domain.recovery.stale_claim import MINT_DEADLINE
from paddock.domain.runners.runner import Claim, Conflict, Match, WaitingPod, WaitingPods
from paddock.ports import Clock
from paddock.store.database import Connection, Hold, retrying
from paddock.store.runners import RunnerStore
from paddock.store.sql import queries
from paddock.store.terms import KeyTerms, TermsCache

_SQL = queries("matching")

#: The most Pods matched in one turn. The limit keeps a turn short for the other replicas.
BATCH = 256


class DemandReader:
    """What a match reads, and what it would decide. It writes nothing and takes no lock."""

    def __init__(self, clock: Clock, *, apps: Sequence[AppId] = ()) -> None:
        """`apps`: accounts are served through these alone; empty: through any."""
        self._clock = clock
        self._apps = apps
        self._terms = TermsCache()

    async def read(self, connection: Connection, pods: int, depth: int | None) -> str:
        read: str = await connection.fetchval(_SQL["demand"], pods, depth, self._clock.now(), None)
        return read

    async def decide(self, connection: Connection, waiting: WaitingPods, read: str) -> _Decision:
        demand = _DEMAND.decode(read)
        unserved = demand.unserved()
        keys = {*unserved, *demand.held_keys}
        terms = await self._terms.of(connection, demand.terms, keys, apps=self._apps)
        elsewhere = [
            *await self._wider_use(connection, demand, terms),
            *await self._use_before_transfer(connection, demand, terms),
        ]
        return _decision(waiting, demand, terms, unserved, elsewhere)

    async def withheld(
        self, connection: Connection, waiting: WaitingPods
    ) -> Mapping[KeyId, Withheld]:
        """Why the next match would give keys nothing, if these Pods waited."""
        batch = min(len(waiting), BATCH)
        read = await self.read(connection, batch, batch + 1)
        return (await self.decide(connection, waiting, read)).allocation.withheld

    async def _wider_use(
        self, connection: Connection, demand: _Demand, terms: Mapping[KeyId, KeyTerms]
    ) -> Sequence[_Use]:
        """What limited repositories use of runners of organisations. Read only if a key has such
        runners: from before the first limit, of a pool that names a runner group, or from before a
        transfer."""
        if not any(terms[key].beside_limits for key in demand.held_keys) and not any(
            terms[key].transferred for key in demand.job_keys
        ):
            return ()
        return [_use_of(row) for row in await connection.fetch(_SQL["wider_use"])]

    async def _use_before_transfer(
        self, connection: Connection, demand: _Demand, terms: Mapping[KeyId, KeyTerms]
    ) -> Sequence[_Use]:
        """What transferred repositories use of runners that an account before registered there."""
        transferred = {
            terms[key].repository_id for key in demand.job_keys if terms[key].transferred
        }
        if not transferred:
            return ()
        return [
            _use_of(row)
            for row in await connection.fetch(
                _SQL["use_before_transfer"], list(transferred), demand.held_keys
            )
        ]


class Matching(RunnerStore):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._demand = DemandReader(self._clock, apps=self._apps)

    @retrying
    async def match(self, pods: Collection[WaitingPod]) -> Match:
        waiting = pods if isinstance(pods, WaitingPods) else WaitingPods(pods)
        batch = min(len(waiting), BATCH)
        async with self._database.hold() as hold:
            read = await self._take_turn(hold, batch)
            decision = await self._demand.decide(hold.connection, waiting, read)
            if misplaced := decision.misplaced():
                await hold.connection.execute(_SQL["move_misplaced"], misplaced)
                read = await self._demand.read(hold.connection, batch, None)
                decision = await self._demand.decide(hold.connection, waiting, read)
            if decision.allocation.read_deeper:
                read = await self._demand.read(hold.connection, batch, batch)
                decision = await self._demand.decide(hold.connection, waiting, read)
            chosen = decision.chosen()
            now = self._clock.now()
            left_out = await self._claim(hold, chosen, now)
        deadline = now + MINT_DEADLINE
        claims = [each.claim(deadline) for each in chosen if each.runner not in left_out]
        allocation = decision.allocation
        return Match(
            tuple(claims),
            dict(allocation.withheld),
            left_out=tuple(left_out),
            more=allocation.more or bool(left_out),
            short_of_pods=allocation.short_of_pods,
        )

    async def _take_turn(self, hold: Hold, pods: int) -> str:
        """Take the lock, and read the demand under it."""
        read: str = await hold.take(
            _SQL["demand"], pods, None, self._clock.now(), self._database.stalled_matcher
        )
        return read

    async def _claim(
        self, hold: Hold, chosen: Sequence[_Chosen], now: datetime
    ) -> Collection[RunnerId]:
        """Write the claims, release the lock, and return the runners whose claim could not be made."""
        left_out: Collection[RunnerId] | None = await hold.let_go(
            _SQL["claim"],
            _list(each.runner.hex for each in chosen),
            _list(each.generation - 1 for each in chosen),
            _list(each.key for each in chosen),
            _list(each.terms.account for each in chosen),
            _list(each.terms.app for each in chosen),
            _list(each.terms.installation for each in chosen),
            [each.name for each in chosen],
            _list(each.hint for each in chosen),
            now,
            self.actor,
            now + MINT_DEADLINE,
        )
        return left_out or ()

    @retrying
    async def take_over_claim(
        self,
        runner: RunnerId,
        *,
        generation: int,
        name: str,
        mint_deadline: datetime,
        unanswered: bool = False,
    ) -> Claim | Conflict:
        why = "its match was not answered" if unanswered else "the mint's deadline has passed"
        async with self._database.transaction() as connection:
            taken = await self._take(
                connection,
                "take_over",
                runner,
                generation,
                f"taken over: {why}",
                None,
                name,
                mint_deadline,
                unanswered,
            )
            if isinstance(taken, Conflict):
                return taken
            return _claim_of(await connection.fetchrow(_SQL["claim_of"], runner))


def _list(values: Iterable[object]) -> str:
    """A list of numbers or ids in PostgreSQL's text format."""
    return f"{{{','.join(map(str, values))}}}"


class _Demand(msgspec.Struct, frozen=True, gc=False):
    """What a match reads, by columns (`demand` in 0001_schema.sql)."""

    terms: UUID
    depth: int
    held_keys: list[KeyId]
    runners: list[int]
    vcpu_milli: list[int]
    memory_mib: list[int]
    #: The pools that have a maximum.
    pools: list[PoolId]
    pool_runners: list[int]
    job_keys: list[KeyId]
    queued_at: list[float]
    job_ids: list[JobId]
    #: `app_mints`: the mint limit per installation of each App. `mints`: what is left to the
    #: installations whose limit may bind.
    apps: list[AppId]
    app_mints: list[int | None]
    mint_apps: list[AppId]
    mint_installations: list[int]
    mints: list[int]
    #: Idle runners whose version GitHub refuses, each with the account for which it does.
    refused_accounts: list[AccountId]
    refused_runners: list[RunnerId]
    backoff_scopes: list[str]
    backoff_subjects: list[int]

    def refused(self) -> dict[AccountId, set[RunnerId]]:
        runners: dict[AccountId, set[RunnerId]] = defaultdict(set)
        for account, runner in zip(self.refused_accounts, self.refused_runners, strict=True):
            runners[account].add(runner)
        return runners

    def unserved(self) -> dict[KeyId, list[QueuedJob]]:
        """Per key, oldest first."""
        jobs: dict[KeyId, list[QueuedJob]] = defaultdict(list)
        for key, queued_at, job in zip(self.job_keys, self.queued_at, self.job_ids, strict=True):
            jobs[key].append(QueuedJob(queued_at, job))
        for waiting in jobs.values():
            waiting.sort()
        return jobs


_DEMAND = msgspec.json.Decoder(_Demand)

_Use = tuple[RepositoryId, Resources]


def _use_of(row: asyncpg.Record) -> _Use:
    return RepositoryId(row["repository_id"]), Resources(
        runners=row["runners"], vcpu_milli=row["vcpu_milli"], memory_mib=row["memory_mib"]
    )


class _Decision(msgspec.Struct, frozen=True):
    allocation: Allocation
    terms: Mapping[KeyId, KeyTerms]
    pods: Mapping[RunnerId, WaitingPod]

    def misplaced(self) -> list[AccountId]:
        """Accounts with jobs under keys that may no longer be claimed for (I78). Such jobs arrived
        while the first limit of a repository was being set, or came with a restored backup."""
        withheld = self.allocation.withheld.items()
        keys = [key for key, reason in withheld if reason is Withheld.REGISTRATION]
        return sorted({self.terms[key].account for key in keys})

    def chosen(self) -> list[_Chosen]:
        chosen = []
        for given in self.allocation.assignments:
            pod = self.pods[given.runner]
            generation = pod.generation + 1
            name = runner_name(pod.pod_name, generation)
            terms = self.terms[given.key]
            chosen.append(_Chosen(pod.id, generation, name, given.key, terms, given.hint))
        return chosen


def _decision(
    waiting: WaitingPods,
    read: _Demand,
    terms: Mapping[KeyId, KeyTerms],
    unserved: Mapping[KeyId, Sequence[QueuedJob]],
    elsewhere: Iterable[_Use],
) -> _Decision:
    """`elsewhere`: what repositories use of runners that other keys have."""
    used, mints = _Used.of(read, terms), _Mints(read)
    for repository, more in elsewhere:
        used.by_repository[repository] += more
    backing_off = {*zip(read.backoff_scopes, read.backoff_subjects, strict=True)}
    demand: list[KeyDemand] = []
    accounts: dict[AccountId, AccountTerms] = {}
    repositories: dict[RepositoryId, RepositoryTerms] = {}
    pools: dict[PoolId, _PoolDemand] = {}
    for key, jobs in unserved.items():
        bound = terms[key]
        blocked = _blocked(key, bound, backing_off)
        demand.append(
            KeyDemand(
                key=key,
                account=bound.account,
                pool=bound.pool,
                repository=bound.repository_id,
                unserved=jobs,
                truncated=len(jobs) == read.depth,
                blocked=blocked,
            )
        )
        if bound.account not in accounts:
            accounts[bound.account] = AccountTerms(
                mints=mints.left(bound),
                weight=bound.weight,
                limits=bound.limits,
                used=used.by_account[bound.account],
            )
        if bound.repository_id is not None:
            repository = bound.repository_id
            repositories[repository] = RepositoryTerms(
                limits=bound.repository_limits,
                used=used.by_repository[repository],
            )
        pool = pools.get(bound.pool)
        if pool is None:
            pool = pools[bound.pool] = _PoolDemand.of(bound, used)
        if blocked is None:
            pool.jobs += len(jobs)
    pods = {id_: pool.pods(waiting, len(read.refused_runners)) for id_, pool in pools.items()}
    allocation = allocate(
        demand=demand,
        supplies=Supplies(
            pods={id_: [pod.id for pod in each] for id_, each in pods.items()},
            batch=BATCH,
            refused=read.refused(),
        ),
        accounts=accounts,
        repositories=repositories,
        pools={id_: pool.terms(pods[id_]) for id_, pool in pools.items()},
    )
    return _Decision(allocation, terms, {pod.id: pod for each in pods.values() for pod in each})


class _PoolDemand(msgspec.Struct, gc=False):
    """What one pool could serve: `jobs` of unblocked keys, and `places` left below its maximum."""

    pool: PoolId
    cost: Resources
    places: int | None
    jobs: int = 0

    @classmethod
    def of(cls, bound: KeyTerms, used: _Used) -> _PoolDemand:
        maximum = bound.pool_maximum
        places = None if maximum is None else maximum - used.runners_of_pool[bound.pool]
        return cls(bound.pool, bound.cost, places)

    def pods(self, waiting: WaitingPods, refused: int) -> list[WaitingPod]:
        """As many Pods as could be claimed, and one more: a Pod left over makes the matcher go on.
        `refused`: so many more may come first and not be claimed."""
        wanted = min(BATCH, self.jobs) + 1 if self.jobs else 0
        places = wanted if self.places is None else max(0, self.places)
        most = min(wanted, places)
        return waiting.first(self.pool, most + refused if most else 0)

    def terms(self, pods: Iterable[WaitingPod]) -> PoolTerms:
        cost = self.cost
        # A Pod made before its pool's description changed keeps the cost it had then (I48).
        for pod in pods:
            if pod.cost != cost:
                cost = cost.at_least(pod.cost)
        return PoolTerms(cost=cost, places=self.places)


class _Used:
    """What runners use of each limit, added up from what they use per key."""

    def __init__(self) -> None:
        self.by_account: dict[AccountId, Resources] = defaultdict(lambda: NOTHING)
        self.by_repository: dict[RepositoryId, Resources] = defaultdict(lambda: NOTHING)
        self.runners_of_pool: dict[PoolId, int] = {}

    @classmethod
    def of(cls, read: _Demand, terms: Mapping[KeyId, KeyTerms]) -> _Used:
        used = cls()
        used.runners_of_pool.update(zip(read.pools, read.pool_runners, strict=True))
        for key, runners, vcpu_milli, memory_mib in zip(
            read.held_keys, read.runners, read.vcpu_milli, read.memory_mib, strict=True
        ):
            bound = terms[key]
            held = Resources(runners=runners, vcpu_milli=vcpu_milli, memory_mib=memory_mib)
            used.by_account[bound.account] += held
            if bound.repository_id is not None:
                used.by_repository[bound.repository_id] += held
        return used


class _Mints:
    """How many JITs each installation may still mint."""

    def __init__(self, read: _Demand) -> None:
        self._full = dict(zip(read.apps, read.app_mints, strict=True))
        places = zip(read.mint_apps, read.mint_installations, strict=True)
        self._left = dict(zip(places, read.mints, strict=True))

    def left(self, terms: KeyTerms) -> int | None:
        if terms.app is None or terms.installation is None:
            return 0
        full = self._full[terms.app]
        return self._left.get((terms.app, terms.installation), full)


def _blocked(key: KeyId, terms: KeyTerms, backing_off: set[tuple[str, int]]) -> Withheld | None:
    if terms.paused:
        return Withheld.PAUSED
    if terms.app is None:
        return Withheld.INSTALLATION
    if terms.misplaced:
        return Withheld.REGISTRATION
    if backing_off and (
        ("key", key) in backing_off
        or ("repository", terms.repository_id) in backing_off
        or ("account", terms.account) in backing_off
        or ("app", terms.app) in backing_off
    ):
        return Withheld.BACK_OFF
    return None


class _Chosen(msgspec.Struct, frozen=True, gc=False):
    """A Pod chosen for a key. The rest of its claim is built after the lock is released."""

    runner: RunnerId
    generation: int
    name: RunnerName
    key: KeyId
    terms: KeyTerms
    hint: JobId

    def claim(self, deadline: datetime) -> Claim:
        terms = self.terms
        # A key without an installation is blocked and never chosen.
        assert terms.app is not None
        assert terms.github_app is not None
        assert terms.installation is not None
        return Claim(
            runner=self.runner,
            generation=self.generation,
            name=self.name,
            mint_deadline=deadline,
            key=self.key,
            account=terms.account,
            app=terms.app,
            github_app=terms.github_app,
            installation=terms.installation,
            host=terms.host,
            login=terms.login,
            repository=terms.repository,
            runner_group=terms.runner_group,
            labels=terms.labels,
            pool=terms.pool_name,
            hint=self.hint,
        )


def _claim_of(row: asyncpg.Record) -> Claim:
    return Claim(
        runner=RunnerId(row["id"]),
        generation=row["generation"],
        name=row["name"],
        mint_deadline=row["mint_deadline"],
        key=KeyId(row["key_id"]),
        account=AccountId(row["account_id"]),
        app=AppId(row["app_id"]),
        github_app=row["github_app"],
        installation=row["installation_id"],
        host=row["host"],
        login=row["login"],
        repository=row["repository"],
        runner_group=row["runner_group_id"],
        labels=tuple(row["labels"]),
        pool=row["pool"],
        hint=None if row["hint_job_id"] is None else JobId(row["hint_job_id"]),
    )
