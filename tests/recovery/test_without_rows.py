"""Pods that no row knows: S1's list, and a restored backup (I34, I70)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from paddock.domain.github.objects import RunnerRecord
from paddock.domain.ids import GitHubRunnerId, RunnerId
from paddock.domain.names import PodName, runner_name
from paddock.domain.pods.fingerprints import (
    ContainerState,
    ContainerStatus,
    Running,
    Terminated,
    Waiting,
)
from paddock.domain.pods.pod import Phase, Pod, PodOrder
from paddock.domain.states import RunnerState
from tests.support.recovery import HOST, Yard

GRACE = 300.0
#: Two lists of every scope, a minute apart; a protected Pod is looked at twice a minute.
SEARCHED = 130.0


def runner_container(
    state: ContainerState, *, last: ContainerState = ContainerState(), started: bool | None = None
) -> tuple[ContainerStatus, ...]:
    return (ContainerStatus("runner", state, last, started),)


STARTED = runner_container(ContainerState(running=Running()), started=True)
TERMINATED = runner_container(ContainerState(terminated=Terminated(0)))
LAST_STATE = runner_container(
    ContainerState(waiting=Waiting()), last=ContainerState(terminated=Terminated(1))
)
WAITING = runner_container(ContainerState(waiting=Waiting("PodInitializing")))
NO_STATUSES: tuple[ContainerStatus, ...] = ()
UNRECOGNISED = runner_container(ContainerState())
TWO_STATES = runner_container(ContainerState(waiting=Waiting(), running=Running()))


async def stranger(
    scene: Yard,
    containers: tuple[ContainerStatus, ...],
    *,
    name: str = "linux-stranger1",
    log: str | None = "Running job: build\n",
) -> Pod:
    """A stamped Pod of our pool without a row, as old as the grace."""
    await scene.fleet.create(
        PodOrder(
            runner=RunnerId(scene.world.ids.uuid()), name=PodName(name), pool="linux", spec="{}"
        )
    )
    pod = replace(
        scene.fleet.pods[name],
        owner="acme",
        phase=Phase.RUNNING,
        containers=containers,
        created_at=scene.world.clock.now() - timedelta(seconds=GRACE),
    )
    scene.fleet.pods[name] = pod
    if log is not None:
        scene.fleet.logs[name] = log
    return pod


@pytest.mark.parametrize(
    "containers",
    [
        pytest.param(STARTED, id="started"),
        pytest.param(TERMINATED, id="terminated"),
        pytest.param(LAST_STATE, id="lastState"),
        pytest.param(UNRECOGNISED, id="unrecognised"),
        pytest.param(TWO_STATES, id="two-states"),
    ],
)
async def test_a_stamped_pod_whose_runner_may_have_run_is_left_alone(
    scene: Yard, containers: tuple[ContainerStatus, ...]
) -> None:
    """S1, I34: its log tells of a job, or cannot be read."""
    pod = await stranger(scene, containers, log=None)
    await scene.rounds(scene.recovery(), 120)
    assert scene.deleted == []
    assert pod.name in scene.fleet.pods


async def test_a_pod_kept_by_something_beside_its_ended_runner_is_let_go_in_the_end(
    scene: Yard,
) -> None:
    """S1 protects it while it may still be at work; ten minutes later it is only a leak."""
    pod = await stranger(scene, TERMINATED)
    recovery = scene.recovery()
    await scene.rounds(recovery, 500)
    assert scene.deleted == []
    await scene.rounds(recovery, 400)
    assert pod.name not in scene.fleet.pods


async def test_a_stamped_pod_that_executes_a_job_is_left_alone(scene: Yard) -> None:
    """S1, I34"""
    await stranger(scene, STARTED)
    await scene.rounds(scene.recovery(), 120)
    assert scene.deleted == []


@pytest.mark.parametrize("containers", [WAITING, NO_STATUSES], ids=["waiting", "no statuses"])
async def test_a_stamped_pod_whose_runner_never_started_is_retired(
    scene: Yard, containers: tuple[ContainerStatus, ...]
) -> None:
    """S1: the wedge that the sweep was for."""
    pod = await stranger(scene, containers, log=None)
    recovery = scene.recovery()
    await scene.rounds(recovery, SEARCHED + 60)
    assert (pod.name, pod.uid) in scene.fleet.deletions
    [row] = await scene.world.rows("SELECT * FROM runners WHERE pod_name = $1", pod.name)
    assert row["state"] == "gone"


async def test_within_the_grace_nothing_happens(scene: Yard) -> None:
    pod = await stranger(scene, WAITING, log=None)
    scene.fleet.pods[pod.name] = replace(pod, created_at=scene.world.clock.now())
    await scene.rounds(scene.recovery(), 120)
    assert scene.deleted == []
    assert not scene.github.calls


async def test_of_a_mixed_batch_only_the_wedged_one_goes(scene: Yard) -> None:
    """S1"""
    for number, containers in enumerate((STARTED, TERMINATED, WAITING, LAST_STATE, UNRECOGNISED)):
        await stranger(scene, containers, name=f"linux-{number}", log=None)
    await scene.rounds(scene.recovery(), SEARCHED + 60)
    assert set(scene.deleted) == {"linux-2"}


async def test_a_pod_of_one_container_is_not_condemned_by_being_started(scene: Yard) -> None:
    """S1: in this shape a container is started from its first second; its log decides."""
    await scene.world.rows("UPDATE pools SET shape = 'single' RETURNING 1")
    await stranger(scene, STARTED, name="linux-works")
    await stranger(scene, STARTED, name="linux-idles", log="Listening for Jobs\n")
    await stranger(scene, STARTED, name="linux-mute", log=None)
    await scene.rounds(scene.recovery(), 300)
    assert set(scene.deleted) == {"linux-idles"}


async def test_until_github_has_answered_it_is_protected(scene: Yard) -> None:
    """I29, I70"""
    await stranger(scene, WAITING, log=None)
    scene.github.down = True
    recovery = scene.recovery()
    await scene.rounds(recovery, 120)
    assert scene.deleted == []
    assert ("protected", "done") in await scene.actions()


def record(scene: Yard, pod: Pod, *, busy: bool, status: str = "online") -> GitHubRunnerId:
    github_id = GitHubRunnerId(77)
    scene.github.records[github_id] = RunnerRecord(
        host=HOST,
        id=github_id,
        name=runner_name(pod.name, 1),
        status=status,
        busy=busy,
        labels=(),
    )
    return github_id


async def test_a_pod_that_github_calls_busy_is_protected(scene: Yard) -> None:
    """I70: restoring an old backup kills nothing."""
    record(scene, await stranger(scene, STARTED, log=None), busy=True)
    await scene.rounds(scene.recovery(), 200)
    assert scene.deleted == []
    assert ("executing-without-row", "done") in await scene.actions()


async def test_an_idle_runner_without_a_row_is_adopted_with_its_name(scene: Yard) -> None:
    """I70: it gets a row, its record is deleted first, and it shows no job twice."""
    pod = await stranger(scene, STARTED, log="Listening for Jobs\n")
    record(scene, pod, busy=False)
    recovery = scene.recovery()
    await scene.rounds(recovery, SEARCHED)
    rows = await scene.world.store.runners_of_pods([pod.name])
    adopted = rows[pod.name]
    assert adopted.state is RunnerState.RETIRING
    assert (adopted.github_id, adopted.account) == (77, scene.account)
    await scene.rounds(recovery, 60)
    assert scene.deleted == []
    assert scene.github.records == {}

    await scene.rounds(recovery, 120)
    assert scene.deleted[0] == pod.name


async def test_an_adopted_runner_that_gets_a_job_lives(scene: Yard) -> None:
    pod = await stranger(scene, STARTED, log="Listening for Jobs\n")
    record(scene, pod, busy=False)
    recovery = scene.recovery()
    await scene.rounds(recovery, SEARCHED)
    assert pod.name in await scene.world.store.runners_of_pods([pod.name])
    scene.fleet.logs[pod.name] += "Running job: build\n"
    await scene.rounds(recovery, 300)
    rows = await scene.world.store.runners_of_pods([pod.name])
    assert rows[pod.name].state is RunnerState.BUSY
    assert scene.deleted == []


async def test_a_pod_that_ended_without_a_row_gets_one_and_a_verdict(scene: Yard) -> None:
    """I30, I58"""
    pod = await stranger(scene, STARTED, log="Segmentation fault\n")
    scene.fleet.end_runner(pod.name, exit_code=139)
    await scene.rounds(scene.recovery(), 40)
    [verdict] = await scene.world.rows("SELECT ending, log_tail FROM verdicts")
    assert verdict["ending"] == "crash"
    assert "Segmentation" in verdict["log_tail"]
    assert pod.name not in scene.fleet.pods


async def test_a_pod_that_outlived_its_row_dies_only_when_it_was_idle_twice(scene: Yard) -> None:
    """Its row is final; GitHub, its log and 90 s decide all the same."""
    runner = await scene.running()
    await scene.idle()
    recovery = scene.recovery()
    pod = scene.fleet.pods.pop(runner.pod_name)
    for _ in range(3):
        scene.world.clock.advance(10)
        await scene.rounds(recovery)
    assert (await scene.row(runner)).state is RunnerState.GONE
    scene.fleet.pods[runner.pod_name] = pod
    scene.fleet.logs[runner.pod_name] = "Listening for Jobs\nRunning job: build\n"
    await scene.rounds(recovery, 600)
    assert scene.deleted == []

    scene.fleet.logs[runner.pod_name] = "Listening for Jobs\n"
    recovery = scene.recovery()
    await scene.rounds(recovery, 60)
    assert scene.deleted == []
    await scene.rounds(recovery, 300)
    assert set(scene.deleted) == {runner.pod_name}
