"""Mutants written when the simulator seemed complete. The scenarios of some came later; those written
for worlds of fleet size name none."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from paddock.dispatch import debts
from paddock.dispatch.debts import DebtCollector
from paddock.domain.github.backoffs import ENDED_WITHOUT_A_JOB
from paddock.domain.pods.pod import Pod, PodList
from paddock.domain.recovery.evidence import Subject
from paddock.domain.runners.runner import Runner
from paddock.forensics import conclusion
from paddock.github.caller import Caller
from paddock.recovery.adopt import Adoption
from paddock.recovery.observe import PodView
from paddock.recovery.retire import Retirement
from simulator.engine.checks import Promise
from simulator.engine.database import Session
from simulator.mutants.patches import (
    mutant,
    routine,
    statement,
    swapped,
    table,
    without,
)


@mutant(
    "capacity-freed-with-the-job",
    "I46",
    "A runner whose job is over holds no place any more, though its Pod is still there.",
    "finished-lingers",
    breaks=Promise.LIMIT,
)
def _freed_with_the_job(undo: ExitStack, session: Session) -> None:
    held = "WHERE r.gone_at IS NULL\n"
    undo.enter_context(
        routine(session, "demand", (held, f"{held.rstrip()} AND r.state <> 'done'\n"))
    )


@mutant(
    "proof-once",
    "I65",
    "A runner that shows no job once is deleted; recovery does not look again.",
    "late-log",
    breaks=Promise.LIVE_JOB,
)
def _proof_once(undo: ExitStack, _session: Session) -> None:
    prove = vars(Retirement)["_prove"]

    async def once(self: Any, runner: Runner, pod: Pod, seen_at: datetime, now: datetime) -> Any:
        proved = replace(runner, proved_at=runner.proved_at or now - timedelta(hours=1))
        return await prove(self, proved, pod, seen_at, now)

    undo.enter_context(swapped(Retirement, "_prove", once))


@mutant(
    "debts-unpaid",
    "I41",
    "What is left at GitHub of runners that are gone is left there.",
    "lost-mints",
    breaks=Promise.NO_LEAK,
)
def _debts_unpaid(undo: ExitStack, _session: Session) -> None:
    async def nothing(_self: Any) -> int:
        return 0

    undo.enter_context(swapped(DebtCollector, "round", nothing))


@mutant(
    "waiting-is-demand",
    "I12",
    "A job that waits for an approval is given a runner.",
    "gated-job",
    breaks=Promise.ENOUGH,
)
def _waiting_is_demand(undo: ExitStack, session: Session) -> None:
    undo.enter_context(
        routine(session, "demand", ("state = 'queued'", "state IN ('queued', 'waiting')"))
    )
    undo.enter_context(
        statement("dispatch", "demand", ("state = 'queued'", "state IN ('queued', 'waiting')"))
    )


@mutant(
    "strangers-end-untold",
    "I58",
    "A Pod that no row knows and that has ended is deleted; how it ended is not recorded.",
    "restored-backup",
    breaks=Promise.VERDICT,
)
def _untold(undo: ExitStack, _session: Session) -> None:
    adopt = vars(Adoption)["_adopt"]

    async def deleted(self: Any, verdict: Any, pod: Pod, *rest: Any) -> bool:
        if pod.phase.terminal:
            await self._conclusion.reap(pod)
            return True
        return bool(await adopt(self, verdict, pod, *rest))

    undo.enter_context(swapped(Adoption, "_adopt", deleted))


@mutant(
    "partial-list-believed",
    "I29",
    "A list of Pods that says that it is incomplete is taken for complete.",
    breaks=Promise.VERDICT,
)
def _partial_list(undo: ExitStack, _session: Session) -> None:
    read = vars(PodView)["refresh"]

    class Believed:
        """The fleet, with every list marked complete."""

        def __init__(self, fleet: Any) -> None:
            self._fleet = fleet

        async def list(self) -> PodList:
            found: PodList = await self._fleet.list()
            return replace(found, complete=True)

    async def believing(self: Any) -> bool:
        own, self._fleet = self._fleet, Believed(self._fleet)
        try:
            return bool(await read(self))
        finally:
            self._fleet = own

    undo.enter_context(swapped(PodView, "refresh", believing))


@mutant(
    "late-mint-arms",
    "I16",
    "A mint that answers after its claim was taken over arms the runner with its own JIT.",
    breaks=Promise.NO_LEAK,
)
def _late_mint_arms(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(
        statement(
            "runners",
            "arm",
            ("AND generation = :generation AND", "AND :generation::int IS NOT NULL AND"),
        )
    )


@mutant(
    "zombie-kept",
    "I40",
    "A runner whose record is gone, and that executes nothing, is left running.",
    breaks=Promise.NO_LEAK,
)
def _zombie_kept(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(table(Subject.RUNNER, without("zombie")))


@mutant(
    "undelivered-kept",
    "I20",
    "A runner whose Pod never fetches its JIT is left waiting.",
    breaks=Promise.NO_LEAK,
)
def _undelivered_kept(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(table(Subject.RUNNER, without("undelivered")))


@mutant(
    "fenced-pods-claimed",
    "I16",
    "A match claims a Pod that was fenced while it waited.",
    breaks=Promise.LEGAL,
)
def _fenced_claimed(undo: ExitStack, session: Session) -> None:
    undo.enter_context(routine(session, "claim", ("AND r.state = 'idle' AND", "AND")))


@mutant(
    "debts-paid-at-once",
    "I41",
    "A name is looked for at GitHub, and settled, while its mint may still be under way.",
    "late-mint",
    breaks=Promise.NO_LEAK,
)
def _paid_at_once(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(swapped(debts, "MINT_SETTLED", timedelta()))


@mutant(
    "queued-runs-compared",
    "I8",
    "Only runs that GitHub calls queued are compared, not the queued jobs of runs that have begun.",
    breaks=Promise.SERVED,
)
def _queued_runs(undo: ExitStack, _session: Session) -> None:
    pages = vars(Caller)["pages"]

    async def queued(self: Any, who: Any, request: Any, *rest: Any, **named: Any) -> Any:
        if (request.params or {}).get("status") == "in_progress":
            return [], True
        return await pages(self, who, request, *rest, **named)

    undo.enter_context(swapped(Caller, "pages", queued))


@mutant(
    "namesake-heard",
    "I36",
    "A Pod that asks is taken for the runner of its name, whatever its UID.",
    "namesake-asks",
    breaks=Promise.ONE_HAND,
)
def _namesake_heard(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(
        statement("dispatch", "hear", ("AND (pod_uid IS NULL OR pod_uid = :uid) ", ""))
    )


@mutant(
    "jobless-keys-never-rest",
    "I69",
    "A key goes on getting runners however many of its last ones ended without a job.",
    "all-leave",
    breaks=Promise.ENOUGH,
)
def _never_rest(undo: ExitStack, _session: Session) -> None:
    endless = replace(ENDED_WITHOUT_A_JOB, forgiven=1_000_000)
    undo.enter_context(swapped(conclusion, "ENDED_WITHOUT_A_JOB", endless))
