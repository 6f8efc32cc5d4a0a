"""The matcher's transaction: lock, read, allocate, write, commit.

Serial and batched beats concurrent and contended: under one advisory lock no cap race exists (I25),
and one commit pays for many claims. The cost grows with the number of keys and the batch, never with
the depth of the queue. A replica that stalls in here is thrown out by the server's
idle-in-transaction time-out and its lock goes with it (I72).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import asyncpg

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
from paddock.domain.names import runner_name
from paddock.domain.runners import MINT_DEADLINE, Claim, Conflict, Match, WaitingPod
from paddock.store.database import Connection, retrying
from paddock.store.runners import Runners
from paddock.store.sql import queries
from paddock.store.terms import KeyTerms, Terms

_SQL = queries("matching")

#: At most this many Pods are matched in one transaction, so that it stays short for the others.
BATCH = 256


class Matching(Runners):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._terms = Terms()

    @retrying
    async def match(self, pods: Sequence[WaitingPod]) -> Match:
        pods = pods[:BATCH]
        async with self._matching() as connection:
            now = self._clock.now()
            allocation, terms = await self._allocate(connection, pods, None, now)
            if allocation.read_deeper:
                allocation, terms = await self._allocate(connection, pods, len(pods), now)
            claims = await self._claim(connection, _claims(pods, terms, allocation, now), now)
        return Match(claims, dict(allocation.withheld))

    async def _allocate(
        self, connection: Connection, pods: Sequence[WaitingPod], depth: int | None, now: datetime
    ) -> tuple[Allocation, Mapping[KeyId, KeyTerms]]:
        """Writes nothing: whoever explains a wait asks it too."""
        read = await connection.fetchrow(_SQL["demand"], len(pods), depth, now)
        unserved = _unserved(read)
        keys = {*unserved, *(read["held_keys"] or ())}
        terms = await self._terms.of(connection, read["terms"], keys)
        return _decide(pods, read, terms, unserved), terms

    @retrying
    async def take_over_claim(
        self, runner: RunnerId, *, generation: int, name: str, mint_deadline: datetime
    ) -> Claim | Conflict:
        async with self._database.transaction() as connection:
            taken = await self._take(
                connection,
                "take_over",
                runner,
                generation,
                "taken over: the mint's deadline has passed",
                None,
                name,
                mint_deadline,
            )
            if isinstance(taken, Conflict):
                return taken
            return _claim_of(await connection.fetchrow(_SQL["claim_of"], runner))

    async def _claim(
        self, connection: Connection, claims: Sequence[Claim], now: datetime
    ) -> tuple[Claim, ...]:
        if not claims:
            return ()
        rows = await connection.fetch(
            _SQL["claim"],
            [claim.runner for claim in claims],
            [claim.generation - 1 for claim in claims],
            [claim.key for claim in claims],
            [claim.account for claim in claims],
            [claim.app for claim in claims],
            [claim.name for claim in claims],
            [claim.hint for claim in claims],
            now,
            self.actor,
            now + MINT_DEADLINE,
        )
        written = {row["id"] for row in rows}
        return tuple([claim for claim in claims if claim.runner in written])


def _unserved(read: asyncpg.Record) -> dict[KeyId, list[QueuedJob]]:
    """Per key, oldest first."""
    jobs: dict[KeyId, list[QueuedJob]] = defaultdict(list)
    for key, queued_at, job in zip(
        read["job_keys"] or (), read["queued_at"] or (), read["job_ids"] or (), strict=True
    ):
        jobs[key].append(QueuedJob(queued_at, job))
    return jobs


def _decide(
    pods: Sequence[WaitingPod],
    read: asyncpg.Record,
    terms: Mapping[KeyId, KeyTerms],
    unserved: Mapping[KeyId, Sequence[QueuedJob]],
) -> Allocation:
    waiting: dict[PoolId, list[RunnerId]] = defaultdict(list)
    #: Of a pool that was described anew, those made before cost what they cost then (I48).
    costs: dict[PoolId, Resources] = {}
    for pod in pods:
        waiting[pod.pool].append(pod.id)
        if (known := costs.get(pod.pool, NOTHING)) != pod.cost:
            costs[pod.pool] = known.at_least(pod.cost)
    used = _Used.of(read, terms)
    backing_off = {*zip(read["backoff_scopes"] or (), read["backoff_subjects"] or (), strict=True)}
    demand: list[KeyDemand] = []
    accounts: dict[AccountId, AccountTerms] = {}
    repositories: dict[RepositoryId, RepositoryTerms] = {}
    pools: dict[PoolId, PoolTerms] = {}
    for key, jobs in unserved.items():
        bound = terms[key]
        demand.append(
            KeyDemand(
                key=key,
                account=bound.account,
                pool=bound.pool,
                repository=bound.repository_id,
                unserved=jobs,
                truncated=len(jobs) == read["depth"],
                blocked=_blocked(key, bound, backing_off),
            )
        )
        if bound.account not in accounts:
            accounts[bound.account] = AccountTerms(
                app=AppId(bound.app or 0),
                weight=bound.weight,
                limits=bound.limits,
                used=used.by_account[bound.account],
            )
        if bound.repository_id is not None:
            repositories[bound.repository_id] = RepositoryTerms(
                limits=bound.repository_limits, used=used.by_repository[bound.repository_id]
            )
        if bound.pool not in pools:
            maximum = bound.pool_maximum
            pools[bound.pool] = PoolTerms(
                cost=bound.cost.at_least(costs.get(bound.pool, NOTHING)),
                places=None if maximum is None else maximum - used.runners_of_pool[bound.pool],
            )
    return allocate(
        demand=demand,
        supplies=Supplies(
            pods=waiting, mints=dict(zip(read["apps"] or (), read["mints"] or (), strict=True))
        ),
        accounts=accounts,
        repositories=repositories,
        pools=pools,
    )


class _Used:
    """What runners hold of each limit, added up from what they hold per key."""

    def __init__(self) -> None:
        self.by_account: dict[AccountId, Resources] = defaultdict(lambda: NOTHING)
        self.by_repository: dict[RepositoryId, Resources] = defaultdict(lambda: NOTHING)
        self.runners_of_pool: dict[PoolId, int] = defaultdict(int)

    @classmethod
    def of(cls, read: asyncpg.Record, terms: Mapping[KeyId, KeyTerms]) -> _Used:
        used = cls()
        for key, runners, vcpu_milli, memory_mib in zip(
            read["held_keys"] or (),
            read["runners"] or (),
            read["vcpu_milli"] or (),
            read["memory_mib"] or (),
            strict=True,
        ):
            bound = terms[key]
            held = Resources(runners=runners, vcpu_milli=vcpu_milli, memory_mib=memory_mib)
            used.by_account[bound.account] += held
            used.runners_of_pool[bound.pool] += runners
            if bound.repository_id is not None:
                used.by_repository[bound.repository_id] += held
        return used


def _blocked(key: KeyId, terms: KeyTerms, backing_off: set[tuple[str, int]]) -> Withheld | None:
    if terms.paused:
        return Withheld.PAUSED
    if terms.app is None:
        return Withheld.INSTALLATION
    if backing_off and (
        ("key", key) in backing_off
        or ("repository", terms.repository_id) in backing_off
        or ("account", terms.account) in backing_off
        or ("app", terms.app) in backing_off
    ):
        return Withheld.BACK_OFF
    return None


def _claims(
    pods: Sequence[WaitingPod],
    terms: Mapping[KeyId, KeyTerms],
    allocation: Allocation,
    now: datetime,
) -> list[Claim]:
    waiting = {pod.id: pod for pod in pods}
    deadline = now + MINT_DEADLINE
    claims = []
    for given in allocation.assignments:
        pod, bound = waiting[given.runner], terms[given.key]
        # Without an installation a key is blocked, and gets nothing.
        assert bound.app is not None
        assert bound.github_app is not None
        assert bound.installation is not None
        claims.append(
            Claim(
                runner=pod.id,
                generation=pod.generation + 1,
                name=runner_name(pod.pod_name, pod.generation + 1),
                mint_deadline=deadline,
                key=given.key,
                account=bound.account,
                app=bound.app,
                github_app=bound.github_app,
                installation=bound.installation,
                host=bound.host,
                login=bound.login,
                repository=bound.repository,
                runner_group=bound.runner_group,
                labels=bound.labels,
                hint=given.hint,
            )
        )
    return claims


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
        hint=None if row["hint_job_id"] is None else JobId(row["hint_job_id"]),
    )
