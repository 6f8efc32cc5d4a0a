"""Bursts of jobs on a real control plane: how many per second paddock takes from webhook to deleted
Pod, and how many requests and how much processor time each costs.

API server, etcd, scheduler and paddock are real; so are tokens and their reviews, webhooks, mints and
verdicts. Nodes and containers are simulated: kwok keeps the node. This process plays pollers, runners
and their ends, with the token that Kubernetes gives each Pod. Jobs take no time, so the control plane
is measured. It needs a cluster (`make cluster`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import RenderableType

from bench.burst_site import PADDOCK, POSTGRES, WARM, Burst, Idle, burst_site
from bench.common import Neighbours, Report, environment, percentile, postgres, say, table

GOALS = {
    "jobs_per_s": 30.0,
    "finished_to_gone_p50_s": 0.6,
    "refilled_s": 5.0,
    "idle_apiserver_requests_per_min": 2.0,
    "idle_cpu_ms_per_min": 150.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    bursts: Sequence[int]
    #: Seconds after the last burst, until its leftovers are settled; then seconds without work.
    settle: float
    idle: float


FULL = Effort(bursts=(100, 500), settle=100.0, idle=180.0)
QUICK = Effort(bursts=(100,), settle=80.0, idle=60.0)


async def run(*, quick: bool, github_latency: float = 0.0) -> Report:
    effort = QUICK if quick else FULL
    neighbours = Neighbours()
    bursts = []
    async with postgres() as server:
        about = await environment(server.url)
        async with burst_site(server, github_latency=github_latency) as site:
            for jobs in effort.bursts:
                await site.warm()
                say(f"a burst of {jobs} jobs")
                bursts.append(await site.burst(jobs))
            say(f"{effort.settle + effort.idle:g} s in which nothing happens")
            idle = await site.idle(settle=effort.settle, measure=effort.idle)
    about["neighbours"] = neighbours.share()
    about["github_latency_s"] = github_latency
    return Report(environment=about, data=_data(bursts, idle), show=lambda: _tables(bursts, idle))


def _of(burst: Burst) -> dict[str, object]:
    return {
        "jobs": burst.jobs,
        "jobs_per_s": round(burst.jobs / burst.seconds, 2),
        "refilled_s": round(burst.refilled, 2),
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


def _idle(idle: Idle) -> dict[str, object]:
    cpu = {name: round(seconds / idle.minutes * 1e3, 1) for name, seconds in idle.cpu.items()}
    return {
        "idle_apiserver_requests_per_min": round(idle.apiserver.total() / idle.minutes, 2),
        "idle_apiserver_requests": dict(sorted(idle.apiserver.items())),
        "idle_cpu_ms_per_min": round(cpu[PADDOCK] + cpu[POSTGRES], 1),
        "idle_cpu_ms_per_min_of": cpu,
    }


def _data(bursts: Sequence[Burst], idle: Idle) -> dict[str, object]:
    return {
        # The goals are for a burst that the warm Pods serve, which is the first.
        "ours": {**_of(bursts[0]), **_idle(idle)},
        "bursts": [_of(burst) for burst in bursts],
        "goals": GOALS,
    }


def _tables(bursts: Sequence[Burst], idle: Idle) -> list[RenderableType]:
    quiet = _idle(idle)
    columns = [_of(burst) for burst in bursts]

    def row(title: str, name: str, goal: str = "") -> list[str]:
        return [title, goal, *(str(each[name]) for each in columns)]

    return [
        table(
            "Jobs that take no time, from the first webhook to the last Pod gone",
            *("", "to aim at", *(f"{burst.jobs} jobs" for burst in bursts)),
            rows=[
                row("jobs per second", "jobs_per_s", f"{GOALS['jobs_per_s']:g}"),
                row("seconds until 100 are idle again", "refilled_s", f"{GOALS['refilled_s']:g}"),
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
        table(
            f"A minute in which nothing happens, with {WARM} idle Pods",
            *("", "to aim at", "measured"),
            rows=[
                [title, f"{GOALS[name]:g}", str(quiet[name])]
                for title, name in (
                    ("requests to the API server", "idle_apiserver_requests_per_min"),
                    ("processor, PostgreSQL's included, ms", "idle_cpu_ms_per_min"),
                )
            ],
        ),
        "In this everything shares one machine: the cluster, PostgreSQL, paddock and those who play.\n",
    ]
