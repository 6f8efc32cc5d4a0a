"""When a Pod may get its owner's label.

The label can take a Pod out of the network policy that lets it reach dispatch. So it must not be set
before the Pod holds its JIT: a poller that is cut off asks for ever, and its claim waits with it (I56).
"""

from __future__ import annotations

from typing import Final

from paddock.domain.fingerprints import ContainerStatus
from paddock.domain.states import RunnerState

_CLAIMED: Final = frozenset(
    {RunnerState.ARMED, RunnerState.RUNNING, RunnerState.BUSY, RunnerState.DONE}
)
_AT_WORK: Final = frozenset({RunnerState.BUSY, RunnerState.DONE})


def may_stamp(*, shape: str, state: RunnerState, poller: ContainerStatus | None) -> bool:
    """A claimed Pod whose poller has ended holds its JIT. Where one container polls and runs, only a
    job proves that."""
    if shape == "single":
        return state in _AT_WORK
    return state in _CLAIMED and poller is not None and poller.state.terminated is not None
