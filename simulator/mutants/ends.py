"""Ends, their logs, and the capacity that they free. Also forced ends, and the cleanup after an account
removes the App: with one guard less."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any, Final

from paddock.domain.pods.pod import Pod
from paddock.domain.recovery.evidence import Subject
from paddock.domain.recovery.records import WantedLog
from paddock.domain.runners.endings import LOG_WANTED_FOR
from paddock.domain.runners.runner import Runner
from paddock.forensics.conclusion import Concluded, Conclusion
from paddock.forensics.post_mortem import TAIL_BYTES, TAIL_LINES, PostMortem, _Tail
from paddock.ports import FleetUnavailable
from paddock.recovery.adopt import Adoption
from simulator.engine.checks import Promise
from simulator.engine.database import Session
from simulator.mutants.patches import mutant, statement, swapped, table, without

_AGAIN: Final = 5.0


@mutant(
    "log-asked-for-once",
    "I79",
    "The log of an ended Pod is asked for once; if that fails, its time passes unused.",
    "log-away",
    breaks=Promise.VERDICT,
)
def _asked_once(undo: ExitStack, _session: Session) -> None:
    tail = vars(PostMortem)["_tail"]

    async def once(self: Any, wanted: WantedLog) -> _Tail:
        if self._tries.get(wanted.runner, 0) >= 1:
            return _Tail(known=False)
        found: _Tail = await tail(self, wanted)
        return found

    undo.enter_context(swapped(PostMortem, "_tail", once))


@mutant(
    "reaped-with-its-verdict",
    "I79",
    "An ended Pod is deleted as soon as its verdict is written, with its log unread.",
    "log-away",
    breaks=Promise.VERDICT,
)
def _reaped_with_its_verdict(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(swapped(Concluded, "wants_log", property(lambda _self: False)))


@mutant(
    "wanted-log-swept",
    "I79",
    "Recovery deletes ended Pods whose verdict is written, also while their log is still asked for.",
    "log-away",
    breaks=Promise.VERDICT,
)
def _wanted_log_swept(undo: ExitStack, _session: Session) -> None:
    async def none(_self: Any) -> set[str]:
        return set()

    undo.enter_context(swapped(Adoption, "_kept_for_their_logs", none))


@mutant(
    "log-told-twice",
    "S4",
    "A leader that has read a log writes it, whether another leader has done so or not.",
    "two-leaders-one-log",
    breaks=Promise.VERDICT,
)
def _told_twice(undo: ExitStack, _session: Session) -> None:
    guard = " AND log_tail IS NULL AND log_wanted_until IS NOT NULL"
    undo.enter_context(statement("recovery", "keep_log", (guard, "")))


@mutant(
    "capacity-waits-for-the-log",
    "I80",
    "A runner is gone when its log was read, or when the time for that is up.",
    "log-away",
    breaks=Promise.PROMPT,
)
def _capacity_waits(undo: ExitStack, _session: Session) -> None:
    conclude = Conclusion.conclude

    async def wait(self: Any, pod: Pod) -> None:
        until = self._clock.now() + LOG_WANTED_FOR
        while self._clock.now() < until:
            with suppress(FleetUnavailable):
                await self._fleet.log_tail(
                    pod.name, uid=pod.uid, lines=TAIL_LINES, most_bytes=TAIL_BYTES
                )
                return
            await self._clock.sleep(_AGAIN)

    async def waiting(self: Any, ended: Sequence[tuple[Runner, Pod]]) -> list[Concluded]:
        await asyncio.gather(*(wait(self, pod) for _, pod in ended))
        return await conclude(self, ended)

    undo.enter_context(swapped(Conclusion, "conclude", waiting))


@mutant(
    "forced-retirement-undone",
    "I36",
    "A rule takes a runner that was ended by force for one that executes a job.",
    "ended-by-force",
    breaks=Promise.NO_LEAK,
)
def _forced_undone(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(table(Subject.RUNNER, without("forced")))


@mutant(
    "removed-account-keeps-its-pods",
    "I81",
    "No rule ends a stopped runner of an account that has removed the App.",
    "uninstalled-stopped",
    breaks=Promise.NO_LEAK,
)
def _kept(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(table(Subject.RUNNER, without("account-removed")))


@mutant(
    "deleted-repository-keeps-its-pods",
    "I66",
    "No rule ends a stopped runner that is registered at a deleted repository.",
    "repository-deleted-stopped",
    breaks=Promise.NO_LEAK,
)
def _kept_by_a_repository(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(table(Subject.RUNNER, without("record-removed")))


@mutant(
    "suspended-is-removed",
    "I66",
    "A suspended installation is taken for a removed one.",
    "suspended-long-job",
    breaks=Promise.LIVE_JOB,
)
def _suspended(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(
        statement(
            "recovery",
            "removed_accounts",
            ("bool_and(i.state = 'removed')", "bool_and(i.state <> 'active')"),
            ("coalesce(min(r.confirmations), 0)", "coalesce(min(r.confirmations), 3)"),
        )
    )


@mutant(
    "removal-confirmed-once",
    "I29",
    "An installation that GitHub did not know once is removed for good.",
    "removed-for-a-moment",
    breaks=Promise.LIVE_JOB,
)
def _once(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(
        statement(
            "recovery",
            "removed_accounts",
            ("coalesce(min(r.confirmations), 0)", "3 * coalesce(min(r.confirmations), 0)"),
        )
    )
