"""Bursts of jobs on a real control plane: how many a second paddock takes from webhook to a Pod that is
gone, and what each costs in requests.

API server, etcd, scheduler and paddock are real; so are tokens and their reviews, webhooks, mints and
verdicts. Nodes and containers are played: kwok keeps the node, and who polls, runs and ends is this
process, with the token that Kubernetes gives for each Pod. Jobs take no time, so what is measured is
the control plane. It needs a cluster (`make cluster`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import RenderableType

from bench.burst_site import PADDOCK, Burst, burst_site
from bench.common import Neighbours, Report, environment, percentile, postgres, say, table

GOALS = {"jobs_per_s": 32.0, "finished_to_gone_p50_s": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    bursts: Sequence[int]


FULL = Effort(bursts=(100, 500))
QUICK = Effort(bursts=(100,))


async def run(*, quick: bool) -> Report:
    effort = QUICK if quick else FULL
    neighbours = Neighbours()
    bursts = []
    async with postgres() as server:
        about = await environment(server)
        async with burst_site(server) as site:
            for jobs in effort.bursts:
                await site.warm()
                say(f"a burst of {jobs} jobs")
                bursts.append(await site.burst(jobs))
    about["neighbours"] = neighbours.share()
    return Report(environment=about, data=_data(bursts), show=lambda: _tables(bursts))


def _of(burst: Burst) -> dict[str, object]:
    return {
        "jobs": burst.jobs,
        "jobs_per_s": round(burst.jobs / burst.seconds, 2),
        "queued_to_jit_p50_s": round(percentile(burst.queued_to_jit, 50), 3),
        "queued_to_jit_p99_s": round(percentile(burst.queued_to_jit, 99), 3),
        "finished_to_gone_p50_s": round(percentile(burst.finished_to_gone, 50), 3),
        "finished_to_gone_p99_s": round(percentile(burst.finished_to_gone, 99), 3),
        "apiserver_requests_per_job": round(sum(burst.apiserver.values()) / burst.jobs, 2),
        "apiserver_requests": dict(sorted(burst.apiserver.items())),
        "github_requests_per_job": round(burst.github / burst.jobs, 2),
        "cpu_ms_per_job": round(burst.cpu[PADDOCK] / burst.jobs * 1e3, 1),
        "cpu_ms_per_job_of": _shares(burst),
    }


def _shares(burst: Burst) -> dict[str, float]:
    """The largest first."""
    by_use = sorted(burst.cpu.items(), key=lambda part: -part[1])
    return {name: round(seconds / burst.jobs * 1e3, 1) for name, seconds in by_use}


def _data(bursts: Sequence[Burst]) -> dict[str, object]:
    return {
        "ours": _of(bursts[-1]),
        "bursts": [_of(burst) for burst in bursts],
        "goals": GOALS,
    }


def _tables(bursts: Sequence[Burst]) -> list[RenderableType]:
    columns = [_of(burst) for burst in bursts]

    def row(title: str, name: str, goal: str = "") -> list[str]:
        return [title, goal, *(str(each[name]) for each in columns)]

    return [
        table(
            "Jobs that take no time, from the first webhook to the last Pod gone",
            *("", "to aim at", *(f"{burst.jobs} jobs" for burst in bursts)),
            rows=[
                row("jobs per second", "jobs_per_s", f"{GOALS['jobs_per_s']:g}"),
                row("queued to JIT, p50 s", "queued_to_jit_p50_s"),
                row("queued to JIT, p99 s", "queued_to_jit_p99_s"),
                row(
                    "finished to Pod gone, p50 s",
                    "finished_to_gone_p50_s",
                    f"{GOALS['finished_to_gone_p50_s']:g}",
                ),
                row("finished to Pod gone, p99 s", "finished_to_gone_p99_s"),
                row("requests to the API server, per job", "apiserver_requests_per_job"),
                row("requests to GitHub, per job", "github_requests_per_job"),
            ],
        ),
        table(
            "Who uses the processor, ms per job",
            *("", *(f"{burst.jobs} jobs" for burst in bursts)),
            rows=[
                [name, *(str(_shares(burst)[name]) for burst in bursts)]
                for name in _shares(bursts[-1])
            ]
            + [["all", *(f"{sum(_shares(burst).values()):.1f}" for burst in bursts)]],
        ),
        "In this everything shares one machine: the cluster, PostgreSQL, paddock and those who play.\n",
    ]
