"""The actions of the dashboard. Each has a name, is harmless or can be undone by another action, and is
recorded as an event with its actor. The command line does them in the same way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from paddock.operators import Operator, UnknownName
from paddock.ports.operators import OperatorStore
from paddock.recovery.by_hand import CannotRetire

#: A reason is a sentence; it is stored with the event.
LONGEST_WHY: Final = 300


class CannotAct(Exception):
    """The action was not done; the argument is a sentence that says why."""


Act = Callable[[Operator, str, str], Awaitable[object]]

#: Each returns whether something changed.
ACTIONS: Final[dict[str, Act]] = {
    "retire-runner": lambda operator, name, why: operator.retire_runner(name, why=why),
    "force-retire-runner": lambda operator, name, why: operator.retire_runner(
        name, why=why, force=True
    ),
    "pause-pool": lambda operator, name, why: operator.pause_pool(name, why=why),
    "resume-pool": lambda operator, name, why: operator.resume_pool(name, why=why),
    "pause-account": lambda operator, name, why: operator.pause_account(name, why=why),
    "resume-account": lambda operator, name, why: operator.resume_account(name, why=why),
    "pause-dispatch": lambda operator, _, why: operator.pause_dispatch(why=why),
    "resume-dispatch": lambda operator, _, why: operator.resume_dispatch(why=why),
}

#: The next page's text for each action. The address carries only the action's name: a free text there
#: could be forged.
SAID: Final[dict[str, str]] = {
    "retire-runner": "The runner is being retired. If it executes a job, it finishes that first.",
    "force-retire-runner": "The runner is ended by force, whether a job is on it or not.",
    "pause-pool": "The pool is paused: nothing is claimed from it, and what runs goes on.",
    "resume-pool": "The pool gives out runners again.",
    "pause-account": "The account is paused: it gets no more runners, and what runs goes on.",
    "resume-account": "The account gets runners again.",
    "pause-dispatch": "All dispatch is paused: no job gets a runner, and running jobs go on.",
    "resume-dispatch": "Runners are given out again.",
    "nothing": "That was so already.",
}


async def act(store: OperatorStore, action: str, *, name: str, why: str, actor: str) -> bool:
    """False if nothing had to change."""
    do = ACTIONS.get(action)
    if do is None:
        raise CannotAct("There is no such action.")
    reason = " ".join(why.split())[:LONGEST_WHY] or "from the dashboard"
    try:
        return bool(await do(Operator(store, actor=actor), name, reason))
    except (UnknownName, CannotRetire) as error:
        raise CannotAct(str(error)) from None
