"""Which runners recovery passes over: those for which no rule can hold (`RoundView.waits`)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from paddock.domain.fingerprints import ContainerState, ContainerStatus, Running, Waiting
from paddock.domain.ids import PoolId, RunnerId
from paddock.domain.names import PodName
from paddock.domain.pods import Phase, Pod
from paddock.domain.runners import Runner
from paddock.domain.states import RunnerState
from paddock.recovery.gather import HEARD, RoundView

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
