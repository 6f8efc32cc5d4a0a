"""procrastinate's own `JobManager.fetch_job`, over its own psycopg connector.

At its best documented settings: the asynchronous connector with a pool opened for it
(`App.open_async(pool)`), one connection for each worker, statements prepared at their first use,
and no transaction block around a single statement. Its connector's own pool asks every connection
whether it is alive before each use, which costs it a third of its rate; ours does not, so this one
need not.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import procrastinate
import psycopg_pool

from bench.engines.base import Ask, Claimed, Engine, Section, race

_QUEUE = """
INSERT INTO procrastinate_jobs (queue_name, task_name, args, status, worker_id)
SELECT 'default', 'run', jsonb_build_object('account', account_id, 'name', 'build (' || position || ')',
                                            'labels', '["self-hosted", "linux"]'::jsonb),
       $2::text::procrastinate_job_status, $3
  FROM unnest($1::int[]) WITH ORDINALITY AS new (account_id, position)
RETURNING id, worker_id, (args ->> 'account')::int AS account_id
"""
_END = """
UPDATE procrastinate_jobs SET status = 'succeeded', attempts = attempts + 1 WHERE id = ANY ($1)
"""
_DEPTH = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'todo'"
_USED = """
SELECT (args ->> 'account')::int, count(*)
  FROM procrastinate_jobs WHERE status = 'doing' AND worker_id IS NOT NULL GROUP BY 1
"""
_MARKED = """
SELECT count(*)
  FROM unnest($1::bigint[], $2::bigint[]) AS claim (id, worker_id)
  JOIN procrastinate_jobs USING (id, worker_id)
 WHERE status = 'doing'
"""


def _claims(answer: tuple[int, Any]) -> list[Claimed]:
    worker, job = answer
    return [Claimed(job.id, str(worker), job.task_kwargs["account"])] if job else []


class Procrastinate(Engine):
    name = "procrastinate"
    title = "procrastinate fetch_job"

    async def fill(self) -> list[Claimed]:
        # It warns that an app ought to be at the top level of its module.
        logging.getLogger("procrastinate").setLevel(logging.ERROR)
        self._pools: list[Any] = []
        self._apps: dict[int, tuple[Any, list[int]]] = {}
        app = procrastinate.App(
            connector=procrastinate.PsycopgConnector(conninfo=self.url, min_size=1, max_size=1)
        )
        async with app.open_async():
            await app.schema_manager.apply_schema_async()
            worker = await app.job_manager.register_worker()
        busy = await self.admin.fetch(_QUEUE, self.cell.busy(), "doing", worker)
        await self.admin.execute(_QUEUE, self.cell.queued(), "todo", None)
        return [Claimed(row["id"], str(row["worker_id"]), row["account_id"]) for row in busy]

    async def use(self, workers: int) -> None:
        if workers not in self._apps:
            self._apps[workers] = await self._open_app(workers)
        self._manager, self._workers = self._apps[workers]

    async def _open_app(self, workers: int) -> tuple[Any, list[int]]:
        pool = psycopg_pool.AsyncConnectionPool(
            self.url,
            min_size=workers,
            max_size=workers,
            kwargs={"autocommit": True, "prepare_threshold": 0},
            open=False,
        )
        await pool.open(wait=True)
        self._pools.append(pool)
        app = procrastinate.App(connector=procrastinate.PsycopgConnector())
        await app.open_async(pool)
        manager = app.job_manager
        return manager, [await manager.register_worker() for _ in range(workers)]

    async def leave(self) -> None:
        for pool in self._pools:
            await pool.close()

    async def section(self) -> Section:
        return await race([self._worker(worker) for worker in self._workers], read=_claims)

    def _worker(self, worker: int) -> Ask:
        fetch = self._manager.fetch_job

        async def ask() -> tuple[int, Any]:
            return worker, await fetch(None, worker_id=worker)

        return ask

    async def recycle(self, *, started: Sequence[Claimed], ended: Sequence[Claimed]) -> None:
        async with self.admin.transaction():
            await self.admin.execute(_END, [claim.job for claim in ended])
            await self.admin.execute(_QUEUE, [claim.account for claim in started], "todo", None)

    async def depth(self) -> int:
        return int(await self.admin.fetchval(_DEPTH))

    async def used(self) -> dict[int, int]:
        return dict(await self.admin.fetch(_USED))

    async def marked(self, claims: Sequence[Claimed]) -> int:
        return int(
            await self.admin.fetchval(
                _MARKED, [claim.job for claim in claims], [int(claim.pod) for claim in claims]
            )
        )
