"""What runner programs write into their logs, and what they mean by their exit codes.

Retire reads a runner's log before it deletes a live Pod: a log that shows a job protects the Pod. A
program with other words would be read as idle while it executes a job. github-act-runner writes
`Running Job 'D'` where actions/runner writes `Running job: D`, and exits with 0 whatever its job's
result.

So a log that shows no job counts against its Pod only if paddock knows the program that wrote it (I89).
The start script, `agent/run.sh`, names the program in the log's first line. It is told by the pool
(`runner`), or recognises the program's file. Otherwise the program is recognised by lines that only it
writes. Lines that show a job count in every dialect, because they protect.

An exit code never leads to a deletion, so an unknown program's codes are read as those of
actions/runner: mostly it is that program, started by a script of the image.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Final


class RunnerProgram(StrEnum):
    """The program that executes jobs; as in a pool's `runner`, apart from the last."""

    ACTIONS = "actions"
    ACT_RUNNER = "act-runner"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How one program tells what it does."""

    #: The beginning of its file's name.
    file: str
    #: Patterns of lines that only this program writes, and writes before it has a job. A job can write
    #: megabytes into the log: each pattern takes a time that follows the log's length.
    greetings: tuple[re.Pattern[str], ...]
    #: What it writes when it has been given a job.
    job: str
    #: Exit codes, for people.
    meanings: Mapping[int, str]
    #: It ended by itself, as it does after its job.
    clean: frozenset[int]
    #: Its job's result was a success, or nearly.
    succeeded: frozenset[int] = frozenset()
    #: Its job was given up, because GitHub no longer renewed the lease.
    abandoned: frozenset[int] = frozenset()
    #: It had a job.
    had_a_job: frozenset[int] = frozenset()
    #: It may not have found its registration any more.
    lost_registration: frozenset[int] = frozenset()
    #: GitHub refused its version.
    refused: frozenset[int] = frozenset()


#: actions/runner, 2.329 and later. From 100 on an exit code is 100 plus the job's result
#: (`TaskResult`), which it returns with ACTIONS_RUNNER_RETURN_JOB_RESULT_FOR_HOSTED.
_ACTIONS: Final = Dialect(
    file="Runner.Listener",
    greetings=(
        re.compile(r"^√ Connected to GitHub", re.MULTILINE),
        re.compile(r"^Current runner version: '", re.MULTILINE),
        re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ: )?Listening for Jobs\s*$", re.MULTILINE),
    ),
    job="Running job:",
    meanings={
        0: "clean exit",
        3: "it wanted to update itself, although paddock forbids it",
        4: "it wanted to update itself, although paddock forbids it",
        7: "GitHub refused the runner's version",
        100: "clean exit, job succeeded",
        101: "clean exit, job succeeded with issues",
        102: "clean exit, job failed",
        103: "clean exit, job cancelled",
        104: "clean exit, job skipped",
        105: "job abandoned, GitHub no longer renewed its lease",
    },
    clean=frozenset({0, *range(100, 105)}),
    succeeded=frozenset({100, 101}),
    abandoned=frozenset({105}),
    had_a_job=frozenset(range(100, 106)),
    # With 1 at its session, with 0 at a poll ("The runner no longer exists on the server").
    lost_registration=frozenset({0, 1}),
    refused=frozenset({7}),
)

#: github-act-runner, as v0.13.0 was seen. 0 says nothing of its job.
_ACT_RUNNER: Final = Dialect(
    file="github-act-runner",
    greetings=(
        re.compile(r"^Listening for Jobs: \S+ \( \S+ \)", re.MULTILINE),
        re.compile(r" \( \S+ \): (Running Job '|Warning: TaskAgentMessage)"),
    ),
    job="Running Job '",
    meanings={
        0: "clean exit",
        1: "github-act-runner could not go on",
        2: "github-act-runner panicked",
    },
    clean=frozenset({0}),
    lost_registration=frozenset({1}),
)

_DIALECTS: Final[Mapping[RunnerProgram, Dialect]] = {
    RunnerProgram.ACTIONS: _ACTIONS,
    RunnerProgram.ACT_RUNNER: _ACT_RUNNER,
}

#: A line of the poller's (`agent/log.py`).
_POLLS: Final = re.compile(r'\{"at": "[^"]+", "event": "')
#: The start script's line.
_STARTED: Final = re.compile(r"^paddock: starting the runner \(([a-z-]+)\)\s*$", re.MULTILINE)


def dialect(program: RunnerProgram) -> Dialect:
    """The dialect in which the program's exit codes are read."""
    return _DIALECTS.get(program, _ACTIONS)


def shows_a_job(log: str) -> bool:
    """Whether some program's line in the log tells of a job."""
    return any(each.job in log for each in _DIALECTS.values())


def program_of_log(log: str) -> RunnerProgram:
    """The program that wrote the log, which must be whole. Unknown if the start script names one
    program and the lines are another's: an image can hold another program than its pool says."""
    named = _STARTED.search(log)
    greets = {
        program
        for program, each in _DIALECTS.items()
        if any(greeting.search(log) for greeting in each.greetings)
    }
    if named and named[1] in set(_DIALECTS):
        greets.add(RunnerProgram(named[1]))
    return greets.pop() if len(greets) == 1 else RunnerProgram.UNKNOWN


def only_polls(log: str) -> bool:
    """Whether the log, which must be whole, is a poller's alone. Where one container polls and runs, no
    runner was started in it yet."""
    return bool(log) and all(_POLLS.match(line) for line in log.splitlines())


def program_of_command(command: Sequence[str]) -> RunnerProgram:
    """The program that a command starts, by its file's name. Unknown for a script that starts it."""
    name = PurePosixPath(command[0]).name if command else ""
    return next(
        (program for program, each in _DIALECTS.items() if name.startswith(each.file)),
        RunnerProgram.UNKNOWN,
    )
