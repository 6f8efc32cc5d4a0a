"""Everything recorded about one job or one runner, read in one snapshot."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import asyncpg
import msgspec

from paddock.domain.allocation import Withheld
from paddock.domain.backoffs import BackOffCause, BackOffScope
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
    RefusedVersion,
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
from paddock.store.live_runners import runner_of
from paddock.store.looking import LONGEST_LOOK, looking
from paddock.store.matching import BATCH, Matching
from paddock.store.pauses import pause_of
from paddock.store.sql import queries
from paddock.store.vitals import series_of

_SQL = queries("dossiers")
_VITALS = queries("vitals")

#: All statements of one dossier read the same snapshot.
_ONE_MOMENT: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

#: For the reasons shown in a list: limited in time, so that a reader never waits long for them.
_SHORT_MOMENT: Final = f"{_ONE_MOMENT}; SET LOCAL statement_timeout = '{LONGEST_LOOK}s'"

#: The last few failed mints of a job's key are enough.
_FAILED_MINTS: Final = 5
#: How many deliveries are searched for a job that has no row: some minutes of a busy GitHub, and one
#: second of work.
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

    async def waiting_dossiers(self, jobs: Collection[tuple[str, int]]) -> Sequence[JobDossier]:
        async with looking(self._database, _SHORT_MOMENT) as connection:
            hosts = {row["name"]: row["id"] for row in await connection.fetch(_SQL["hosts"])}
            known = [(hosts[host], job) for host, job in jobs if host in hosts]
            rows = await connection.fetch(
                _SQL["jobs"], [host for host, _ in known], [job for _, job in known]
            )
            queued = [row for row in rows if row["state"] == JobState.QUEUED]
            waits = await self._waits(connection, {KeyId(row["key_id"]) for row in queued} - {None})
            places = await self._places(connection, waits)
            coming = [key for key, wait in waits.items() if wait.supply]
            runners = await connection.fetch(_SQL["on_their_way"], coming) if coming else []
        return [_waiting_of(row, waits, places, runners) for row in queued]

    async def _job(self, connection: Connection, host: HostId, job: JobId) -> JobDossier | None:
        row = await connection.fetchrow(_SQL["jobs"], [host], [job])
        if row is None:
            return None
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
            check=_check_of(row),
            runners=tuple(_related_of(each) for each in related),
            events=_in_order(events),
            actions=tuple(_action_of(each) for each in actions),
        )

    async def _wait(self, connection: Connection, job: asyncpg.Record) -> Wait:
        key = KeyId(job["key_id"])
        waits = await self._waits(connection, [key])
        ahead = await connection.fetchval(_SQL["ahead"], job["host_id"], job["id"])
        return replace(waits[key], ahead=ahead)

    async def _waits(self, connection: Connection, keys: Collection[KeyId]) -> Mapping[KeyId, Wait]:
        """Per key, why a job waits for which no supply is on its way."""
        if not keys:
            return {}
        rows = await connection.fetch(_SQL["waits"], sorted(keys), self._clock.now())
        withheld = await self._withheld(connection)
        return {KeyId(row["id"]): _wait_of(row, withheld.get(row["id"])) for row in rows}

    async def _places(
        self, connection: Connection, waits: Mapping[KeyId, Wait]
    ) -> Mapping[tuple[int, int], int]:
        """How many jobs are served before each job for which supply is on its way. For the other jobs
        that count would need a scan of the whole queue."""
        served = {key: wait.ahead for key, wait in waits.items() if wait.ahead}
        if not served:
            return {}
        rows = await connection.fetch(_SQL["first_in_line"], [*served], [*served.values()])
        return {(row["host_id"], row["id"]): row["ahead"] for row in rows}

    async def _withheld(self, connection: Connection) -> Mapping[KeyId, Withheld]:
        """What the matcher would decide now, by its own reads and decision, without writing."""
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
        return decision.allocation.withheld

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
            pool_paused=pause_of(row),
            everybody_paused=pause_of(row, "all_"),
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


def _waiting_of(
    row: asyncpg.Record,
    waits: Mapping[KeyId, Wait],
    places: Mapping[tuple[int, int], int],
    runners: Sequence[asyncpg.Record],
) -> JobDossier:
    wait = waits.get(row["key_id"])
    ahead = places.get((row["host_id"], row["id"]))
    return JobDossier(
        job=_job_of(row),
        wait=wait if wait is None or ahead is None else replace(wait, ahead=ahead),
        check=_check_of(row),
        runners=tuple(
            RelatedRunner(
                runner=runner_of(each),
                executed=False,
                hinted=each["hint_job_id"] == row["id"],
                verdict=None,
            )
            for each in runners
            if each["key_id"] == row["key_id"]
        ),
        events=(),
        actions=(),
    )


def _check_of(row: asyncpg.Record) -> Check | None:
    if row["checked_at"] is None:
        return None
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


def _wait_of(row: asyncpg.Record, withheld: Withheld | None) -> Wait:
    back_off = None
    if row["scope"] is not None:
        back_off = BackedOff(
            scope=BackOffScope(row["scope"]),
            until=row["until"],
            failures=row["failures"],
            cause=BackOffCause(row["cause"]),
            reason=row["reason"],
        )
    return Wait(
        ahead=row["supply"] + row["supply_graces"],
        supply=row["supply"],
        supply_graces=row["supply_graces"],
        supply_grace_until=row["supply_grace_until"],
        withheld=withheld,
        everybody_paused=pause_of(row, "all_"),
        account_paused=pause_of(row, "account_"),
        pool_paused=pause_of(row, "pool_"),
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
        refused_version=_refused_of(row),
    )


def _refused_of(row: asyncpg.Record) -> RefusedVersion | None:
    if row["refused_version"] is None:
        return None
    return RefusedVersion(
        version=row["refused_version"],
        ended_at=row["version_ended_at"],
        refused_at=row["version_refused_at"],
        refused_until=row["version_refused_until"],
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
