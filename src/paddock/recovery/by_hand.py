"""Retiring a runner on an operator's order, from the command line or the dashboard.

The runner is fenced here, and then retires like any other: its Pod is not deleted while a job may be on
it. By force its Pod is deleted in any case: the operator answers for the job, and the order cannot be
undone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import structlog

from paddock.domain.runners.endings import Retired
from paddock.domain.runners.runner import Conflict, Runner
from paddock.domain.states import RunnerState
from paddock.log_events import runner_fields
from paddock.ports.runners import RetireByHandStore

_log = structlog.get_logger()

#: Claim, handover, job: no runner changes state more often than this in a moment.
_ATTEMPTS: Final = 5


class CannotRetire(Exception):
    """The runner is unknown, has ended or keeps changing; the sentence says which."""


async def retire_by_hand(
    store: RetireByHandStore, name: str, *, why: str, force: bool = False
) -> Runner | None:
    """By its Pod's name or its name at GitHub. `None`: it is being retired already, by force if that is
    what was asked for."""
    for _ in range(_ATTEMPTS):
        runner = await store.find_runner(name)
        if runner is None:
            raise CannotRetire(f"There is no runner {name}: see `paddock runners list`.")
        if runner.state is RunnerState.GONE:
            raise CannotRetire(f"{name} has ended: there is nothing left to retire.")
        if runner.forced_by is not None or (runner.state is RunnerState.RETIRING and not force):
            return None
        moved = await (_force if force else _fence)(store, runner, why)
        if not isinstance(moved, Conflict):
            return replace(moved, login=runner.login, pool_name=runner.pool_name)
    raise CannotRetire(
        f"{name} changed {_ATTEMPTS} times while it was looked at: try it once more."
    )


async def _fence(store: RetireByHandStore, runner: Runner, why: str) -> Runner | Conflict:
    return await store.fence_runner(
        runner.id,
        generation=runner.generation,
        state=runner.state,
        why=why,
        retired=Retired.UNWANTED,
    )


async def _force(store: RetireByHandStore, runner: Runner, why: str) -> Runner | Conflict:
    forced = await store.force_runner(
        runner.id, generation=runner.generation, state=runner.state, why=why
    )
    if isinstance(forced, Runner):
        _log.warning(
            "runner.forced",
            **runner_fields(runner),
            state=runner.state,
            actor=forced.forced_by,
            why=why,
        )
    return forced
