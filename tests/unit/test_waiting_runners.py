"""Which runners recovery passes over: those for which no rule can hold (`RoundView.waits`,
`Gatherer.to_examine`)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from paddock.domain.ids import AccountId, HostId, PoolId, RunnerId
from paddock.domain.names import PodName
from paddock.domain.pods.fingerprints import (
    ContainerState,
    ContainerStatus,
    Running,
    Terminated,
    Waiting,
)
from paddock.domain.pods.pod import Phase, Pod
from paddock.domain.recovery.records import JobWords
from paddock.domain.recovery.thresholds import Thresholds
from paddock.domain.runners.runner import Runner
from paddock.domain.states import JobState, RunnerState
from paddock.recovery.gather import HEARD, Gatherer, RoundView

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
NAME = PodName("linux-1")
RUNS = ContainerState(running=Running(NOW))
POD = Pod(
    name=NAME,
    uid="uid",
    pool="linux",
    phase=Phase.PENDING,
    created_at=NOW,
    poller=ContainerStatus(name="poller", state=RUNS, started=True),
    containers=(
        ContainerStatus(name="runner", state=ContainerState(waiting=Waiting("PodInitializing"))),
    ),
)
_UNSET = (
    *("key", "account", "name", "mint_deadline", "github_id", "delivery", "job", "node", "hint"),
    *("acknowledged_at", "job_marked_at", "suspect_at", "absent_since"),
    *("retire_reason", "deregistered_at", "proved_at"),
)
RUNNER = Runner(
    **dict.fromkeys(_UNSET),  # type: ignore[arg-type]
    id=RunnerId(UUID(int=1)),
    pool=PoolId(1),
    pod_name=NAME,
    pod_uid="uid",
    state=RunnerState.IDLE,
    generation=1,
    since=NOW,
    shape="gated",
    spec_hash="v1",
    created_at=NOW,
    heard_at=NOW,
    absent_reads=0,
)


def waits(runner: Runner = RUNNER, pod: Pod | None = POD) -> bool:
    pods = {} if pod is None else {pod.name: pod}
    return RoundView(now=NOW, runners=[runner], pods=pods, complete=True, read_at=NOW).waits(runner)


def test_an_idle_runner_that_polls_and_is_heard_waits() -> None:
    assert waits()
    assert waits(replace(RUNNER, heard_at=NOW - HEARD))


@pytest.mark.parametrize(
    "changes",
    [
        {"state": RunnerState.BOOTING},
        {"state": RunnerState.CLAIMED},
        {"state": RunnerState.RETIRING},
        {"heard_at": None},
        {"heard_at": NOW - HEARD - timedelta(seconds=1)},
        {"forced_by": "operator:ana"},
        {"job_marked_at": NOW},
        {"pod_uid": "another"},
    ],
)
def test_a_runner_of_which_a_row_says_more_is_examined(changes: dict[str, Any]) -> None:
    assert not waits(replace(RUNNER, **changes))


@pytest.mark.parametrize(
    "pod",
    [
        None,
        replace(POD, phase=Phase.FAILED),
        replace(POD, deletion_requested_at=NOW),
        replace(POD, unschedulable="0/3 nodes are available"),
        replace(POD, poller=None),
        replace(POD, containers=(ContainerStatus(name="runner", state=RUNS, started=True),)),
    ],
)
def test_a_runner_whose_pod_does_not_only_poll_is_examined(pod: Pod | None) -> None:
    assert not waits(pod=pod)


AT_WORK = replace(
    POD,
    phase=Phase.RUNNING,
    containers=(ContainerStatus(name="runner", state=RUNS, started=True),),
)
BUSY = replace(
    RUNNER, state=RunnerState.BUSY, account=AccountId(1), acknowledged_at=NOW - timedelta(hours=1)
)
REMOVED = 2 * 3600.0


def gatherer() -> Gatherer:
    nothing: Any = None
    return Gatherer(
        store=nothing,
        fleet=nothing,
        clock=nothing,
        view=nothing,
        asker=nothing,
        thresholds=replace(Thresholds(), removed=REMOVED),
    )


def look(
    runner: Runner,
    pod: Pod | None,
    *,
    job: JobState | None = JobState.IN_PROGRESS,
    removals: Mapping[AccountId, int] | None = None,
) -> RoundView:
    return RoundView(
        now=NOW,
        runners=[runner],
        pods={} if pod is None else {pod.name: pod},
        complete=True,
        read_at=NOW,
        words={runner.id: JobWords(host=HostId(1), job=job, hint=None)},
        removals=removals or {},
    )


def works(runner: Runner = BUSY, pod: Pod | None = AT_WORK, **seen: Any) -> bool:
    """Whether it is not examined: in the first round, and in the next one."""
    gathers, seen_now = gatherer(), look(runner, pod, **seen)
    first = asyncio.run(gathers.to_examine(seen_now))
    assert asyncio.run(gathers.to_examine(seen_now)) == first
    return not first


def test_a_busy_runner_whose_pod_runs_works() -> None:
    assert works()
    assert works(job=None), "GitHub has not named its job yet"


@pytest.mark.parametrize(
    "changes",
    [
        *({"state": state} for state in RunnerState if state is not RunnerState.BUSY),
        {"forced_by": "operator:ana"},
        {"acknowledged_at": NOW - timedelta(seconds=REMOVED)},
        {"acknowledged_at": None, "since": NOW - timedelta(seconds=REMOVED)},
        {"pod_uid": "another"},
    ],
)
def test_a_runner_that_is_more_than_busy_is_examined(changes: dict[str, Any]) -> None:
    assert not works(replace(BUSY, **changes))


@pytest.mark.parametrize(
    "pod",
    [
        None,
        POD,
        replace(AT_WORK, phase=Phase.FAILED),
        replace(AT_WORK, deletion_requested_at=NOW),
        replace(AT_WORK, containers=()),
        replace(
            AT_WORK,
            containers=(
                ContainerStatus(name="runner", state=ContainerState(terminated=Terminated())),
            ),
        ),
    ],
)
def test_a_busy_runner_whose_pod_does_not_run_is_examined(pod: Pod | None) -> None:
    assert not works(pod=pod)


def test_a_busy_runner_whose_job_or_account_says_otherwise_is_examined() -> None:
    assert not works(job=JobState.COMPLETED)
    assert not works(removals={AccountId(1): 0})


@pytest.mark.parametrize(
    "then",
    [
        look(BUSY, replace(AT_WORK, phase=Phase.FAILED)),
        look(replace(BUSY, state=RunnerState.DONE), AT_WORK),
        look(BUSY, AT_WORK, job=JobState.COMPLETED),
        look(BUSY, None),
    ],
)
def test_a_runner_that_worked_in_the_last_round_is_examined_after_a_change(then: RoundView) -> None:
    gathers = gatherer()
    assert asyncio.run(gathers.to_examine(look(BUSY, AT_WORK))) == []
    assert asyncio.run(gathers.to_examine(then)) == then.runners
    assert asyncio.run(gathers.to_examine(look(BUSY, AT_WORK))) == []
