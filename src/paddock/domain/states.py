"""The life of a job and of a runner, as data.

Everything that knows about states reads these tables: the database is checked against them
(`runner_transitions` holds the same pairs and a test compares the two), the documentation's diagram is
drawn from them, and every guarded write names a pair that stands here. A transition that is not listed
cannot be committed.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class JobState(StrEnum):
    """A lattice: a job's state only rises, in any order of its events (I2)."""

    WAITING = "waiting"  # held by an approval gate; not demand (I12)
    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"

    @property
    def rank(self) -> int:
        return _JOB_RANK[self]


_JOB_RANK: Final = {state: rank for rank, state in enumerate(JobState)}


class RunnerState(StrEnum):
    BOOTING = "booting"
    IDLE = "idle"
    CLAIMED = "claimed"
    ARMED = "armed"
    RUNNING = "running"
    BUSY = "busy"
    DONE = "done"
    RETIRING = "retiring"
    GONE = "gone"

    @property
    def meaning(self) -> str:
        return _MEANING[self]


_S = RunnerState

_MEANING: Final[dict[RunnerState, str]] = {
    _S.BOOTING: "planned or starting; its poller has not been heard",
    _S.IDLE: "its poller asks for work",
    _S.CLAIMED: "matched to a demand key; the mint is under way",
    _S.ARMED: "a JIT is stored for it, sealed, and replayed until acknowledged",
    _S.RUNNING: "it acknowledged; the runner process is starting or registered",
    _S.BUSY: "GitHub, or its own log, says it executes a job",
    _S.DONE: "its job completed; the Pod is still going away",
    _S.RETIRING: "fenced: never dispatched again",
    _S.GONE: "its Pod is terminal or proven absent; final",
}

#: Every legal step, with the reason it exists.
RUNNER_TRANSITIONS: Final[dict[tuple[RunnerState, RunnerState], str]] = {
    (_S.BOOTING, _S.IDLE): "its poller was heard",
    (_S.IDLE, _S.CLAIMED): "matched with demand",
    (_S.CLAIMED, _S.CLAIMED): "taken over under a fresh name after its mint deadline passed",
    (_S.CLAIMED, _S.IDLE): "the mint failed or was abandoned",
    (_S.CLAIMED, _S.ARMED): "the JIT was minted",
    (_S.ARMED, _S.RUNNING): "the JIT was acknowledged",
    (_S.ARMED, _S.BUSY): "in_progress arrived before the acknowledgement",
    (_S.ARMED, _S.DONE): "completed arrived before the acknowledgement",
    (_S.RUNNING, _S.BUSY): "GitHub gave it a job",
    (_S.RUNNING, _S.DONE): "completed arrived before in_progress",
    (_S.BUSY, _S.DONE): "its job completed",
    (_S.RETIRING, _S.RETIRING): "forced: from now on nothing brings it back",
    (_S.RETIRING, _S.BUSY): "it turned out to execute a job",
    (_S.RETIRING, _S.DONE): "it turned out to have completed a job",
    **{(state, _S.RETIRING): "fenced" for state in _S if state not in (_S.RETIRING, _S.GONE)},
    **{
        (state, _S.GONE): "its Pod was seen terminal, or is proven absent"
        for state in _S
        if state is not _S.GONE
    },
}

#: States in which a runner that has a demand key holds a place of its account's capacity (I46).
HOLDS_CAPACITY: Final = frozenset({_S.CLAIMED, _S.ARMED, _S.RUNNING, _S.BUSY, _S.DONE, _S.RETIRING})


def legal(before: RunnerState, after: RunnerState) -> bool:
    return (before, after) in RUNNER_TRANSITIONS
