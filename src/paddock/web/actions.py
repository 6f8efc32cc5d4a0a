"""What somebody may do from the dashboard: few things, each with a name, each undone by another or
harmless, and each an event in the name of whoever did it. The command line does them the same way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from paddock.domain.ids import AccountId
from paddock.ports import Store
from paddock.recovery.by_hand import CannotRetire, retire_by_hand

_log = structlog.get_logger()

#: A reason is a sentence; it is stored with the event.
LONGEST_WHY: Final = 300


class CannotAct(Exception):
    """It was not done; says why in a sentence."""


Act = Callable[[Store, str, str], Awaitable[bool]]


async def _retire(store: Store, name: str, why: str) -> bool:
    try:
        return await retire_by_hand(store, name, why=why) is not None
    except CannotRetire as error:
        raise CannotAct(str(error)) from None


async def _force_retire(store: Store, name: str, why: str) -> bool:
    try:
        return await retire_by_hand(store, name, why=why, force=True) is not None
    except CannotRetire as error:
        raise CannotAct(str(error)) from None


async def _pause_pool(store: Store, name: str, why: str) -> bool:
    if (pool := await store.find_pool(name)) is None:
        raise CannotAct(f"There is no pool {name}.")
    return await store.pause_pool(pool, why=why)


async def _resume_pool(store: Store, name: str, why: str) -> bool:
    if (pool := await store.find_pool(name)) is None:
        raise CannotAct(f"There is no pool {name}.")
    return await store.resume_pool(pool, why=why)


async def _pause_account(store: Store, name: str, why: str) -> bool:
    return await store.pause_account(await _account(store, name), why=why)


async def _resume_account(store: Store, name: str, why: str) -> bool:
    return await store.resume_account(await _account(store, name), why=why)


async def _account(store: Store, name: str) -> AccountId:
    """Two hosts may have an account of one name: `host/login` says which."""
    host, _, login = name.rpartition("/")
    for account in await store.list_accounts():
        if account.login == login and host in ("", account.host):
            return account.id
    raise CannotAct(f"There is no account {name}.")


async def _pause_dispatch(store: Store, _: str, why: str) -> bool:
    return await store.pause_dispatch(why=why)


async def _resume_dispatch(store: Store, _: str, why: str) -> bool:
    return await store.resume_dispatch(why=why)


ACTIONS: Final[dict[str, Act]] = {
    "retire-runner": _retire,
    "force-retire-runner": _force_retire,
    "pause-pool": _pause_pool,
    "resume-pool": _resume_pool,
    "pause-account": _pause_account,
    "resume-account": _resume_account,
    "pause-dispatch": _pause_dispatch,
    "resume-dispatch": _resume_dispatch,
}

#: What the next page says of each; by its name, for an address could say anything else.
SAID: Final[dict[str, str]] = {
    "retire-runner": "The runner is being retired. If it executes a job, it finishes that first.",
    "force-retire-runner": "The runner is ended by force, whether a job is on it or not.",
    "pause-pool": "The pool is paused: nothing is claimed from it, and what runs goes on.",
    "resume-pool": "The pool gives out runners again.",
    "pause-account": "The account is paused: it gets no more runners, and what runs goes on.",
    "resume-account": "The account gets runners again.",
    "pause-dispatch": "All dispatch is paused: nobody gets a runner, and what runs goes on.",
    "resume-dispatch": "Runners are given out again.",
    "nothing": "That was so already.",
}


async def act(store: Store, action: str, *, name: str, why: str, actor: str) -> bool:
    """False if it was so already."""
    do = ACTIONS.get(action)
    if do is None:
        raise CannotAct("There is no such action.")
    reason = " ".join(why.split())[:LONGEST_WHY] or "from the dashboard"
    done = await do(store.acting_as(actor), name, reason)
    _log.info("operator.acted", action=action, name=name, actor=actor, why=reason, done=done)
    return done
