"""`why`, compared with the truth of a whole world: our services over the real store, in virtual time.

The world decides what really happened; the story, made from rows alone, has to say the same.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import asyncpg
import pytest

from paddock.domain.runners.endings import Ending
from paddock.fakes.github import FaultKind, JobSpec
from paddock.fakes.github.keys import make_private_key
from paddock.fakes.github.records import Job, JobStatus
from paddock.store.embedded import EmbeddedPostgres
from paddock.store.reading import PgReading
from paddock.stories import Story, tell
from simulator.engine.database import Session, database_over
from simulator.engine.faults import Fault
from simulator.engine.fleet import SimPod
from simulator.engine.simulation import Key, SeedPlan
from simulator.scripted_world import WARM, Scenario, Scene, play

pytestmark = pytest.mark.slow

_KEY = make_private_key()
_DATABASE = "sim_stories"

Script = Callable[[Scene], Awaitable[None]]
Tell = Callable[[Script], None]


@pytest.fixture(scope="module")
def session(postgres: EmbeddedPostgres) -> Iterator[Session]:
    asyncio.run(_administer(postgres, f"CREATE DATABASE {_DATABASE} TEMPLATE paddock_template"))
    session = Session.open(postgres.url_of(_DATABASE))
    try:
        yield session
    finally:
        session.close()
        asyncio.run(_administer(postgres, f"DROP DATABASE {_DATABASE} WITH (FORCE)"))


async def _administer(server: EmbeddedPostgres, statement: str) -> None:
    connection = await asyncpg.connect(server.url_of("postgres"))
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@pytest.fixture
def world(session: Session, directory: Path) -> Tell:
    """Runs a script in a world without random faults, which ends with the script."""
    path = directory / "app.pem"
    path.write_text(_KEY)

    def run(script: Script) -> None:
        reached = []

        async def whole(scene: Scene) -> None:
            await scene.sleep(WARM)
            await script(scene)
            reached.append(True)
            scene.simulation._over.set()
            await asyncio.Event().wait()

        scenario = Scenario(name="why", source="", tells="", script=whole)
        plan = SeedPlan(seed=0, faults=frozenset())
        result = play(scenario, plan, session=session, key=Key(path))
        assert result.violations == []
        assert reached

    return run


def reading(scene: Scene) -> PgReading:
    return PgReading(database_over(scene.session), scene.story.stage.clock)


async def why(scene: Scene, name: object) -> Story:
    [found] = await reading(scene).find(str(name))
    story = tell(found, now=scene.story.stage.clock.now())
    assert re.fullmatch(r"[A-Za-z].*\.", story.why), story.why
    assert re.fullmatch(r"[A-Z`].*\.", story.next), story.next
    assert ".." not in story.why + story.next
    assert [fact.at for fact in story.facts] == sorted(fact.at for fact in story.facts)
    return story


def on(scene: Scene, job: Job) -> SimPod:
    pod = scene.on(job)
    assert pod is not None
    return pod


def test_a_healthy_job(world: Tell) -> None:
    async def script(scene: Scene) -> None:
        job = scene.queue(30.0)
        pod = await scene.started(job)
        assert pod is not None
        await scene.sleep(5.0)
        story = await why(scene, job.id)
        assert story.state == "in progress"
        assert story.why.startswith(f"{pod.name} has been executing it for ")
        await scene.executed(job)
        await scene.sleep(10.0)
        story = await why(scene, job.id)
        assert story.why.startswith(f"It completed: success. It ran on {pod.name} for 3")
        assert story.next == "Nothing: it is over."
        told = " | ".join(fact.what for fact in story.facts)
        for step in ("GitHub created the job", "the job is queued", "is claimed", "is armed"):
            assert step in told
        for step in ("is running", "is busy", "the job is completed", "is done", "is gone"):
            assert step in told
        runner = await why(scene, pod.name)
        assert runner.why.startswith("It ended as completed: it exited cleanly")
        assert f"job {job.id}" in runner.why

    world(script)


def test_a_job_that_waits_for_its_accounts_limit(world: Tell) -> None:
    async def script(scene: Scene) -> None:
        await scene.limit("acme", 1)
        first = scene.queue(120.0)
        await scene.started(first)
        second = scene.queue(10.0)
        await scene.sleep(20.0)
        assert scene.github.truth.executions_of(second.id) == []
        story = await why(scene, second.id)
        assert story.why == "The account acme has reached its limit: it uses 1 of 1 runner."
        assert "paddock accounts limits acme --runners N" in story.next
        await scene.executed(second)
        await scene.sleep(5.0)
        assert "It completed" in (await why(scene, second.id)).why

    world(script)


def test_a_job_that_waits_for_its_repositorys_limit(world: Tell) -> None:
    async def script(scene: Scene) -> None:
        await scene.executed(scene.queue(1.0, repository="acme/api"))
        await scene.limit_repository("acme/api", 1)
        await scene.started(scene.queue(120.0, repository="acme/api"))
        second = scene.queue(10.0, repository="acme/api")
        await scene.sleep(20.0)
        story = await why(scene, second.id)
        assert story.why == "The repository acme/api has reached its limit: it uses 1 of 1 runner."

    world(script)


def test_a_job_of_a_suspended_installation(world: Tell) -> None:
    async def script(scene: Scene) -> None:
        [installation] = [each for each in scene.story.installations if each.account.login == "ana"]
        job = scene.queue(10.0, repository="ana/dotfiles", labels=("self-hosted", "linux"))
        scene.github.accounts.suspend(installation)
        await scene.sleep(20.0)
        assert job.status is JobStatus.QUEUED
        story = await why(scene, job.id)
        assert story.why == (
            "The App's installation for ana is suspended, so no runner can be registered there."
        )
        assert "An owner of ana unsuspends" in story.next

    world(script)


def test_a_job_of_an_installation_that_github_answers_with_errors(world: Tell) -> None:
    async def script(scene: Scene) -> None:
        scene.github.inject(FaultKind.NOT_FOUND, owner="umbrella", times=None, seconds=3600.0)
        job = scene.queue(10.0, repository="umbrella/core")
        await scene.sleep(20.0)
        assert scene.github.truth.executions_of(job.id) == []
        story = await why(scene, job.id)
        assert story.why.startswith("Minting failed for ")
        assert "umbrella" in story.why
        assert "it is tried again in " in story.next
        assert any("A mint for its kind failed" in remark for remark in story.remarks)

    world(script)


def test_a_job_that_no_pool_takes(world: Tell) -> None:
    async def script(scene: Scene) -> None:
        job = scene.queue(10.0, labels=("self-hosted", "windows"))
        await scene.sleep(5.0)
        story = await why(scene, job.id)
        assert story.why.startswith("No pool takes it (near-miss): no pool has all of the labels")
        assert "lacks windows" in story.why
        assert "A pool whose labels cover self-hosted, windows is applied" in story.next

    world(script)


def test_a_job_whose_labels_no_pool_has(world: Tell) -> None:
    async def script(scene: Scene) -> None:
        job = scene.queue(10.0, labels=("ubuntu-latest",))
        await scene.sleep(5.0)
        assert await reading(scene).find(str(job.id)) == []
        told = await reading(scene).passed_over(cast("Any", job.id))
        assert told is not None
        story = tell(told, now=scene.story.stage.clock.now())
        assert story.why == (
            "No pool has any of its labels (ubuntu-latest), so it is left to others."
        )

    world(script)


def test_a_job_that_waits_for_an_approval(world: Tell) -> None:
    async def script(scene: Scene) -> None:
        place = next(each for each in scene.story.repositories if each.full_name == "acme/site")
        spec = JobSpec(name="deploy", labels=("self-hosted", "linux"), seconds=5.0, gated=True)
        [job] = scene.github.jobs.queue_run(place, [spec]).jobs
        await scene.sleep(20.0)
        assert job.status is JobStatus.WAITING
        story = await why(scene, job.id)
        assert story.state == "waiting"
        assert story.why.startswith("GitHub holds it for an approval")
        assert story.next.startswith("A reviewer approves it at GitHub")
        scene.github.jobs.approve(job)
        await scene.executed(job)
        await scene.sleep(5.0)
        assert (await why(scene, job.id)).why.startswith("It completed: success.")

    world(script)


def test_a_job_that_github_does_not_assign(world: Tell) -> None:
    async def script(scene: Scene) -> None:
        account = scene.story.installations[0].account
        group = scene.github.world.groups[account.id][0]
        scene.github.accounts.set_group_repositories(group, [])
        job = scene.queue(10.0)
        await scene.sleep(30.0)
        story = await why(scene, job.id)
        assert "GitHub has not given it a job yet" in story.why
        await scene.sleep(180.0)
        assert scene.github.truth.executions_of(job.id) == []
        story = await why(scene, job.id)
        assert story.why.startswith("GitHub does not assign it: ")
        assert "runner group" in story.next

    world(script)


def test_a_job_whose_runner_never_registered(world: Tell) -> None:
    async def script(scene: Scene) -> None:
        scene.force_once(Fault.NEVER_REGISTERS)
        job = scene.queue(20.0)
        await scene.until(lambda: any(pod.jit for pod in scene.living))
        [dumb] = [pod for pod in scene.living if pod.jit]
        await scene.sleep(20.0)
        story = await why(scene, job.id)
        assert story.why.startswith(f"{dumb.name} got its JIT ")
        await scene.executed(job)
        await scene.sleep(5.0)
        [execution] = scene.github.truth.executions_of(job.id)
        story = await why(scene, job.id)
        assert f"It ran on {execution.runner_name.rpartition('-')[0]}" in story.why
        assert any(f"{dumb.name} was claimed for it" in each for each in story.remarks)
        runner = await why(scene, dumb.name)
        assert "GitHub has not seen it online" in runner.why
        await scene.until(lambda: not dumb.alive, within=900.0)
        await scene.sleep(20.0)
        runner = await why(scene, dumb.name)
        assert runner.why.startswith("It ended as never-registered: ")
        assert f"It was claimed for job {job.id}" in runner.why

    world(script)


def test_a_runner_that_ran_out_of_memory(world: Tell) -> None:
    async def script(scene: Scene) -> None:
        scene.force_once(Fault.OOM)
        job = scene.queue(60.0)
        pod = await scene.started(job)
        assert pod is not None
        await scene.until(lambda: not pod.alive)
        assert pod.endings == {Ending.HOST_OOM}
        await scene.sleep(20.0)
        runner = await why(scene, pod.name)
        assert runner.why.startswith(
            "It ended as host-oom: its container reached its memory limit and the node's kernel"
        )
        assert "GitHub does not know yet that it has ended" in runner.why
        story = await why(scene, job.id)
        assert story.state == "in progress"
        assert f"Its runner, {pod.name}, ended " in story.why
        assert "host-oom" in story.why
        assert "GitHub fails it for lost communication" in story.next

    world(script)


def test_a_runner_that_another_client_deleted(world: Tell) -> None:
    async def script(scene: Scene) -> None:
        job = scene.queue(300.0)
        pod = await scene.started(job)
        assert pod is not None
        scene.story.stage.fleet.send_away(pod, "is asked to go by a foreign hand")
        await scene.until(lambda: not pod.alive)
        await scene.sleep(20.0)
        runner = await why(scene, pod.name)
        assert runner.why.startswith(
            "It ended as terminated: a client other than paddock asked for its Pod's deletion."
        )
        assert f"job {job.id}" in runner.why

    world(script)


def test_a_runner_whose_pod_vanished(world: Tell) -> None:
    async def script(scene: Scene) -> None:
        job = scene.queue(300.0)
        pod = await scene.started(job)
        assert pod is not None
        scene.story.stage.pods.vanish(pod, "hard-deleted")
        await scene.sleep(90.0)
        runner = await why(scene, pod.name)
        assert runner.why.startswith("It ended as hard-deleted: its Pod vanished before anyone saw")

    world(script)


def test_a_pause_and_who_made_it(world: Tell) -> None:
    async def script(scene: Scene) -> None:
        paused = scene.story.stage.ledger.paused
        paused.add("acme")
        await scene.operator.pause_dispatch(why="a deployment")
        job = scene.queue(10.0)
        await scene.sleep(20.0)
        assert scene.github.truth.executions_of(job.id) == []
        story = await why(scene, job.id)
        assert story.why.startswith("All dispatch has been paused by sim since ")
        assert story.next == "An operator resumes it: `paddock resume`."
        idle = await why(scene, scene.living[0].name)
        assert "and all dispatch has been paused by sim since " in idle.why
        assert idle.why.endswith(": a deployment.")
        await scene.operator.resume_dispatch(why="it is over")
        paused.discard("acme")
        await scene.executed(job)

    world(script)


def test_a_runner_that_waits_for_work(world: Tell) -> None:
    async def script(scene: Scene) -> None:
        pod = next(pod for pod in scene.living if pod.pool == "linux")
        idle = await why(scene, pod.name)
        assert idle.why.endswith("it asks for work, and no job waits for its pool.")
        await scene.limit("acme", 0)
        scene.queue(10.0)
        await scene.sleep(5.0)
        idle = await why(scene, pod.name)
        assert "1 job waits for its pool" in idle.why
        assert idle.next.startswith("`paddock pools explain ")

    world(script)


def test_a_name_that_is_unknown(world: Tell) -> None:
    async def script(scene: Scene) -> None:
        for name in ("unknown", "99", "9" * 40, "", "²"):
            assert await reading(scene).find(name) == []

    world(script)
