"""Stamps and missing objects: wrong conclusions from the state of the fleet and GitHub."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from paddock.domain.github.objects import Absent
from paddock.domain.pods.pod import Pod, PodList
from paddock.domain.recovery.thresholds import Thresholds
from paddock.domain.runners.runner import Runner
from paddock.github.client import GitHubClient
from paddock.recovery.gather import RoundView
from paddock.recovery.loop import Recovery
from paddock.recovery.observe import PodView
from paddock.recovery.runners import RunnerRecovery
from simulator.engine.checks import Promise
from simulator.engine.database import Session
from simulator.mutants.patches import (
    mutant,
    swapped,
)


@mutant(
    "stamp-before-jit",
    "S5",
    "The owner's label is put on as soon as a Pod is claimed.",
    "slow-mint",
    breaks=Promise.CUT_OFF,
)
def _stamp_before_jit(undo: ExitStack, _session: Session) -> None:
    def at_once(self: Any, runner: Runner, pod: Pod) -> bool:
        if pod.owner is not None or runner.account is None or pod.uid in self._stamped:
            return False
        self._stamped[pod.uid] = None
        return True

    undo.enter_context(swapped(Recovery, "_to_be_stamped", at_once))


@mutant(
    "stamp-failure-is-fatal",
    "S5",
    "A Pod whose label could not be put on is given up.",
    "no-stamps",
    breaks=Promise.ENOUGH,
)
def _stamp_is_fatal(undo: ExitStack, _session: Session) -> None:
    stamp = Recovery._stamp  # noqa: SLF001

    async def giving_up(self: Any, pod: Pod, owner: str) -> None:
        await stamp(self, pod, owner)
        shown = [each for each in (await self._view._fleet.list()).pods if each.uid == pod.uid]  # noqa: SLF001
        if not shown or shown[0].owner is not None:
            return
        for runner in (await self._gatherer.glance()).runners:
            if runner.pod_name == pod.name:
                await self._store.fence_runner(
                    runner.id,
                    generation=runner.generation,
                    state=runner.state,
                    why="its label could not be put on",
                )

    undo.enter_context(swapped(Recovery, "_stamp", giving_up))


@mutant(
    "empty-list-is-all-gone",
    "I29",
    "A list without Pods is believed, and one read is enough to be absent.",
    "empty-list",
    breaks=Promise.VERDICT,
    also="the number of lists in which a Pod must be absent",
)
def _empty_is_gone(undo: ExitStack, _session: Session) -> None:
    async def believed(self: Any, _found: PodList) -> bool:
        return False

    thresholds = RunnerRecovery._thresholds  # noqa: SLF001

    def hasty(self: Any, runner: Runner, look: RoundView) -> Thresholds:
        return replace(thresholds(self, runner, look), absent_reads=1)

    undo.enter_context(swapped(PodView, "_suspicious", believed))
    undo.enter_context(swapped(RunnerRecovery, "_thresholds", hasty))


@mutant(
    "scope-404-is-absence",
    "I66",
    "A 404 is believed without a control read of its scope.",
    "scope-404",
    breaks=Promise.SERVED,
)
def _404_is_absence(undo: ExitStack, _session: Session) -> None:
    async def believed(self: Any, who: Any, request: Any, _control: Any) -> Any:
        received = await self._caller.ask(who, request, answers={404})
        return received if received.answer.ok else Absent(proof="404")

    undo.enter_context(swapped(GitHubClient, "_answered", believed))
