"""What recovery reads and writes: absent Pods, retirements, adoption, verdicts, actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

import asyncpg

from paddock.domain.github.backoffs import PausedScope, UnassignedTerms
from paddock.domain.github.debts import MintOutcome
from paddock.domain.ids import (
    AccountId,
    AppId,
    HostId,
    JobId,
    KeyId,
    RepositoryId,
    RunnerId,
)
from paddock.domain.jobs.comparison import ActiveRepository
from paddock.domain.jobs.facts import UnservedCause
from paddock.domain.names import PodName
from paddock.domain.pods.fingerprints import Certainty, ever_started
from paddock.domain.pods.pod import Pod
from paddock.domain.recovery.evidence import ExecutorState, JobWord
from paddock.domain.recovery.records import (
    ActionTaken,
    Balance,
    DoubtTerms,
    FoundRecord,
    JobInDoubt,
    JobWords,
    KeyPlace,
    LateNews,
    OpenVerdict,
    PlacedJob,
    RunnerScope,
    SupplyGrace,
    WantedLog,
)
from paddock.domain.runners.endings import Ending
from paddock.domain.runners.runner import Conflict, Runner, RunnerSummary
from paddock.domain.states import JobState, RunnerState
from paddock.store.database import Connection, retrying
from paddock.store.live_runners import runner_of
from paddock.store.row_parts import installation_of, scope_of
from paddock.store.runners import RunnerStore
from paddock.store.sql import converted, named
from paddock.store.versions import Versions

_SQL = named("recovery")
_RUNNERS = named("runners")

_STARTED: Final = {Certainty.YES: True, Certainty.NO: False, Certainty.UNKNOWN: None}


class Recovering(RunnerStore, Versions):
    @retrying
    async def note_pods(self, pods: Sequence[Pod], *, read_at: datetime) -> None:
        names, uids = [pod.name for pod in pods], [pod.uid for pod in pods]
        async with self._database.transaction() as connection:
            await connection.execute(
                *_SQL["present"](
                    pods=names,
                    uids=uids,
                    nodes=[pod.node for pod in pods],
                    started=[_STARTED[ever_started(pod.containers)] for pod in pods],
                ),
            )
            await connection.execute(
                *_SQL["absent"](pods=names, uids=uids, read_at=read_at, now=self._clock.now())
            )
        await self.note_versions(pods)

    async def expected_pods(self) -> int:
        async with self._database.transaction() as connection:
            count: int = await connection.fetchval(*_SQL["expected"]())
        return count

    async def note_deregistered(
        self, runner: RunnerId, *, generation: int, settled: MintOutcome | None
    ) -> Runner | Conflict:
        return await self._note_progress(
            "deregistered", runner, generation, now=self._clock.now(), outcome=settled
        )

    async def note_proved(self, runner: RunnerId, *, generation: int) -> Runner | Conflict:
        return await self._note_progress("proved", runner, generation, now=self._clock.now())

    async def note_deletion(
        self, runner: RunnerId, *, generation: int, started: bool | None
    ) -> Runner | Conflict:
        return await self._note_progress(
            "deletion_asked", runner, generation, now=self._clock.now(), started=started
        )

    async def suspect_runner(self, runner: RunnerId, *, generation: int) -> Runner | Conflict:
        return await self._note_progress("suspect", runner, generation, now=self._clock.now())

    async def trust_runner(self, runner: RunnerId, *, generation: int) -> Runner | Conflict:
        return await self._note_progress("unsuspect", runner, generation)

    @retrying
    async def _note_progress(
        self, query: str, runner: RunnerId, generation: int, **own: object
    ) -> Runner | Conflict:
        """Note a change that is not a step: it writes no event and keeps the row's version."""
        async with self._database.transaction() as connection:
            row = await connection.fetchrow(
                *_SQL[query](runner=runner, generation=generation, **own)
            )
            if row is not None:
                return runner_of(row)
            found = await connection.fetchrow(*_RUNNERS["read"](runner=runner))
        if found is None:
            return Conflict(None, None)
        return Conflict(RunnerState(found["state"]), found["generation"])

    async def balances(self, *, recent: datetime) -> Mapping[KeyId, Balance]:
        rows = await self._database.rows(*_SQL["balances"](recent=recent, now=self._clock.now()))
        return {KeyId(row["key_id"]): converted(Balance, row) for row in rows}

    async def key_places(self, keys: Sequence[KeyId]) -> Mapping[KeyId, KeyPlace]:
        rows = await self._database.rows(*_SQL["places"](keys=sorted(keys), apps=self._apps))
        return {KeyId(row["key"]): _place_of(row) for row in rows}

    async def list_runners(self, *, pool: str | None = None) -> list[RunnerSummary]:
        rows = await self._database.rows(*_SQL["list"](pool=pool))
        return [converted(RunnerSummary, row) for row in rows]

    async def find_runner(self, name: str) -> Runner | None:
        row = await self._database.row(*_SQL["named"](name=name))
        return None if row is None else runner_of(row)

    async def removed_accounts(self) -> Mapping[AccountId, int]:
        rows = await self._database.rows(*_SQL["removed_accounts"]())
        return {AccountId(row["account_id"]): row["confirmations"] for row in rows}

    async def runner_scopes(self) -> list[RunnerScope]:
        rows = await self._database.rows(*_SQL["runner_scopes"](apps=self._apps))
        return [_runner_scope_of(row) for row in rows]

    async def runners_of_pods(self, names: Sequence[PodName]) -> Mapping[PodName, Runner]:
        rows = await self._database.rows(*_SQL["of_pods"](pods=sorted(names)))
        return {PodName(row["pod_name"]): runner_of(row) for row in rows}

    @retrying
    async def adopt_pod(
        self,
        pod: Pod,
        *,
        runner: RunnerId,
        delivery: UUID,
        record: FoundRecord | None,
        why: str,
    ) -> Runner | None:
        async with self._database.transaction() as connection:
            row = await connection.fetchrow(
                *_SQL["adopt"](
                    runner=runner,
                    pool=pod.pool,
                    pod=pod.name,
                    uid=pod.uid,
                    node=pod.node,
                    created_at=pod.created_at,
                    now=self._clock.now(),
                    actor=self.actor,
                    why=why,
                    started=_STARTED[ever_started(pod.containers)],
                    generation=0 if record is None else record.generation,
                    key=record and record.key,
                    name=record and record.name,
                    github_id=record and record.github_id,
                    delivery=delivery,
                ),
            )
            if row is None:
                return None
            if record is not None:
                await self._adopt_mint(connection, record, runner)
        return runner_of(row)

    @retrying
    async def identify_runner(
        self, runner: RunnerId, *, generation: int, record: FoundRecord, delivery: UUID
    ) -> Runner | Conflict:
        async with self._database.transaction() as connection:
            row = await connection.fetchrow(
                *_SQL["identify"](
                    runner=runner,
                    generation=generation,
                    now=self._clock.now(),
                    key=record.key,
                    name=record.name,
                    github_id=record.github_id,
                    delivery=delivery,
                ),
            )
            if row is not None:
                await self._adopt_mint(connection, record, runner)
                return runner_of(row)
            found = await connection.fetchrow(*_RUNNERS["read"](runner=runner))
        if found is None:
            return Conflict(None, None)
        return Conflict(RunnerState(found["state"]), found["generation"])

    async def _adopt_mint(
        self, connection: Connection, record: FoundRecord, runner: RunnerId
    ) -> None:
        await connection.execute(
            *_SQL["adopted_mint"](
                name=record.name,
                runner=runner,
                generation=record.generation,
                key=record.key,
                github_id=record.github_id,
                now=self._clock.now(),
            ),
        )

    async def supply_graces(self) -> list[SupplyGrace]:
        rows = await self._database.rows(*_SQL["supply_graces"](now=self._clock.now()))
        return [converted(SupplyGrace, row) for row in rows]

    async def end_supply_grace(self, runner: RunnerId) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(*_SQL["end_supply_grace"](runner=runner))

    async def end_old_supply_graces(self) -> int:
        now = self._clock.now()
        if await self._database.row(*_SQL["expired_grace"](now=now)) is None:
            return 0
        async with self._database.statement() as connection:
            tag = await connection.execute(*_SQL["end_old_supply_graces"](now=now))
        return int(tag.split()[-1])

    async def placed_jobs(
        self, host: HostId, jobs: Sequence[JobId], *, apps: Sequence[AppId]
    ) -> Mapping[JobId, PlacedJob]:
        rows = await self._database.rows(
            *_SQL["repositories_of"](host=host, jobs=sorted(jobs), apps=sorted(apps))
        )
        return {JobId(row["job"]): _placed_of(row) for row in rows}

    async def job_words(self) -> Mapping[RunnerId, JobWords]:
        rows = await self._database.rows(*_SQL["job_words"]())
        return {RunnerId(row["id"]): converted(JobWords, row) for row in rows}

    async def oldest_queued(
        self, keys: Sequence[KeyId], *, limit: int
    ) -> Mapping[KeyId, Sequence[tuple[HostId, JobId]]]:
        rows = await self._database.rows(*_SQL["oldest_queued"](keys=sorted(keys), limit=limit))
        found: dict[KeyId, list[tuple[HostId, JobId]]] = {}
        for row in rows:
            job = (HostId(row["host_id"]), JobId(row["id"]))
            found.setdefault(KeyId(row["key_id"]), []).append(job)
        return found

    async def unreadable_repositories(
        self, paused: Sequence[PausedScope], *, apps: Sequence[AppId]
    ) -> list[RepositoryId]:
        if not paused:
            return []
        rows = await self._database.rows(
            *_SQL["unreadable_repositories"](
                paused_apps=[each.app for each in paused],
                installations=[each.installation for each in paused],
                repositories=[each.repository for each in paused],
                apps=list(apps),
            ),
        )
        return [RepositoryId(row["id"]) for row in rows]

    async def jobs_in_doubt(
        self,
        since: DoubtTerms,
        *,
        also: Sequence[tuple[HostId, JobId]] = (),
        unreadable: Sequence[RepositoryId] = (),
        limit: int,
    ) -> list[JobInDoubt]:
        rows = await self._database.rows(
            *_SQL["jobs_in_doubt"](
                gone_before=since.gone_before,
                asked_before=since.asked_before,
                waiting_before=since.waiting_before,
                expired_before=since.expired_before,
                running_before=since.running_before,
                limit=limit,
                also_hosts=[host for host, _ in also],
                also_jobs=[job for _, job in also],
                unheard_before=since.unheard_before,
                now=self._clock.now(),
                unreadable=list(unreadable),
            ),
        )
        return [_doubt_of(row) for row in rows]

    async def open_verdicts(
        self,
        *,
        after: datetime,
        until: datetime,
        unreadable: Sequence[RepositoryId] = (),
        but: Sequence[RunnerId] = (),
        limit: int,
    ) -> list[OpenVerdict]:
        rows = await self._database.rows(
            *_SQL["open_verdicts"](
                after=after, until=until, limit=limit, unreadable=list(unreadable), but=list(but)
            )
        )
        return [converted(OpenVerdict, row) for row in rows]

    async def note_job_check(
        self, host: HostId, job: JobId, *, answer: JobWord, waits_because: str | None = None
    ) -> int:
        async with self._database.transaction() as connection:
            times: int | None = await connection.fetchval(
                *_SQL["checked"](
                    host=host,
                    job=job,
                    answer=answer,
                    now=self._clock.now(),
                    waits_because=waits_because,
                )
            )
        return times or 0

    async def explain_job(self, host: HostId, job: JobId, *, waits_because: str) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(
                *_SQL["explain"](host=host, job=job, waits_because=waits_because)
            )

    async def withhold_unassigned(self, key: KeyId, terms: UnassignedTerms) -> int:
        async with self._database.transaction() as connection:
            rows = await connection.fetch(
                *_SQL["withhold"](
                    key=key,
                    now=self._clock.now(),
                    seconds=terms.seconds,
                    ceiling=terms.ceiling,
                    refusal=UnservedCause.NOT_ASSIGNED,
                ),
            )
        return len(rows)

    async def expire_job(self, host: HostId, job: JobId, *, state: JobState, why: str) -> bool:
        async with self._database.transaction() as connection:
            found = await connection.fetchval(
                *_SQL["expire"](
                    host=host,
                    job=job,
                    now=self._clock.now(),
                    actor=self.actor,
                    why=why,
                    state=state,
                )
            )
        return found is not None

    async def record_action(self, taken: ActionTaken) -> None:
        await self.record_actions([taken])

    async def record_actions(self, taken: Sequence[ActionTaken]) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(
                *_SQL["act"](
                    now=self._clock.now(),
                    actor=self.actor,
                    rules=[each.rule for each in taken],
                    actions=[each.action for each in taken],
                    outcomes=[each.outcome for each in taken],
                    runners=[each.runner for each in taken],
                    hosts=[each.job and each.job[0] for each in taken],
                    jobs=[each.job and each.job[1] for each in taken],
                    pods=[each.pod_name for each in taken],
                    whys=[each.why for each in taken],
                    evidence=[each.evidence for each in taken],
                ),
            )

    async def logs_wanted(self) -> list[WantedLog]:
        rows = await self._database.rows(*_SQL["logs_wanted"]())
        return [converted(WantedLog, row) for row in rows]

    async def keep_log(self, runner: RunnerId, log_tail: str) -> bool:
        async with self._database.transaction() as connection:
            found = await connection.fetchval(*_SQL["keep_log"](runner=runner, log_tail=log_tail))
        return found is not None

    async def end_post_mortem(self, runner: RunnerId, *, circumstances: Sequence[str]) -> bool:
        async with self._database.transaction() as connection:
            found = await connection.fetchval(
                *_SQL["end_post_mortem"](runner=runner, circumstances=list(circumstances))
            )
        return found is not None

    async def late_news(self, *, since: datetime, limit: int) -> list[LateNews]:
        rows = await self._database.rows(*_SQL["late_news"](since=since, limit=limit))
        return [converted(LateNews, row) for row in rows]

    async def refine_verdict(
        self, runner: RunnerId, *, ending: Ending, why: str, evidence: str
    ) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(
                *_SQL["refine"](
                    runner=runner,
                    ending=ending,
                    abnormal=ending.abnormal,
                    why=why,
                    evidence=evidence,
                    now=self._clock.now(),
                ),
            )
            await connection.execute(*_SQL["accept_version"](runner=runner))


def _runner_scope_of(row: asyncpg.Record) -> RunnerScope:
    return converted(
        RunnerScope,
        row,
        who=installation_of(row),
        scope=scope_of(row),
        keys=dict(zip(row["pools"], row["keys"], strict=True)),
    )


def _place_of(row: asyncpg.Record) -> KeyPlace:
    return converted(
        KeyPlace, row, host=row["host_id"], who=installation_of(row), scope=scope_of(row)
    )


def _placed_of(row: asyncpg.Record) -> PlacedJob:
    repository = converted(ActiveRepository, row, compared_at=None, has_open_jobs=True)
    return converted(PlacedJob, row, repository=repository)


def _doubt_of(row: asyncpg.Record) -> JobInDoubt:
    answer = row["answer"] or JobWord.NOT_ASKED
    return converted(JobInDoubt, row, executor=_executor(row), answer=answer)


def _executor(row: asyncpg.Record) -> ExecutorState:
    if row["runner_id"] is None:
        return ExecutorState.NONE if row["executor_id"] is None else ExecutorState.FOREIGN
    return ExecutorState.ALIVE if row["runner_gone_at"] is None else ExecutorState.GONE
