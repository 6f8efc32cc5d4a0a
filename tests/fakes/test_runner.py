"""The fake runner as a real process against the fake GitHub over HTTP: every way to live and to die
that docs/github.md lists for the real one."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from paddock.domain.runners.jit import without_self_update
from paddock.fakes.github import FaultKind
from paddock.fakes.github.jobs import LOST_COMMUNICATION
from paddock.fakes.runner import Death
from paddock.fakes.runner_service import call
from tests.fakes.conftest import World


def _short_lease(world: World, seconds: float = 2.0) -> None:
    records = world.github.world
    records.timing = replace(records.timing, lease=seconds, lost_lingers=(0.0, 0.0))


async def test_success(world: World) -> None:
    job = world.queue("echo hello > greeting", "test -s greeting", name="build (1)")
    runner = await world.start()
    code, output = await runner.ends()
    assert code == 0
    landmarks = [
        "√ Connected to GitHub",
        "Listening for Jobs",
        "Running job: build (1)",
        "Job build (1) completed with result: Succeeded",
    ]
    assert [one for one in landmarks if one in output] == landmarks
    assert job.conclusion == "success"
    assert (world.directory / "greeting").read_text() == "hello\n"
    assert world.github.runner_named("r1") is None


async def test_a_failing_step_ends_the_job_but_not_the_runner(world: World) -> None:
    """A failing test suite is no abnormal end."""
    job = world.queue("true", "exit 3", "echo never > reached")
    code, output = await (await world.start()).ends()
    assert (code, job.conclusion) == (0, "failure")
    assert "completed with result: Failed" in output
    assert not (world.directory / "reached").exists()
    conclusions = [step["conclusion"] for step in job.steps[1:-1]]
    assert conclusions == ["success", "failure", "skipped"]


@pytest.mark.parametrize(("script", "code"), [("true", 100), ("false", 102)])
async def test_the_result_is_returned_when_asked_for(world: World, script: str, code: int) -> None:
    world.queue(script)
    runner = await world.start(env={"ACTIONS_RUNNER_RETURN_JOB_RESULT_FOR_HOSTED": "true"})
    assert (await runner.ends())[0] == code


async def test_a_cancelled_job_is_stopped_with_all_its_processes(world: World) -> None:
    job = world.queue("sleep 1000 & echo $! > sleeper; wait")
    runner = await world.start(env={"ACTIONS_RUNNER_RETURN_JOB_RESULT_FOR_HOSTED": "true"})
    await runner.says("Running job")
    await world.until((world.directory / "sleeper").exists)
    world.github.jobs.cancel(job)
    code, output = await runner.ends()
    assert (code, job.conclusion) == (103, "cancelled")
    assert "completed with result: Canceled" in output
    sleeper = int((world.directory / "sleeper").read_text())
    await world.until(lambda: not _alive(sleeper))


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


async def test_a_job_queued_later_is_fetched_from_the_long_poll(world: World) -> None:
    runner = await world.start()
    await runner.says("Listening for Jobs")
    job = world.queue("true")
    assert (await runner.ends())[0] == 0
    assert job.conclusion == "success"


async def test_sigterm_while_idle_leaves_in_good_order(world: World) -> None:
    runner = await world.start()
    await runner.says("Listening for Jobs")
    runner.process.send_signal(signal.SIGTERM)
    assert (await runner.ends())[0] == 143
    record = world.github.runner_named("r1")
    assert record is not None
    assert not world.github.world.online(record)


async def test_sigterm_in_a_job_cancels_it_and_says_so(world: World) -> None:
    job = world.queue("sleep 1000")
    runner = await world.start()
    await runner.says("Running job")
    runner.process.send_signal(signal.SIGTERM)
    code, output = await runner.ends()
    assert (code, job.conclusion) == (143, "cancelled")
    assert "received a shutdown signal" in output


async def test_sigterm_does_not_wait_for_ever_for_a_job_that_will_not_end(world: World) -> None:
    world.queue("trap '' INT TERM; while true; do sleep 0.05; done")
    runner = await world.start()
    await runner.says("Running job")
    await asyncio.sleep(0.3)
    runner.process.send_signal(signal.SIGTERM)
    assert (await runner.ends())[0] == 143


@pytest.mark.parametrize("way", ["job", "flag", "environment"])
async def test_a_runner_that_kills_itself_is_lost_after_the_lease(world: World, way: str) -> None:
    _short_lease(world)
    job = world.queue("true", die="sigkill" if way == "job" else None)
    arguments = ("--die", "sigkill") if way == "flag" else ()
    env = {"PADDOCK_FAKE_RUNNER_DIE": "sigkill"} if way == "environment" else {}
    runner = await world.start(*arguments, env=env)
    assert (await runner.ends())[0] == -signal.SIGKILL
    assert job.status == "in_progress"
    await world.until(lambda: job.conclusion is not None)
    assert (job.conclusion, job.annotation) == ("failure", LOST_COMMUNICATION)


async def test_out_of_memory_is_a_kill(world: World) -> None:
    world.queue("true", die="oom")
    assert (await (await world.start()).ends())[0] == -signal.SIGKILL


@pytest.mark.parametrize("code", [1, 2, 3, 4, 6, 139])
async def test_any_exit_code_can_be_had(world: World, code: int) -> None:
    job = world.queue("true", die=f"exit={code}")
    ended, output = await (await world.start()).ends()
    assert (ended, job.status) == (code, "in_progress")
    assert "completed with result" not in output


async def test_a_hung_runner_lives_on_and_its_job_is_lost(world: World) -> None:
    _short_lease(world)
    job = world.queue("true", die="hang")
    runner = await world.start()
    await world.until(lambda: job.conclusion is not None)
    assert job.annotation == LOST_COMMUNICATION
    assert _alive(runner.pid)
    runner.process.send_signal(signal.SIGTERM)
    assert (await runner.ends())[0] == 143


async def test_a_live_runner_renews_its_lease(world: World) -> None:
    _short_lease(world)
    job = world.queue("sleep 3")
    assert (await (await world.start()).ends())[0] == 0
    assert job.conclusion == "success"


async def test_a_runner_that_never_registers_stays_offline(world: World) -> None:
    job = world.queue("true")
    runner = await world.start("--die", "never-registers")
    await asyncio.sleep(0.5)
    assert _alive(runner.pid)
    record = world.github.runner_named("r1")
    assert record is not None
    assert not world.github.world.online(record)
    assert job.status == "queued"


async def test_a_killed_worker_is_a_failed_job_and_a_clean_exit(world: World) -> None:
    job = world.queue("true", die="worker-killed")
    code, output = await (await world.start()).ends()
    assert (code, job.conclusion) == (0, "failure")
    assert "completed with result: Failed" in output


async def test_a_lost_completion_is_a_clean_exit_and_lost_communication(world: World) -> None:
    """What a failed completion handshake looks like from both sides."""
    _short_lease(world)
    job = world.queue("true", die="no-completion")
    assert (await (await world.start()).ends())[0] == 0
    await world.until(lambda: job.conclusion is not None)
    assert job.annotation == LOST_COMMUNICATION


async def test_a_runner_may_leave_without_a_job(world: World) -> None:
    runner = await world.start("--die", "leave")
    code, output = await runner.ends()
    assert code == 0
    assert "Running job" not in output
    assert world.github.runner_named("r1") is not None


async def test_a_second_process_with_the_same_jit_meets_a_session_conflict(world: World) -> None:
    first = await world.start()
    await first.says("Listening for Jobs")
    second = await world.start(jit=(first.runner, _encoded(first.pid)))
    code, output = await second.ends()
    assert code == 5
    assert "A session for this runner already exists" in output


def _encoded(pid: int) -> str:
    for entry in Path(f"/proc/{pid}/environ").read_text().split("\0"):
        if entry.startswith("ACTIONS_RUNNER_INPUT_JITCONFIG="):
            return entry.partition("=")[2]
    raise AssertionError("The process was not started with a JIT configuration.")


async def test_a_deleted_registration_is_noticed_at_the_start(world: World) -> None:
    jit = world.mint()
    world.github.runners.delete(jit[0])
    code, output = await (await world.start(jit=jit)).ends()
    assert code == 1
    assert "runner registration has been deleted" in output


async def test_a_registration_deleted_while_listening_ends_the_runner(world: World) -> None:
    runner = await world.start()
    await runner.says("Listening for Jobs")
    await asyncio.sleep(0.2)
    world.github.runners.delete(runner.runner)
    code, output = await runner.ends()
    assert code == 1
    assert "runner registration has been deleted" in output


@pytest.mark.parametrize(("times", "code"), [(1, 0), (2, 1)])
async def test_a_second_401_at_a_poll_is_final(world: World, times: int, code: int) -> None:
    world.github.inject(FaultKind.BAD_CREDENTIALS, route="runner.message", times=times)
    world.queue("true")
    runner = await world.start()
    assert (await runner.ends())[0] == code


async def test_a_zombie_goes_on_listening(world: World) -> None:
    runner = await world.start("--die", "zombie")
    await runner.says("Listening for Jobs")
    await asyncio.sleep(0.2)
    world.github.runners.delete(runner.runner)
    await asyncio.sleep(0.5)
    assert _alive(runner.pid)


async def test_a_runner_deleted_in_its_job_finishes_it(world: World) -> None:
    job = world.queue("sleep 0.5")
    runner = await world.start()
    await runner.says("Running job")
    world.github.runners.delete(runner.runner)
    assert (await runner.ends())[0] == 0
    assert job.conclusion == "success"


@pytest.mark.parametrize(("asked", "code"), [("1", 7), ("", 1)])
async def test_a_deprecated_version_exits_7_only_when_asked_to(
    world: World, asked: str, code: int
) -> None:
    world.github.world.deprecated_versions.add("2.330.0")
    runner = await world.start(env={"ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE": asked})
    assert (await runner.ends())[0] == code


async def test_a_runner_that_may_not_open_a_session_exits_1(world: World) -> None:
    """As actions/runner does: it does not read the reason."""
    world.github.inject(FaultKind.NOT_ACCESSIBLE, route="runner.session")
    code, said = await (await world.start()).ends()
    assert code == 1
    assert "Failed to create session. Error: Forbidden" in said


async def test_a_runner_that_may_update_itself_ends_for_it(world: World) -> None:
    world.github.world.update_to = "2.999.0"
    job = world.queue("true")
    assert (await (await world.start()).ends())[0] == 4
    assert job.status == "queued"


async def test_a_runner_that_must_not_update_itself_gets_its_job(world: World) -> None:
    world.github.world.update_to = "2.999.0"
    job = world.queue("true")
    record, encoded = world.mint()
    runner = await world.start(jit=(record, without_self_update(encoded)))
    assert (await runner.ends())[0] == 0
    assert job.conclusion == "success"


@pytest.mark.parametrize(
    ("death", "code"), [("session-conflict", 5), ("registration-deleted", 1), ("exit=2@start", 2)]
)
async def test_a_death_before_registration(world: World, death: str, code: int) -> None:
    job = world.queue("true")
    assert (await (await world.start("--die", death)).ends())[0] == code
    assert job.status == "queued"


async def test_steps_do_not_see_the_jit(world: World) -> None:
    world.queue("env > environment")
    await (await world.start()).ends()
    environment = (world.directory / "environment").read_text()
    assert "ACTIONS_RUNNER_INPUT" not in environment
    assert "GITHUB_ACTIONS=true" in environment


async def test_the_jit_may_be_an_argument(world: World) -> None:
    job = world.queue("true")
    runner, encoded = world.mint()
    process = await world.start("--jitconfig", encoded, jit=(runner, ""))
    assert (await process.ends())[0] == 0
    assert job.conclusion == "success"


@pytest.mark.parametrize("jit", ["", "rubbish", "e30="])
async def test_a_jit_that_cannot_be_read_is_a_sentence_and_exit_1(world: World, jit: str) -> None:
    runner, _ = world.mint()
    code, output = await (await world.start(jit=(runner, jit))).ends()
    assert code == 1
    assert "Traceback" not in output
    assert len(output.splitlines()) == 1


async def test_the_job_started_hook_runs_before_the_steps(world: World) -> None:
    hook = world.directory / "hook.sh"
    hook.write_text("echo hook >> order\n")
    world.queue("echo step >> order")
    await (await world.start(env={"ACTIONS_RUNNER_HOOK_JOB_STARTED": str(hook)})).ends()
    assert (world.directory / "order").read_text().split() == ["hook", "step"]


async def test_a_github_that_is_away_is_asked_again(world: World) -> None:
    url, world.github.world.api_url = world.url, "http://127.0.0.1:9"
    jit = world.mint()
    world.github.world.api_url = url
    runner = await world.start(jit=jit)
    await runner.says("Retrying until reconnected")
    assert _alive(runner.pid)
    runner.process.send_signal(signal.SIGTERM)
    assert (await runner.ends())[0] == 143


async def test_an_idle_runner_is_small(world: World) -> None:
    """Hundreds of them run beside one another in a demonstration."""
    runner = await world.start()
    await runner.says("Listening for Jobs")
    status = Path(f"/proc/{runner.pid}/status").read_text()
    kilobytes = int(status.partition("VmRSS:")[2].split()[0])
    assert kilobytes < 24_000


async def test_twenty_runners_share_twenty_jobs(world: World) -> None:
    jobs = [world.queue("true", name=f"job {number}") for number in range(20)]
    runners = [await world.start(name=f"r{number}") for number in range(20)]
    codes = [(await runner.ends())[0] for runner in runners]
    assert codes == [0] * 20
    assert {job.conclusion for job in jobs} == {"success"}
    assert len({execution.runner_id for execution in world.github.truth.executions}) == 20


@pytest.mark.parametrize("spec", ["vanish", "exit=x", "sigkill@noon"])
def test_a_death_that_does_not_exist_is_refused(spec: str) -> None:
    with pytest.raises(ValueError, match=r"There is no|not an exit code"):
        Death.parse(spec)


def test_only_plain_http_is_spoken() -> None:
    with pytest.raises(ValueError, match="http://HOST:PORT"):
        call("GET", "https://example.com/")


def test_nothing_but_the_standard_library_is_loaded() -> None:
    script = (
        "import sys, paddock.fakes.runner\n"
        "print([name for name in sys.modules if name.partition('.')[0] not in"
        " sys.stdlib_module_names | {'paddock', '__main__'} and not name.startswith('_')])"
    )
    result = subprocess.run(
        [sys.executable, "-S", "-c", script],
        env={"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == "[]"
