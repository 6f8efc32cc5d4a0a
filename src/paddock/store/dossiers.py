"""All that is written down about one job or one runner, read at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import asyncpg
import msgspec

from paddock.domain.allocation import Withheld
from paddock.domain.backoffs import BackOffScope
from paddock.domain.dossiers import (
    Action,
    BackedOff,
    Check,
    ChosenName,
    Event,
    JobDossier,
    JobInBrief,
    JobOnFile,
    PassedOver,
    Pause,
    RelatedRunner,
    RunnerDossier,
    VerdictOnFile,
    Wait,
)
from paddock.domain.endings import Ending
from paddock.domain.ids import HostId, JobId, KeyId, PoolId, RunnerId
from paddock.domain.limits import Limits, Resources
from paddock.domain.runners import WaitingPod, WaitingPods
from paddock.domain.states import JobState
from paddock.store.database import Connection
from paddock.store.living import runner_of
from paddock.store.matching import BATCH, Matching
from paddock.store.sql import queries
from paddock.store.vitals import series_of

_SQL = queries("dossiers")
_VITALS = queries("vitals")

#: What belongs together is read together.
_ONE_MOMENT: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

#: Of mints that failed for a job's key the last few say it all.
_FAILED_MINTS: Final = 5
#: Deliveries that are looked through for a job nobody stored: some minutes of a busy GitHub, and a
#: second's work.
_LOOKED_THROUGH: Final = 5_000

_BIGINT: Final = 2**63


class _ToldJob(msgspec.Struct, frozen=True):
    id: int
    labels: tuple[str, ...] = ()


class _Told(msgspec.Struct, frozen=True):
    workflow_job: _ToldJob


class DossierReading(Matching):
    async def find_dossiers(self, name: str) -> Sequence[JobDossier | RunnerDossier]:
        found: list[JobDossier | RunnerDossier] = []
        async with self._database.transaction(begin=_ONE_MOMENT) as connection:
            if name.isascii() and name.isdigit() and int(name) < _BIGINT:
                for row in await connection.fetch(_SQL["jobs_numbered"], int(name)):
                    job = await self._job(connection, row["host_id"], row["id"])
                    found += [job] if job else []
            runner = await connection.fetchval(_SQL["runner_named"], name)
            if runner is not None:
                told = await self._runner(connection, RunnerId(runner))
                found += [told] if told else []
        return found

    async def job_dossier(self, host: HostId, job: JobId) -> JobDossier | None:
        async with self._database.transaction(begin=_ONE_MOMENT) as connection:
            return await self._job(connection, host, job)

    async def runner_dossier(self, runner: RunnerId) -> RunnerDossier | None:
        async with self._database.transaction(begin=_ONE_MOMENT) as connection:
            return await self._runner(connection, runner)

    async def passed_over(self, job: JobId) -> PassedOver | None:
        async with self._database.transaction(begin=_ONE_MOMENT) as connection:
            rows = await connection.fetch(_SQL["told"], job, _LOOKED_THROUGH)
        for row in rows:
            try:
                told = msgspec.json.decode(row["body"], type=_Told).workflow_job
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            if told.id == job:
                return PassedOver(
                    job=job,
                    labels=told.labels,
                    received_at=row["received_at"],
                    state=row["state"],
                    note=row["note"],
                )
        return None

    async def _job(self, connection: Connection, host: HostId, job: JobId) -> JobDossier | None:
        row = await connection.fetchrow(_SQL["job"], host, job)
        if row is None:
            return None
        check = await connection.fetchrow(_SQL["check"], host, job)
        related = await connection.fetch(_SQL["related"], host, job)
        own = [each["id"] for each in related if each["executed"] or each["hinted"]]
        events = await connection.fetch(_SQL["job_events"], host, job, own)
        actions = await connection.fetch(_SQL["job_actions"], host, job, own)
        wait = None
        if row["key_id"] is not None:
            until = row["completed_at"] or self._clock.now()
            events += await connection.fetch(
                _SQL["failed_mints"], row["key_id"], row["created_at"], until, _FAILED_MINTS
            )
            if row["state"] == JobState.QUEUED:
                wait = await self._wait(connection, row)
        return JobDossier(
            job=_job_of(row),
            wait=wait,
            check=check and _check_of(check),
            runners=tuple(_related_of(each) for each in related),
            events=_in_order(events),
            actions=tuple(_action_of(each) for each in actions),
        )

    async def _wait(self, connection: Connection, job: asyncpg.Record) -> Wait:
        now = self._clock.now()
        row = await connection.fetchrow(_SQL["wait"], job["key_id"], job["id"], now)
        return _wait_of(row, await self._withheld(connection, job))

    async def _withheld(self, connection: Connection, job: asyncpg.Record) -> Withheld | None:
        """What the matcher would say now: its own reads, its own decision, and nothing written."""
        waiting = WaitingPods(
            WaitingPod(
                id=RunnerId(row["id"]),
                pool=PoolId(row["pool_id"]),
                pod_name=row["pod_name"],
                generation=row["generation"],
            )
            for row in await connection.fetch(_SQL["waiting_pods"])
        )
        batch = min(len(waiting), BATCH)
        decision = await self._decide(
            connection, waiting, await self._look(connection, batch, batch + 1)
        )
        return decision.allocation.withheld.get(KeyId(job["key_id"]))

    async def _runner(self, connection: Connection, runner: RunnerId) -> RunnerDossier | None:
        row = await connection.fetchrow(_SQL["runner"], runner)
        if row is None:
            return None
        jobs = await connection.fetch(_SQL["jobs_of_runner"], runner)
        names = await connection.fetch(_SQL["names"], runner)
        events = await connection.fetch(_SQL["runner_events"], runner)
        actions = await connection.fetch(_SQL["runner_actions"], runner)
        samples = series_of(await connection.fetchrow(_VITALS["read"], runner))
        return RunnerDossier(
            runner=runner_of(row),
            pool=row["pool"],
            pool_paused=_pause_of(row, ""),
            everybody_paused=_pause_of(row, "all_"),
            queued=row["queued"],
            account=row["login"],
            verdict=_verdict_of(row),
            jobs=tuple(_brief_of(each) for each in jobs),
            names=tuple(
                ChosenName(
                    name=each["name"],
                    at=each["chosen_at"],
                    state=each["state"],
                    outcome=each["outcome"],
                )
                for each in names
            ),
            events=_in_order(events),
            actions=tuple(_action_of(each) for each in actions),
            last_sample=samples[-1] if samples else None,
        )


def _in_order(rows: Iterable[asyncpg.Record]) -> tuple[Event, ...]:
    once = {row["id"]: row for row in rows}
    ordered = sorted(once.values(), key=lambda row: (row["at"], row["id"]))
    return tuple(
        Event(
            at=row["at"],
            actor=row["actor"],
            before=row["before"],
            after=row["after"],
            why=row["why"],
            pod=row["pod_name"],
            evidence=row["evidence"],
        )
        for row in ordered
    )


def _action_of(row: asyncpg.Record) -> Action:
    return Action(
        at=row["at"],
        actor=row["actor"],
        rule=row["rule"],
        action=row["action"],
        outcome=row["outcome"],
        why=row["why"],
        pod=row["pod"],
        evidence=row["evidence"],
    )


def _job_of(row: asyncpg.Record) -> JobOnFile:
    return JobOnFile(
        host=HostId(row["host_id"]),
        host_name=row["host"],
        id=JobId(row["id"]),
        account=row["login"],
        repository=row["full_name"],
        run_id=row["run_id"],
        name=row["name"],
        workflow=row["workflow"],
        labels=tuple(row["labels"]),
        state=JobState(row["state"]),
        pool=row["pool"],
        refusal=row["refusal"],
        refusal_detail=row["refusal_detail"],
        created_at=row["created_at"],
        queued_at=row["queued_at"],
        started_at=row["started_at"],
        completed_at=row["completed_at"],
        conclusion=row["conclusion"],
        executor=row["executor_name"],
        demotions=row["demotions"],
        seen_at=row["seen_at"],
        since=row["since"],
        why=row["why"],
        beside_limits=row["beside_limits"],
        trusted=row["trusted"],
        trust_why=row["trust_why"],
    )


def _check_of(row: asyncpg.Record) -> Check:
    return Check(
        at=row["checked_at"],
        answer=row["answer"],
        times=row["times"],
        waits_because=row["waits_because"],
    )


def _related_of(row: asyncpg.Record) -> RelatedRunner:
    return RelatedRunner(
        runner=runner_of(row),
        executed=row["executed"],
        hinted=row["hinted"],
        verdict=_verdict_of(row),
    )


def _verdict_of(row: asyncpg.Record) -> VerdictOnFile | None:
    if row["verdict"] is None:
        return None
    return VerdictOnFile(
        ending=Ending(row["ending"]),
        abnormal=row["abnormal"],
        why=row["verdict_why"],
        exit_code=row["exit_code"],
        signal=row["signal"],
        reason=row["reason"],
        node=row["verdict_node"],
        ended_at=row["ended_at"],
        written_at=row["written_at"],
        refined_at=row["refined_at"],
        log_tail=row["log_tail"],
        evidence=row["verdict_evidence"],
    )


def _brief_of(row: asyncpg.Record) -> JobInBrief:
    return JobInBrief(
        host_name=row["host"],
        id=JobId(row["id"]),
        name=row["name"],
        repository=row["full_name"],
        state=JobState(row["state"]),
        conclusion=row["conclusion"],
        executed=row["executed"],
    )


def _pause_of(row: asyncpg.Record, prefix: str) -> Pause | None:
    at = row[f"{prefix}paused_at"]
    return None if at is None else Pause(at=at, by=row[f"{prefix}paused_by"])


def _wait_of(row: asyncpg.Record, withheld: Withheld | None) -> Wait:
    back_off = None
    if row["scope"] is not None:
        back_off = BackedOff(
            scope=BackOffScope(row["scope"]),
            until=row["until"],
            failures=row["failures"],
            reason=row["reason"],
        )
    return Wait(
        ahead=row["ahead"],
        supply=row["supply"],
        echoes=row["echoes"],
        echoes_until=row["echoes_until"],
        withheld=withheld,
        everybody_paused=_pause_of(row, "all_"),
        account_paused=_pause_of(row, "account_"),
        pool_paused=_pause_of(row, "pool_"),
        pool_state=row["pool_state"],
        installation=row["installation"],
        back_off=back_off,
        account_limits=_limits_of(row, ""),
        account_used=_used_of(row, ""),
        repository_limits=_limits_of(row, "repository_"),
        repository_used=_used_of(row, "repository_"),
        repository_wider=row["repository_wider"],
        pool_maximum=row["pool_maximum"],
        pool_occupied=row["occupied"],
        idle=row["idle"],
        booting=row["booting"],
        pool_target=row["target"],
        pool_because=row["because"],
    )


def _limits_of(row: asyncpg.Record, prefix: str) -> Limits:
    return Limits(
        runners=row[f"{prefix}max_runners"],
        vcpu_milli=row[f"{prefix}max_vcpu_milli"],
        memory_mib=row[f"{prefix}max_memory_mib"],
    )


def _used_of(row: asyncpg.Record, prefix: str) -> Resources:
    return Resources(
        runners=row[f"{prefix}runners"],
        vcpu_milli=int(row[f"{prefix}vcpu_milli"]),
        memory_mib=int(row[f"{prefix}memory_mib"]),
    )
