"""How accounts and pools affect one another."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from paddock.domain.github import errors as github_errors
from paddock.domain.github.budgets import TokenBucket
from paddock.domain.github.errors import BackOff, Kind
from paddock.domain.ids import PoolId
from paddock.domain.runners.runner import WaitingPod, WaitingPods
from paddock.store import matching
from paddock.store.recovery import Recovering
from simulator.engine.checks import Promise
from simulator.engine.database import Session
from simulator.mutants.patches import mutant, swapped


@mutant(
    "batch-by-arrival",
    "I77",
    "A match takes the Pods that have waited longest, of any pool.",
    "crowded-pool",
    breaks=Promise.PROMPT,
)
def _batch_by_arrival(undo: ExitStack, _session: Session) -> None:
    arrived: dict[WaitingPods, dict[object, WaitingPod]] = {}
    add, remove = WaitingPods.add, WaitingPods.remove

    def note(self: WaitingPods, pod: WaitingPod) -> None:
        arrived.setdefault(self, {})[pod.id] = pod
        add(self, pod)

    def forget(self: WaitingPods, pod: WaitingPod) -> None:
        del arrived[self][pod.id]
        remove(self, pod)

    def first(self: WaitingPods, pool: PoolId, most: int) -> list[WaitingPod]:
        batch = list(arrived.get(self, {}).values())[: matching.BATCH]
        return [pod for pod in batch if pod.pool == pool][:most]

    undo.enter_context(swapped(WaitingPods, "add", note))
    undo.enter_context(swapped(WaitingPods, "remove", forget))
    undo.enter_context(swapped(WaitingPods, "first", first))


@mutant(
    "mints-of-the-app",
    "I26",
    "What one installation mints is taken from what all of its App may mint.",
    "spends-its-mints",
    breaks=Promise.PROMPT,
)
def _mints_of_the_app(undo: ExitStack, _session: Session) -> None:
    def left(self: Any, terms: Any) -> int | None:
        full: int | None = self._full[terms.app]
        if full is None:
            return None
        spent: int = sum(full - left for (app, _), left in self._left.items() if app == terms.app)
        return full - spent

    undo.enter_context(swapped(matching._Mints, "left", left))  # noqa: SLF001


@mutant(
    "slow-down-for-the-app",
    "I26",
    "When GitHub tells one account to slow down, the whole App backs off.",
    "told-to-slow-down",
    breaks=Promise.PROMPT,
)
def _slow_down_for_the_app(undo: ExitStack, _session: Session) -> None:
    rules = tuple(
        replace(rule, backs_off=BackOff.APP) if rule.kind is Kind.SECONDARY_LIMIT else rule
        for rule in github_errors.RULES
    )
    undo.enter_context(swapped(github_errors, "RULES", rules))


@mutant(
    "server-error-for-an-hour",
    "I17",
    "After one error of GitHub's own an account waits for an hour.",
    "mint-fails-once",
    breaks=Promise.PROMPT,
)
def _server_error_for_an_hour(undo: ExitStack, _session: Session) -> None:
    rules = tuple(
        replace(rule, seconds=3600.0, ceiling=3600.0) if rule.kind is Kind.OUTCOME_UNKNOWN else rule
        for rule in github_errors.RULES
    )
    undo.enter_context(swapped(github_errors, "RULES", rules))


@mutant(
    "refusals-add-up",
    "I26",
    "Each of several mints that GitHub refuses together adds the time until the quota is renewed.",
    "quota-used-up",
    breaks=Promise.PROMPT,
)
def _refusals_add_up(undo: ExitStack, _session: Session) -> None:
    told = TokenBucket.told

    def adding(self: TokenBucket, remaining: float, resets_in_s: float | None, now: Any) -> Any:
        return told(self, remaining, resets_in_s, max(self.as_of, now))

    undo.enter_context(swapped(TokenBucket, "told", adding))


@mutant(
    "unassigned-job-holds-its-key",
    "I17",
    "When runners get no job because GitHub does not assign one, their key backs off, not that job.",
    "job-never-assigned",
    breaks=Promise.PROMPT,
)
def _unassigned_holds_its_key(undo: ExitStack, _session: Session) -> None:
    async def none(*_: object) -> int:
        return 0

    undo.enter_context(swapped(Recovering, "withhold_unassigned", none))
