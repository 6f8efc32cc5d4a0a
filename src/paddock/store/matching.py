"""The matcher's transaction: lock, read, allocate, write, commit.

Serial and batched beats concurrent and contended: under one advisory lock no cap race exists (I25),
and one commit pays for many claims. The cost grows with the number of keys and the batch, never with
the depth of the queue. A replica that stalls in here is thrown out by the server's
idle-in-transaction time-out and its lock goes with it (I72).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
            pools = {row["id"]: row for row in await connection.fetch(_SQL["pools"])}
            keys = await connection.fetch(_SQL["demand"], len(pods), None, now)
            allocation = _decide(pods, keys, pools)
            if allocation.read_deeper:
                keys = await connection.fetch(_SQL["demand"], len(pods), len(pods), now)
                allocation = _decide(pods, keys, pools)
            claims = await self._claim(connection, _claims(pods, keys, pools, allocation, now), now)
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


def _decide(
    pods: Sequence[WaitingPod],
    keys: Sequence[asyncpg.Record],
    pools: Mapping[PoolId, asyncpg.Record],
) -> Allocation:
    waiting: dict[PoolId, list[RunnerId]] = {}
    for pod in pods:
        waiting.setdefault(pod.pool, []).append(pod.id)
    used_by_account: dict[AccountId, Resources] = {}
    used_by_repository: dict[RepositoryId, Resources] = {}
    occupied: dict[PoolId, int] = {}
    mints: dict[AppId, int | None] = {}
    demand: list[KeyDemand] = []
    for key in keys:
        account, pool, repository = key["account_id"], key["pool_id"], key["repository_id"]
        used = Resources(
            runners=key["runners"], vcpu_milli=key["vcpu_milli"], memory_mib=key["memory_mib"]
        )
        used_by_account[account] = (
            used_by_account[account] + used if account in used_by_account else used
        )
        if repository is not None:
            used_by_repository[repository] = used_by_repository.get(repository, NOTHING) + used
        occupied[pool] = occupied.get(pool, 0) + used.runners
        mints[key["app_id"]] = key["mints"]
        if key["ids"] is not None:
            demand.append(_demand_of(key))
    accounts: dict[AccountId, AccountTerms] = {}
    repositories: dict[RepositoryId, RepositoryTerms] = {}
    for key in keys:
        account, repository = key["account_id"], key["repository_id"]
        if account not in accounts:
            accounts[account] = AccountTerms(
                app=AppId(key["app_id"] or 0),
                weight=key["weight"],
                limits=_limits_of(key, ""),
                used=used_by_account[account],
            )
        if repository is not None:
            repositories[repository] = RepositoryTerms(
                limits=_limits_of(key, "repository_"), used=used_by_repository[repository]
            )
    return allocate(
        demand=demand,
        supplies=Supplies(pods=waiting, mints=mints),
        accounts=accounts,
        repositories=repositories,
        pools={
            pool: PoolTerms(
                cost=Resources(vcpu_milli=row["vcpu_milli"], memory_mib=row["memory_mib"]),
                places=None
                if row["max_runners"] is None
                else row["max_runners"] - occupied.get(pool, 0),
            )
            for pool, row in pools.items()
        },
    )


def _demand_of(key: asyncpg.Record) -> KeyDemand:
    blocked = None
    if key["paused"]:
        blocked = Withheld.PAUSED
    elif key["app_id"] is None:
        blocked = Withheld.INSTALLATION
    elif key["backing_off"]:
        blocked = Withheld.BACK_OFF
    return KeyDemand(
        key=key["key_id"],
        account=key["account_id"],
        pool=key["pool_id"],
        repository=key["repository_id"],
        unserved=[
            QueuedJob(queued_at, job)
            for queued_at, job in zip(key["queued_at"], key["ids"], strict=True)
        ],
        truncated=key["truncated"],
        blocked=blocked,
    )


def _claims(
    pods: Sequence[WaitingPod],
    keys: Sequence[asyncpg.Record],
    pools: Mapping[PoolId, asyncpg.Record],
    allocation: Allocation,
    now: datetime,
) -> list[Claim]:
    waiting = {pod.id: pod for pod in pods}
    terms = {key["key_id"]: key for key in keys}
    labels = {pool: tuple(row["labels"]) for pool, row in pools.items()}
    deadline = now + MINT_DEADLINE
    claims = []
    for given in allocation.assignments:
        pod, key = waiting[given.runner], terms[given.key]
        claims.append(
            Claim(
                runner=pod.id,
                generation=pod.generation + 1,
                name=runner_name(pod.pod_name, pod.generation + 1),
                mint_deadline=deadline,
                key=given.key,
                account=key["account_id"],
                app=key["app_id"],
                github_app=key["github_app"],
                installation=key["installation_id"],
                host=key["host"],
                login=key["login"],
                repository=key["repository"],
                runner_group=key["runner_group_id"],
                labels=labels[pod.pool],
                hint=given.hint,
            )
        )
    return claims


def _limits_of(key: asyncpg.Record, prefix: str) -> Limits:
    return Limits(
        runners=key[f"{prefix}max_runners"],
        vcpu_milli=key[f"{prefix}max_vcpu_milli"],
        memory_mib=key[f"{prefix}max_memory_mib"],
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
