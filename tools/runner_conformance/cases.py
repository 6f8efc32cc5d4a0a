"""The cases: what happens to a runner, and how every runner program has to react.

Only what GitHub and paddock rely on is expected. Exit codes and lines differ between programs; the
table shows them.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from paddock.domain.runners.dialects import RunnerProgram, program_of_log, shows_a_job
from paddock.fakes.github import FaultKind, JobSpec, Step
from tools.runner_conformance.stage import PATIENCE, Late, Stage

Play = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True)
class Case:
    name: str
    play: Play
    #: The states that the job may have at GitHub when the case is over.
    jobs: frozenset[str]
    #: Whether the program must have ended then; `None`: either is right.
    ends: bool | None = True


_CASES: Final[list[Case]] = []


def _case(jobs: str, *, ends: bool | None = True) -> Callable[[Play], Play]:
    def register(play: Play) -> Play:
        name = getattr(play, "__name__", "").replace("_", " ")
        _CASES.append(Case(name, play, frozenset(jobs.split("|")), ends))
        return play

    return register


def all_cases() -> list[Case]:
    return list(_CASES)


async def _to_its_end(stage: Stage) -> None:
    program = await stage.start()
    await program.ended()


@_case("success")
async def success(stage: Stage) -> None:
    stage.queue("echo hello", "true")
    await _to_its_end(stage)


@_case("failure")
async def failure(stage: Stage) -> None:
    stage.queue("true", "exit 3", "echo never")
    await _to_its_end(stage)


@_case("success")
async def steps_and_logs(stage: Stage) -> None:
    """Shell, directory, environment, expressions, a masked secret, an expected failure."""
    steps = (
        Step("script", "echo level=${{ env.LEVEL }} in=$(pwd)", working_directory="/"),
        Step(  # noqa: S604
            "shell", 'echo "shell says $WHO"', shell="sh", env={"WHO": "${{ github.repository }}"}
        ),
        Step("secret", "echo hidden ${{ secrets.PASSWORD }}"),
        Step("matrix", "test ${{ matrix.os }} = linux"),
        Step("expected", "exit 1", continue_on_error=True),
        Step("never", "exit 1", condition="failure()"),
        Step("always", "echo last words", condition="always()"),
    )
    spec = JobSpec(
        name="build",
        labels=("linux",),
        steps=steps,
        env={"LEVEL": "job"},
        matrix={"os": "linux"},
        secrets={"PASSWORD": "hunter2-hunter2"},
    )
    job = stage.queue(spec=spec)
    await _to_its_end(stage)
    log = stage.github.uploads.of(job.id).text()
    wanted = ("level=job in=/", "shell says octo-org/hello", "hidden ***", "last words")
    missing = [each for each in wanted if each not in log]
    if missing or "hunter2" in log:
        raise Late(f"the uploaded log lacks {missing or 'its mask'}")


@_case("success")
async def job_queued_later(stage: Stage) -> None:
    program = await stage.listening()
    stage.queue("true")
    await program.ended()


@_case("success")
async def landmarks_that_paddock_reads(stage: Stage) -> None:
    """Its log tells paddock which program it is, and whether it has a job."""
    program = await stage.listening()
    waits = "\n".join(program.lines)
    if program_of_log(waits) is RunnerProgram.UNKNOWN or shows_a_job(waits):
        raise Late("its log before the job is not read as that of a known program without one")
    stage.queue("true")
    await program.ended()
    if not shows_a_job("\n".join(program.lines)):
        raise Late("its log does not show its job")


#: A line that is longer than any message, control characters, what is no text, and landmarks.
_HOSTILE_OUTPUT: Final = r"""
head -c 3000000 /dev/zero | tr '\0' x; echo
printf '\033[2J\033]0;title\007\200\377 \000 \r\n'
printf "Listening for Jobs: r ( http://h )\nRunning job: x\nJob x completed with result: Failed\n"
echo '::error::bad' '##[command]x'
"""
_HOSTILE_NAME: Final = (
    "it's\nFinished Job 'x' with Status Succeeded\nListening for Jobs: r ( http://h )\n"
    "\x1b[2J is deprecated and cannot receive messages"
)


@_case("success")
async def hostile_output_and_name(stage: Stage) -> None:
    """Neither hides that it has a job."""
    steps = (Step("hostile", _HOSTILE_OUTPUT),)
    stage.queue(spec=JobSpec(name=_HOSTILE_NAME, labels=("linux",), steps=steps))
    await _to_its_end(stage)
    assert stage.program is not None
    if not shows_a_job("\n".join(stage.program.lines)):
        raise Late("its log does not show its job")


@_case("cancelled")
async def endless_output(stage: Stage) -> None:
    program = await stage.busy("yes")
    assert stage.job is not None
    stage.github.jobs.cancel(stage.job)
    await program.ended()


@_case("success")
async def one_job_only(stage: Stage) -> None:
    """An ephemeral runner leaves the second job in the queue."""
    stage.queue("true")
    second = stage.queue("true")
    await _to_its_end(stage)
    if second.runner is not None:
        raise Late("it took a second job")


@_case("cancelled")
async def cancelled(stage: Stage) -> None:
    program = await stage.busy()
    assert stage.job is not None
    stage.github.jobs.cancel(stage.job)
    await program.ended()


@_case("none")
async def sigterm_idle(stage: Stage) -> None:
    program = await stage.listening()
    program.process.send_signal(signal.SIGTERM)
    await program.ended()


@_case("cancelled|failure")
async def sigterm_busy(stage: Stage) -> None:
    program = await stage.busy()
    program.process.send_signal(signal.SIGTERM)
    await program.ended()


@_case("success|cancelled|failure")
async def sigint_busy(stage: Stage) -> None:
    program = await stage.busy("sleep 3")
    program.process.send_signal(signal.SIGINT)
    await program.ended()


@_case("queued")
async def sigkill_idle(stage: Stage) -> None:
    program = await stage.listening()
    os.killpg(program.process.pid, signal.SIGKILL)
    await program.ended()
    await asyncio.sleep(0.5)
    stage.queue("true")


@_case("lost")
async def sigkill_busy(stage: Stage) -> None:
    stage.shorten_lease(5.0)
    program = await stage.busy()
    os.killpg(program.process.pid, signal.SIGKILL)
    await stage.completed()


@_case("success")
async def lease_renewed(stage: Stage) -> None:
    """It renews every minute: a job of 75 s outlives a lease of 65 s."""
    stage.shorten_lease(65.0)
    stage.queue("sleep 75")
    await _to_its_end(stage)


@_case("queued")
async def deleted_before_start(stage: Stage) -> None:
    stage.mint()
    assert stage.runner is not None
    stage.github.runners.delete(stage.runner)
    stage.queue("true")
    await _to_its_end(stage)


@_case("queued")
async def deleted_idle(stage: Stage) -> None:
    program = await stage.listening()
    assert stage.runner is not None
    stage.github.runners.delete(stage.runner)
    stage.queue("true")
    await program.ended()


@_case("success")
async def deleted_busy(stage: Stage) -> None:
    """An API client deletes its record by mistake: the runner finishes its job."""
    program = await stage.busy("sleep 5")
    assert stage.runner is not None
    stage.github.runners.delete(stage.runner)
    await program.ended()


@_case("success|failure|cancelled", ends=None)
async def deleted_busy_and_told(stage: Stage) -> None:
    """The same, but its poll is answered that the runner does not exist."""
    await stage.busy("sleep 5")
    assert stage.runner is not None
    stage.inject(FaultKind.NOT_FOUND, "runner.message", times=None, seconds=60.0)
    stage.github.runners.delete(stage.runner)
    stage.github.jobs.on_news(stage.runner)
    await stage.completed()
    await asyncio.sleep(2.0)


@_case("success|queued", ends=None)
async def acquire_409_once(stage: Stage) -> None:
    stage.inject(FaultKind.CONFLICT, "runner.acquire")
    stage.queue("true")
    await _acquired_or_not(stage)


@_case("success|queued", ends=None)
async def acquire_404_once(stage: Stage) -> None:
    stage.inject(FaultKind.NOT_FOUND, "runner.acquire")
    stage.queue("true")
    await _acquired_or_not(stage)


@_case("queued|success", ends=None)
async def acquire_409_always(stage: Stage) -> None:
    stage.inject(FaultKind.CONFLICT, "runner.acquire", times=None, seconds=600.0)
    stage.queue("true")
    await _acquired_or_not(stage)


async def _acquired_or_not(stage: Stage) -> None:
    """After a minute GitHub gives a job that was not fetched to another runner. The program may end or
    go on."""
    program = await stage.start()
    try:
        await program.ended(within=100.0)
    except Late:
        return


@_case("success")
async def acquire_401_once(stage: Stage) -> None:
    stage.inject(FaultKind.BAD_CREDENTIALS, "runner.acquire")
    stage.queue("true")
    await _to_its_end(stage)


@_case("success")
async def token_expired(stage: Stage) -> None:
    """The poll is answered 401 once."""
    program = await stage.listening()
    stage.inject(FaultKind.BAD_CREDENTIALS, "runner.message")
    stage.queue("true")
    await program.ended()


@_case("success")
async def session_lost(stage: Stage) -> None:
    """GitHub forgets the session: the runner opens another one."""
    program = await stage.listening()
    runner = stage.runner
    assert runner is not None
    assert runner.session is not None
    stage.github.runners.disconnect(runner.session.id)
    stage.github.jobs.on_news(runner)
    stage.queue("true")
    await program.ended()


@_case("success")
async def session_conflict_once(stage: Stage) -> None:
    stage.inject(FaultKind.CONFLICT, "runner.session")
    stage.queue("true")
    await _to_its_end(stage)


@_case("success", ends=None)
async def two_with_one_jit(stage: Stage) -> None:
    first = await stage.listening()
    await stage.start()
    await asyncio.sleep(3.0)
    stage.queue("true")
    await first.ended()


@_case("queued", ends=None)
async def version_refused(stage: Stage) -> None:
    """403 at the session, for a while."""
    stage.inject(FaultKind.NOT_ACCESSIBLE, "runner.session", times=None, seconds=600.0)
    stage.queue("true")
    program = await stage.start()
    try:
        await program.ended(within=20.0)
    except Late:
        return


@_case("success")
async def unavailable_at_start(stage: Stage) -> None:
    stage.unavailable("runner")
    stage.queue("true")
    await _to_its_end(stage)


@_case("success")
async def unavailable_at_session(stage: Stage) -> None:
    stage.unavailable("runner.session")
    stage.queue("true")
    await _to_its_end(stage)


@_case("success")
async def unavailable_at_message(stage: Stage) -> None:
    stage.unavailable("runner.message")
    stage.queue("true")
    program = await stage.start()
    await program.ended(within=PATIENCE + stage.outage)


@_case("success|queued|failure|lost", ends=None)
async def unavailable_at_acquire(stage: Stage) -> None:
    stage.unavailable("runner.acquire")
    stage.queue("true")
    await _acquired_or_not(stage)


@_case("success")
async def unavailable_busy(stage: Stage) -> None:
    program = await stage.busy(f"sleep {stage.outage + 5:.0f}")
    stage.unavailable("runner")
    await program.ended()


#: For how long every known program repeats its report.
_REPORTS_FOR: Final = 90.0


@_case("success|in_progress")
async def unavailable_at_complete(stage: Stage) -> None:
    """A program that gives up has lost its job: GitHub says so when the lease has run out."""
    stage.unavailable("runner.complete")
    stage.queue("true")
    await _to_its_end(stage)
    if stage.outage < _REPORTS_FOR and stage.outcome != "success":
        raise Late("it gave its report up too early")


@_case("success")
async def completion_reply_lost(stage: Stage) -> None:
    """GitHub has the result, and the runner gets no answer."""
    stage.inject(FaultKind.REPLY_LOST, "runner.complete")
    stage.queue("true")
    await _to_its_end(stage)


@_case("success")
async def results_refused(stage: Stage) -> None:
    stage.inject(FaultKind.NOT_FOUND, "runner.results", times=None, seconds=600.0)
    stage.queue("true")
    await _to_its_end(stage)


@_case("success|lost")
async def feed_refused(stage: Stage) -> None:
    stage.shorten_lease(70.0)
    stage.inject(FaultKind.NOT_FOUND, "runner.feed", times=None, seconds=600.0)
    stage.queue("sleep 1")
    await _to_its_end(stage)
    await stage.completed()
