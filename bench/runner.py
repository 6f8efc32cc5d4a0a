"""Jobs that do nothing, run by a runner program that others wrote (`make runner`), forty at once: what
of a job's time is the runner's own, and what is paddock's.

All of it is on this machine: `paddock up`, its runners, and a fake GitHub that answers at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import asyncpg
from rich.console import RenderableType

from bench.common import Neighbours, Report, Unusable, environment, percentile, say, table
from paddock.fakes.github.records import Job, JobStatus
from paddock.store.data_directory import running_url
from tests.support.third_party import ThirdPartySite, third_party_site
from tools.cluster.binaries import RUNNER, find

AT_ONCE: Final = 40
JOBS: Final = 1000
QUICK_JOBS: Final = 200
#: For all of them.
LIMIT: Final = 1200.0

_MOMENTS: Final = """
SELECT r.job_id, r.claimed_at, r.acknowledged_at, v.ended_at, r.gone_at, v.ending::text AS ending
  FROM runners r JOIN verdicts v ON v.runner_id = r.id WHERE r.job_id IS NOT NULL
"""

#: What is measured, whose it is, and between which moments.
_PARTS: Final = (
    ("claim to JIT in the Pod's hands", "paddock", "claimed_at", "acknowledged_at"),
    ("start, sign in, fetch the job", "runner", "acknowledged_at", "started_at"),
    ("run it and report it", "runner", "started_at", "completed_at"),
    ("end of the process", "runner", "completed_at", "ended_at"),
    ("end to verdict, its place free", "paddock", "ended_at", "gone_at"),
)


async def run(*, quick: bool) -> Report:
    if find(RUNNER) is None:
        raise Unusable(f"there is no {RUNNER}: make runner builds it")
    count, others = QUICK_JOBS if quick else JOBS, Neighbours()
    async with third_party_site() as site:
        await site.pool(idle=AT_ONCE, most=AT_ONCE)
        say(f"{AT_ONCE} runners wait; {count} jobs are queued")
        began = time.monotonic()
        jobs = [job for _ in range(count // AT_ONCE) for job in site.queue("true", jobs=AT_ONCE)]
        await _all_completed(jobs, began)
        seconds = time.monotonic() - began
        await site.until("SELECT count(*) >= $1 FROM verdicts", len(jobs))
        moments = await _moments(site, jobs)
        url = running_url(site.data_dir)
        assert url is not None
        about = await environment(url)
    parts = {
        name: [(each[until] - each[since]).total_seconds() for each in moments]
        for name, _, since, until in _PARTS
    }
    failed = sum(job.conclusion != "success" for job in jobs)
    data = {
        "jobs": len(jobs),
        "failed": failed,
        "runners": len({job.runner.id for job in jobs if job.runner}),
        "endings": sorted({each["ending"] for each in moments}),
        "seconds": round(seconds, 1),
        "parts": {name: _summary(values) for name, values in parts.items()},
    }
    return Report(
        environment={**about, "neighbours": others.share()},
        data=data,
        show=lambda: _shown(data, parts),
    )


async def _all_completed(jobs: Sequence[Job], began: float) -> None:
    shown = 0
    while (done := sum(job.status is JobStatus.COMPLETED for job in jobs)) < len(jobs):
        if time.monotonic() - began > LIMIT:
            raise Unusable(f"only {done} of {len(jobs)} jobs completed within {LIMIT:.0f} s")
        if done >= shown + 100:
            shown = done
            say(f"{done} jobs have completed")
        await asyncio.sleep(0.5)


async def _moments(site: ThirdPartySite, jobs: Sequence[Job]) -> list[Mapping[str, Any]]:
    by_number = {job.id: job for job in jobs}
    url = running_url(site.data_dir)
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch(_MOMENTS)
    finally:
        await connection.close()
    found: list[Mapping[str, datetime | str | None]] = []
    for row in rows:
        job = by_number[row["job_id"]]
        found.append({**row, "started_at": job.started_at, "completed_at": job.completed_at})
    return found


def _summary(values: Sequence[float]) -> dict[str, float]:
    return {
        "median": round(percentile(values, 50), 3),
        "p95": round(percentile(values, 95), 3),
        "longest": round(max(values), 3),
    }


def _shown(data: Mapping[str, Any], parts: Mapping[str, list[float]]) -> list[RenderableType]:
    whose = {name: party for name, party, _, _ in _PARTS}
    rows = [
        (name, whose[name], *(f"{percentile(values, each):.2f}" for each in (50, 95, 100)))
        for name, values in parts.items()
    ]
    title = (
        f"{data['jobs']} jobs on {data['runners']} runners, {AT_ONCE} at once, {data['failed']} "
        f"failed, in {data['seconds']:.0f} s"
    )
    return [table(title, "seconds per job", "whose", "median", "95 %", "longest", rows=rows)]
