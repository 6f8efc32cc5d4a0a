"""The search for Pods that no row knows (I81), with one guard less."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import datetime
from typing import Any

from paddock.domain.github.errors import GitHubError
from paddock.domain.github.objects import Absent, InstallationKey, RunnerPage, Scope
from paddock.github.client import GitHubClient
from paddock.recovery import search
from paddock.recovery.search import RunnerSearch
from simulator.engine.checks import Promise
from simulator.engine.database import Session
from simulator.mutants.patches import mutant, swapped


@mutant(
    "partial-list-is-an-answer",
    "I29",
    "A list of runners whose later pages fail is taken for all there are.",
    "restored-among-many",
    breaks=Promise.LIVE_JOB,
)
def _partial_list(undo: ExitStack, _session: Session) -> None:
    whole = GitHubClient.list_runners

    async def list_runners(
        self: Any, who: InstallationKey, scope: Scope, *, page: str | None = None
    ) -> RunnerPage | Absent:
        try:
            return await whole(self, who, scope, page=page)
        except GitHubError:
            if page is None:
                raise
            return RunnerPage(runners=(), next=None)

    undo.enter_context(swapped(GitHubClient, "list_runners", list_runners))


@mutant(
    "one-list-is-enough",
    "I81",
    "A Pod that one list does not have is absent.",
    "list-slips",
    breaks=Promise.LIVE_JOB,
)
def _one_list(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(swapped(search, "_TIMES", 1))


@mutant(
    "removed-account-unanswered",
    "I81",
    "The search waits for an account that has uninstalled the App.",
    "restored-among-many",
    breaks=Promise.NO_LEAK,
)
def _removed_unanswered(undo: ExitStack, _session: Session) -> None:
    coverage = RunnerSearch._coverage  # noqa: SLF001

    def uncovered(self: Any) -> datetime | None:
        removed = any(scope.state == "removed" for scope in self._scopes.values())
        return None if removed else coverage(self)

    undo.enter_context(swapped(RunnerSearch, "_coverage", uncovered))
