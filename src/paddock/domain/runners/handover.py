"""Handing a JIT to a Pod: the answers to its poller.

A Pod that has a claim and asks again is answered from its row: the same JIT until it acknowledges, then
always "leave" (I20). A lost reply costs one round trip, not a Pod.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, assert_never
from uuid import UUID

from paddock.domain.runners.runner import Runner
from paddock.domain.states import RunnerState


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedJit:
    """A JIT configuration as the store keeps it: encrypted, under a named key."""

    sealed: bytes
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """A runner whose poller asked just now, with the JIT stored for it, if there is one."""

    runner: Runner
    jit: SealedJit | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """Here is your JIT. A credential: never logged."""

    delivery: UUID
    runner_name: str
    jit: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Leave:
    """There is nothing more for this Pod; it should go."""

    reason: str


@dataclass(frozen=True, slots=True)
class NothingYet:
    """Ask again."""


Answer = Handover | Leave | NothingYet


def reason_to_leave(state: RunnerState) -> str | None:
    """Why a Pod in this state gets nothing, ever; `None` if it may wait."""
    match state:
        case RunnerState.BOOTING | RunnerState.IDLE | RunnerState.CLAIMED | RunnerState.ARMED:
            return None
        case RunnerState.RUNNING | RunnerState.BUSY | RunnerState.DONE:
            return "it has acknowledged its JIT; there is one for each Pod"
        case RunnerState.RETIRING:
            return "it is being retired"
        case RunnerState.GONE:
            return "it is known to have ended"
        case _:
            assert_never(state)


#: The steps from paddock's first word of a job to its start: name, and the interval it measures.
STEPS: Final = {
    "claimed": "from the first word of a job to a Pod claimed for its key",
    "armed": "from the claim to the stored JIT: the mint",
    "acknowledged": "from the stored JIT to the Pod's word that it has it",
    "in_progress": "from then to GitHub's word that the runner executes a job",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDurations:
    """How long one runner took for each of `STEPS`, in seconds; `None` where it is not known."""

    pool: str
    claimed: float | None
    armed: float | None
    acknowledged: float | None
    in_progress: float | None
