"""What the logs and exit codes of runner programs mean."""

from __future__ import annotations

import pytest

from paddock.domain.recovery.evidence import LogWord, log_word
from paddock.domain.runners.dialects import (
    RunnerProgram,
    dialect,
    only_polls,
    program_of_command,
    program_of_log,
)

ACTIONS, ACT_RUNNER, UNKNOWN = (
    RunnerProgram.ACTIONS,
    RunnerProgram.ACT_RUNNER,
    RunnerProgram.UNKNOWN,
)
#: As it was seen (v0.13.0).
ACT_IDLE = "Listening for Jobs: runner-1 ( http://127.0.0.1:43397/octo-org )\n"
ACT_BUSY = ACT_IDLE + "runner-1 ( http://127.0.0.1:43397/octo-org ): Running Job 'build'\n"
#: As its source has it (2.336.0).
ACTIONS_IDLE = (
    "\n√ Connected to GitHub\n\nCurrent runner version: '2.336.0'\n"
    "2026-11-17 08:20:34Z: Listening for Jobs\n"
)
STRANGE = "ready and waiting\nbuild began\n"


def started(program: str) -> str:
    return f"paddock: starting the runner ({program})\n"


@pytest.mark.parametrize("first", ["", started("act-runner"), started("actions"), started("x")])
def test_a_busy_act_runner_shows_a_job(first: str) -> None:
    """I89. It was read as idle, and retire could have deleted it. Also where its pool says that it is
    another program."""
    assert log_word(first + ACT_BUSY, whole=True) is LogWord.JOB
    assert log_word(first + ACT_BUSY, whole=False) is LogWord.JOB


@pytest.mark.parametrize(
    ("log", "program"),
    [
        (started("actions"), ACTIONS),
        (started("actions") + ACTIONS_IDLE, ACTIONS),
        (started("unknown") + ACTIONS_IDLE, ACTIONS),
        (ACTIONS_IDLE, ACTIONS),
        ("√ Connected to GitHub\n", ACTIONS),
        ("Listening for Jobs\n", ACTIONS),
        (started("act-runner"), ACT_RUNNER),
        (started("unknown") + ACT_IDLE, ACT_RUNNER),
        (ACT_IDLE, ACT_RUNNER),
    ],
)
def test_an_idle_log_of_a_known_program_speaks_against_a_job(
    log: str, program: RunnerProgram
) -> None:
    assert program_of_log(log) is program
    assert log_word(log, whole=True) is LogWord.NO_JOB
    assert log_word(log, whole=False) is LogWord.UNREADABLE


@pytest.mark.parametrize(
    "log",
    [
        "",
        STRANGE,
        started("unknown"),
        started("unknown") + STRANGE,
        "paddock: starting the runner\n" + STRANGE,
        # A job says which program it is in.
        f"{STRANGE}says paddock: starting the runner (actions)\n",
    ],
)
def test_the_log_of_an_unknown_program_is_no_evidence(log: str) -> None:
    """I89"""
    assert program_of_log(log) is UNKNOWN
    assert log_word(log, whole=True) is LogWord.UNREADABLE


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("line", "repeated"),
    [
        ("Listening for Jobs: ", " ( "),
        ("Listening for Jobs: x ( ", "y"),
        ("x", " ( y"),
        ("Listening for Jobs", " "),
        ("2026-11-17 08:20:34Z: Listening for Jobs", "\t\r"),
        ("paddock: starting the runner (", "a"),
        ("", "Listening for Jobs: x ( y\n"),
        ('{"at": "', "x"),
    ],
)
def test_no_log_takes_long_to_read(line: str, repeated: str) -> None:
    """A job writes into its runner's log: four megabytes once took hours, in which the leader did
    nothing else."""
    size = 4 << 20
    assert log_word(line + repeated * (size // len(repeated)) + "!", whole=True) in LogWord


def test_a_program_that_is_not_the_named_one_is_unknown() -> None:
    """I89: another runner is in the image than its pool says."""
    assert program_of_log(started("actions") + ACT_IDLE) is UNKNOWN
    assert program_of_log(started("act-runner") + ACTIONS_IDLE) is UNKNOWN


def test_where_one_container_polls_and_runs_a_poller_is_no_job() -> None:
    polls = '{"at": "2026-01-05T09:00:00Z", "event": "polling"}\n'
    assert only_polls(polls)
    assert log_word(polls, whole=True) is LogWord.NO_JOB
    assert log_word(polls, whole=False) is LogWord.UNREADABLE
    assert log_word(polls + STRANGE, whole=True) is LogWord.UNREADABLE
    assert log_word(polls + started("unknown"), whole=True) is LogWord.UNREADABLE


@pytest.mark.parametrize(
    ("command", "program"),
    [
        (["/opt/runner/bin/Runner.Listener", "run"], ACTIONS),
        (["Runner.Listener.dll"], ACTIONS),
        (["./github-act-runner-v0.13.0", "run"], ACT_RUNNER),
        (["/entrypoint.sh"], UNKNOWN),
        (["/bin/sh", "-c", "exec bin/Runner.Listener run"], UNKNOWN),
        ([], UNKNOWN),
    ],
)
def test_a_program_is_recognised_by_its_files_name(
    command: list[str], program: RunnerProgram
) -> None:
    assert program_of_command(command) is program


def test_an_exit_code_of_act_runner_says_nothing_of_its_job() -> None:
    codes = dialect(ACT_RUNNER)
    assert codes.clean == {0}
    assert not codes.had_a_job | codes.succeeded | codes.abandoned | codes.refused


def test_the_codes_of_an_unknown_program_are_those_of_actions_runner() -> None:
    """Mostly it is that program, behind a script of the image's own."""
    assert dialect(UNKNOWN) is dialect(ACTIONS)
