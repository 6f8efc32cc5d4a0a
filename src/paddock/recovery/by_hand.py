"""Sending a runner away because somebody said so: from the command line or the dashboard, the same way.

It is fenced here, and from there retires like any other: nothing is deleted while a job may be on it.
"""

from __future__ import annotations

from typing import Final

from paddock.domain.endings import Retired
from paddock.domain.runners import Conflict, Runner
from paddock.domain.states import RunnerState
from paddock.ports import Store

#: It is claimed, hands over, gets its job: nobody moves more often than this in a moment.
_ATTEMPTS: Final = 5


class CannotRetire(Exception):
    """There is no such runner, or not any more; says so in a sentence."""


async def retire_by_hand(store: Store, name: str, *, why: str) -> Runner | None:
    """By its Pod's name or its name at GitHub. `None`: it is being retired already."""
    for _ in range(_ATTEMPTS):
        runner = await store.find_runner(name)
        if runner is None:
            raise CannotRetire(f"There is no runner {name}: see `paddock runners list`.")
        if runner.state is RunnerState.GONE:
            raise CannotRetire(f"{name} has ended: there is nothing left to retire.")
        if runner.state is RunnerState.RETIRING:
            return None
        fenced = await store.fence_runner(
            runner.id,
            generation=runner.generation,
            state=runner.state,
            why=why,
            retired=Retired.UNWANTED,
        )
        if not isinstance(fenced, Conflict):
            return fenced
    raise CannotRetire(
        f"{name} changed {_ATTEMPTS} times while it was looked at: try it once more."
    )
