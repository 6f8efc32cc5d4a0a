"""Sweeps that know too little of the Pods that they delete (S1)."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from paddock.dispatch.dispatcher import Dispatcher
from paddock.domain.pods.pod import PodIdentity
from paddock.domain.recovery.actions import RunnerAction
from paddock.domain.recovery.evidence import Container, Subject
from paddock.domain.recovery.predicates import alive
from paddock.domain.recovery.rule import Rule
from paddock.domain.runners.handover import Leave
from paddock.domain.runners.runner import Runner
from paddock.recovery.gather import RoundView
from paddock.recovery.loop import Recovery
from simulator.engine.checks import Promise
from simulator.engine.database import Session
from simulator.mutants.patches import (
    ANY_CLAIM,
    before,
    claims_may_be_released,
    mutant,
    statement,
    swapped,
    table,
)

_SWEPT_AFTER: Final = timedelta(seconds=60)


def _sweeping(undo: ExitStack) -> None:
    """In each round a stamped Pod without a claim that is old enough is taken for leaked."""
    slow_round = Recovery._slow_round  # noqa: SLF001

    async def swept(self: Any, look: RoundView) -> None:
        claimed = {runner.pod_name for runner in look.runners if runner.key is not None}
        for name, pod in sorted(look.pods.items()):
            old = look.now - pod.created_at >= _SWEPT_AFTER
            if pod.owner is not None and name not in claimed and old and not pod.phase.terminal:
                await self._conclusion.reap(pod)
        await slow_round(self, look)

    undo.enter_context(swapped(Recovery, "_slow_round", swept))


@mutant(
    "sweep-without-started-guard",
    "S1",
    "Stamped Pods without a claim are deleted, whether their runner started or not.",
    "claim-released",
    "restored-backup",
    breaks=Promise.LIVE_JOB,
)
def _sweep_without_guard(undo: ExitStack, _session: Session) -> None:
    _sweeping(undo)


@mutant(
    "started-guard-on-single",
    "S1",
    "A started container protects its Pod also where one container polls and runs.",
    "macos-never-registers",
    breaks=Promise.NO_LEAK,
)
def _guard_on_single(undo: ExitStack, _session: Session) -> None:
    guard: Rule[Any, Any] = Rule(
        name="started-guard",
        subject=Subject.RUNNER,
        seen="Its container has started",
        done="Leave it alone",
        action=RunnerAction.PROTECT,
        holds=lambda e, _: (
            e.shape == "single" and alive(e.pod) and e.pod.runner is Container.STARTED
        ),
    )
    undo.enter_context(table(Subject.RUNNER, before("unrecognised", guard)))


@mutant(
    "claim-released-mid-job",
    "S1",
    "46 s after the acknowledgement a late error releases the claim; then a sweep finds its Pod.",
    "long-job",
    breaks=Promise.LIVE_JOB,
    also="the table of legal transitions, and the state that a release asks for",
)
def _released_mid_job(undo: ExitStack, session: Session) -> None:
    _sweeping(undo)
    undo.enter_context(claims_may_be_released(session))
    undo.enter_context(statement("runners", "release", *ANY_CLAIM))
    acknowledge = Dispatcher.acknowledge
    later: set[asyncio.Task[None]] = set()

    async def release(self: Any, runner: Runner) -> None:
        await self._clock.sleep(46.0)
        await self._store.release_runner(
            runner.id,
            generation=runner.generation,
            why="something failed after the JIT was delivered",
            no_record_because=None,
        )

    async def acknowledged(self: Any, pod: PodIdentity, delivery: UUID) -> bool | Leave:
        answer = await acknowledge(self, pod, delivery)
        heard = await self._store.hear_pod(pod.pod_name, pod_uid=pod.pod_uid)
        if answer is True and heard is not None:
            task = asyncio.create_task(release(self, heard.runner))
            later.add(task)
            task.add_done_callback(later.discard)
        return answer

    undo.enter_context(swapped(Dispatcher, "acknowledge", acknowledged))
