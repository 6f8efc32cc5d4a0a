"""Mutants of JITs and names."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from paddock.dispatch import dispatcher as dispatching
from paddock.dispatch.dispatcher import Dispatcher
from paddock.dispatch.minting import Minter
from paddock.domain.github.objects import MintedJit
from paddock.domain.names import runner_name
from paddock.domain.runners.handover import Heard, NothingYet
from paddock.domain.runners.runner import Claim
from paddock.store import matching
from simulator.engine.checks import Promise
from simulator.engine.database import Session
from simulator.mutants.patches import (
    ANY_CLAIM,
    changed_schema,
    claims_may_be_released,
    mutant,
    routine,
    statement,
    swapped,
)


@mutant(
    "no-replay",
    "I20",
    "A JIT is handed out once; a Pod that did not receive it is told to wait.",
    "lost-reply",
    "failover-during-mint",
    breaks=Promise.SERVED,
)
def _no_replay(undo: ExitStack, _session: Session) -> None:
    async def waits(self: Any, _heard: Heard) -> NothingYet:
        await self._clock.sleep(3.0)  # within what PROMPT allows: SERVED must notice
        return NothingYet()

    undo.enter_context(swapped(Dispatcher, "_replay", waits))


@mutant(
    "claimed-in-match-is-idle",
    "I20",
    "A Pod whose request ends while a match is written is taken for idle when it asks again.",
    "request-ends-in-match",
    breaks=Promise.PROMPT,
)
def _claimed_in_match(undo: ExitStack, _session: Session) -> None:
    forgotten = property(lambda _self: {}, lambda _self, _made: None)
    setattr(Dispatcher, "_made", forgotten)  # noqa: B010 - it is an instance's only
    undo.callback(delattr, Dispatcher, "_made")


@mutant(
    "used-jit-for-new-pod",
    "I20",
    "The JIT of a key's last runner is given to its next one.",
    "two-jobs",
    breaks=Promise.ONE_HAND,
    also="the index that gives a GitHub runner to one mint",
)
def _used_jit(undo: ExitStack, session: Session) -> None:
    ask = Minter._ask  # noqa: SLF001

    async def saving(self: Any, claim: Claim) -> MintedJit:
        used: dict[int, MintedJit] = self.__dict__.setdefault("used", {})
        if claim.key not in used:
            used[claim.key] = await ask(self, claim)
        return used[claim.key]

    undo.enter_context(
        changed_schema(
            session,
            ["DROP INDEX mints_github_id"],
            [
                "TRUNCATE mints",
                """CREATE UNIQUE INDEX mints_github_id ON mints (key_id, github_id)
                    WHERE github_id IS NOT NULL""",
            ],
        )
    )
    undo.enter_context(swapped(Minter, "_ask", saving))


@mutant(
    "late-release-without-generation",
    "I16",
    "A failed mint releases its runner's claim, even if that is a newer claim by now.",
    "late-release",
    breaks=Promise.LIMIT,
    also="the table of legal transitions, and the state that a release asks for",
)
def _late_release(undo: ExitStack, session: Session) -> None:
    undo.enter_context(claims_may_be_released(session))
    undo.enter_context(
        statement(
            "runners",
            "release",
            *ANY_CLAIM,
            ("AND generation = :generation AND", "AND :generation::int IS NOT NULL AND"),
        )
    )


@mutant(
    "name-reused-after-lost-mint",
    "I19",
    "A runner's name is its Pod's: it is used again after a lost mint, and owed only when the Pod is"
    " gone.",
    "lost-mints",
    breaks=Promise.NO_LEAK,
    also="the unique name of a mint, and debts of names that their runner has left",
)
def _name_reused(undo: ExitStack, session: Session) -> None:
    again = (
        " ON CONFLICT (name) DO UPDATE SET generation = excluded.generation, state = 'chosen',"
        " github_id = NULL, outcome = NULL, settled_at = NULL, chosen_at = excluded.chosen_at"
    )
    undo.enter_context(
        routine(
            session,
            "claim",
            ("moment FROM claimed\n", f"moment FROM claimed {again}\n"),
        )
    )
    undo.enter_context(
        statement("runners", "take_over", ("RETURNING app_id", f"{again} RETURNING app_id"))
    )
    owed = "(r.state = 'gone' OR r.name IS DISTINCT FROM m.name)"
    undo.enter_context(statement("dispatch", "debts", (owed, "r.state = 'gone'")))
    for module in (matching, dispatching):
        undo.enter_context(swapped(module, "runner_name", lambda pod, _: runner_name(pod, 1)))
