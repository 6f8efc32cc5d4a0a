"""What recovery can do, by what it does it to. The services match these exhaustively (mypy checks)."""

from __future__ import annotations

from enum import StrEnum


class RunnerAction(StrEnum):
    """To a runner whose row is not `gone`."""

    CONCLUDE = "conclude"  # write its verdict; it is gone, and what is left of its Pod is deleted
    FENCE = "fence"  # it is never dispatched again, and retires
    RETIRE = "retire"  # the next step of its retirement
    FORCE = "force"  # it retires for good: nothing brings it back, and GitHub is not asked
    RELEASE = "release"  # the claim ends, the runner is idle again
    SUSPECT = "suspect"  # it no longer counts as supply
    ALARM = "alarm"  # replace nothing, tell the operator
    OCCUPY = "occupy"  # it is busy
    PROTECT = "protect"  # leave it alone, and record that
    APPLY = "apply"  # what GitHub says of the job it was claimed for


class EndedAction(StrEnum):
    """To a runner that is `gone` and whose verdict may still change."""

    APPLY = "apply"  # what GitHub says of the job it was claimed for
    REFINE = "refine the verdict"  # it never ran a job


class PodAction(StrEnum):
    """To a Pod that no row knows."""

    CONCLUDE = "conclude"  # its end is recorded: delete what is left of it
    ADOPT = "adopt"  # give it a row, fenced: from there it retires
    PROTECT = "protect"  # leave it alone, and record that


class JobAction(StrEnum):
    APPLY = "apply"  # what GitHub says of it
    INSERT = "insert"  # GitHub has it, the database does not
    DEMOTE = "demote"  # it is queued again
    SERVE = "serve again"  # the ended runner no longer counts as supply
    EXPLAIN = "explain"  # write down why it waits
    STALE = "complete as stale"


class NoAction(StrEnum):
    """Nothing is done to the subject in this round."""

    ASK = "ask"  # an answer is missing: the verdict names the question
    LEAVE = "leave"


AnyAction = RunnerAction | EndedAction | PodAction | JobAction
