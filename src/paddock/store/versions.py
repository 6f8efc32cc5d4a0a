"""Versions of the runner program: which Pods have which, and until when GitHub accepts each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from paddock.domain.ids import AccountId, RunnerId
from paddock.domain.pods.pod import Pod
from paddock.domain.reading.overview import PoolVersionLine
from paddock.domain.runners.versions import (
    AcceptedRunner,
    RefusalTerms,
    RefusedRunner,
    RunnerVersion,
    VersionQuestion,
    VersionSchedule,
)
from paddock.store.base import StorePart
from paddock.store.database import retrying
from paddock.store.row_parts import installation_of, scope_of
from paddock.store.sql import converted, named

_SQL = named("versions")


class Versions(StorePart):
    @retrying
    async def note_versions(self, pods: Sequence[Pod]) -> None:
        told = [pod for pod in pods if pod.runner_version is not None]
        if not told:
            return
        async with self._database.transaction() as connection:
            await connection.execute(
                *_SQL["note"](
                    pods=[pod.name for pod in told],
                    uids=[pod.uid for pod in told],
                    versions=[pod.runner_version for pod in told],
                ),
            )

    async def version_questions(self, *, limit: int) -> list[VersionQuestion]:
        rows = await self._database.rows(*_SQL["questions"](now=self._clock.now(), limit=limit))
        return [
            converted(VersionQuestion, row, who=installation_of(row), scope=scope_of(row))
            for row in rows
        ]

    async def answer_version(
        self,
        account: AccountId,
        schedule: VersionSchedule,
        *,
        ask_at: datetime,
    ) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(
                *_SQL["answer"](
                    account=account,
                    version=schedule.version,
                    registration_ends_at=schedule.registration_ends_at,
                    runtime_ends_at=schedule.runtime_ends_at,
                    now=self._clock.now(),
                    ask_at=ask_at,
                ),
            )

    async def postpone_version(
        self, account: AccountId, version: RunnerVersion, *, ask_at: datetime
    ) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(
                *_SQL["postpone"](account=account, version=version, ask_at=ask_at)
            )

    @retrying
    async def refuse_version(self, runner: RunnerId, terms: RefusalTerms) -> RefusedRunner | None:
        async with self._database.transaction() as connection:
            row = await connection.fetchrow(
                *_SQL["refuse"](
                    runner=runner,
                    now=self._clock.now(),
                    seconds=terms.seconds,
                    ceiling=terms.ceiling,
                )
            )
        return row and converted(RefusedRunner, row)

    async def accept_versions(self, accepted: Sequence[AcceptedRunner]) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(
                *_SQL["accept"](
                    accounts=[each.account for each in accepted],
                    versions=[each.version for each in accepted],
                    claimed_at=[each.claimed_at for each in accepted],
                ),
            )

    async def forget_versions(self, *, before: datetime) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(*_SQL["forget"](before=before))

    async def pool_versions(self) -> list[PoolVersionLine]:
        rows = await self._database.rows(*_SQL["pools"](now=self._clock.now()))
        return [converted(PoolVersionLine, row) for row in rows]
