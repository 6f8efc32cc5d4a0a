"""The matcher's transaction: lock, read, allocate, write, commit.

Serial and batched beats concurrent and contended: under one advisory lock no cap race exists (I25),
and one commit pays for many claims. The cost grows with the number of keys and the batch, never with
the depth of the queue. A replica that stalls in here is thrown out by the server's
idle-in-transaction time-out and its lock goes with it (I72).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

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
from paddock.domain.limits import NOTHING, Limits, Resources
from paddock.domain.names import runner_name
from paddock.domain.runners import MINT_DEADLINE, Claim, Conflict, Match, WaitingPod
from paddock.store.database import Connection, retrying
from paddock.store.runners import Runners
from paddock.store.sql import queries

_SQL = queries("matching")

#: At most this many Pods are matched in one transaction, so that it stays short for the others.
BATCH = 256


class Matching(Runners):
    @retrying
    async def match(self, pods: Sequence[WaitingPod]) -> Match:
        pods = pods[:BATCH]
        async with self._matching() as connection:
            now = self._clock.now()
            allocation = await _allocate(connection, pods, now, depth=None)
            if allocation.read_deeper:
                allocation = await _allocate(connection, pods, now, depth=len(pods))
            claims = await self._claim(connection, pods, allocation, now)
        return Match(claims, dict(allocation.withheld))

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
        self,
        connection: Connection,
        pods: Sequence[WaitingPod],
        allocation: Allocation,
        now: datetime,
    ) -> tuple[Claim, ...]:
        if not allocation.assignments:
            return ()
        waiting = {pod.id: pod for pod in pods}
        chosen = [(waiting[given.runner], given) for given in allocation.assignments]
        rows = await connection.fetch(
            _SQL["claim"],
            [pod.id for pod, _ in chosen],
            [pod.generation for pod, _ in chosen],
            [given.key for _, given in chosen],
            [runner_name(pod.pod_name, pod.generation + 1) for pod, _ in chosen],
            [given.hint for _, given in chosen],
            now,
            self.actor,
            now + MINT_DEADLINE,
        )
        return tuple(_claim_of(row) for row in rows)


async def _allocate(
    connection: Connection, pods: Sequence[WaitingPod], now: datetime, *, depth: int | None
) -> Allocation:
    keys = await connection.fetch(_SQL["demand"], len(pods), depth)
    terms = await connection.fetch(_SQL["terms"], [row["key_id"] for row in keys], now)
    pools = await connection.fetch(_SQL["pools"], list({row["pool_id"] for row in terms}))
    tokens = await connection.fetch(_SQL["mint_tokens"], now)
    return _decide(pods, keys, terms, pools, tokens)


def _decide(
    pods: Sequence[WaitingPod],
    keys: Sequence[asyncpg.Record],
    terms: Sequence[asyncpg.Record],
    pools: Sequence[asyncpg.Record],
    tokens: Sequence[asyncpg.Record],
) -> Allocation:
    waiting: dict[PoolId, list[RunnerId]] = {}
    for pod in pods:
        waiting.setdefault(pod.pool, []).append(pod.id)
    accounts: dict[AccountId, AccountTerms] = {}
    repositories: dict[RepositoryId, RepositoryTerms] = {}
    occupied: dict[PoolId, int] = {}
    demand: list[KeyDemand] = []
    used_by_account: dict[AccountId, Resources] = {}
    used_by_repository: dict[RepositoryId, Resources] = {}
    for key, term in zip(keys, terms, strict=True):
        account, pool, repository = term["account_id"], term["pool_id"], term["repository_id"]
        used = Resources(
            runners=key["runners"], vcpu_milli=key["vcpu_milli"], memory_mib=key["memory_mib"]
        )
        used_by_account[account] = used_by_account.get(account, NOTHING) + used
        if repository is not None:
            used_by_repository[repository] = used_by_repository.get(repository, NOTHING) + used
        occupied[pool] = occupied.get(pool, 0) + used.runners
        if key["ids"] is not None:
            demand.append(_demand_of(key, term))
    for term in terms:
        account, repository = term["account_id"], term["repository_id"]
        accounts[account] = AccountTerms(
            app=AppId(term["app_id"] or 0),
            weight=term["weight"],
            limits=_limits_of(term, ""),
            used=used_by_account[account],
        )
        if repository is not None:
            repositories[repository] = RepositoryTerms(
                limits=_limits_of(term, "repository_"), used=used_by_repository[repository]
            )
    return allocate(
        demand=demand,
        supplies=Supplies(
            pods=waiting, mints={AppId(row["app_id"]): row["mints"] for row in tokens}
        ),
        accounts=accounts,
        repositories=repositories,
        pools={
            PoolId(row["id"]): PoolTerms(
                cost=Resources(vcpu_milli=row["vcpu_milli"], memory_mib=row["memory_mib"]),
                places=None
                if row["max_runners"] is None
                else row["max_runners"] - occupied.get(row["id"], 0),
            )
            for row in pools
        },
    )


def _demand_of(key: asyncpg.Record, term: asyncpg.Record) -> KeyDemand:
    blocked = None
    if term["paused"]:
        blocked = Withheld.PAUSED
    elif term["app_id"] is None:
        blocked = Withheld.INSTALLATION
    elif term["backing_off"]:
        blocked = Withheld.BACK_OFF
    return KeyDemand(
        key=KeyId(key["key_id"]),
        account=AccountId(term["account_id"]),
        pool=PoolId(term["pool_id"]),
        repository=term["repository_id"],
        unserved=[
            QueuedJob(queued_at, JobId(job))
            for queued_at, job in zip(key["queued_at"], key["ids"], strict=True)
        ],
        truncated=key["truncated"],
        blocked=blocked,
    )


def _limits_of(term: asyncpg.Record, prefix: str) -> Limits:
    return Limits(
        runners=term[f"{prefix}max_runners"],
        vcpu_milli=term[f"{prefix}max_vcpu_milli"],
        memory_mib=term[f"{prefix}max_memory_mib"],
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
        hint=None if row["hint_job_id"] is None else JobId(row["hint_job_id"]),
    )
