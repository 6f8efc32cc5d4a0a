"""Asking GitHub about suspects, within a budget.

Every question costs a request that a mint may need more, so the number in a round is limited. After a
failure nothing is asked for a while about the job, repository, account or App that the failure names;
all others are asked about (I17). Without an answer the result is `unreadable`, which no rule takes for
an answer (I29).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog
from prometheus_client import Counter

from paddock.dispatch.installations import RegisteredApp
from paddock.dispatch.pauses import Pauses, Place
from paddock.domain.github.backoffs import PausedScope
from paddock.domain.github.errors import GitHubError, Kind
from paddock.domain.github.objects import (
    Absent,
    InstallationId,
    InstallationKey,
    JobRecord,
    Scope,
    repository_scope,
)
from paddock.domain.ids import AppId, GitHubRunnerId, JobId
from paddock.domain.recovery.evidence import RecordWord, record_word
from paddock.domain.recovery.records import KeyPlace, PlacedJob
from paddock.ports import Clock, GitHub

_log = structlog.get_logger()

#: After a failure; as long as a round or two.
_LEAST_PAUSE: Final = 5.0
#: GitHub may order longer pauses, but a suspect is asked about again after this at the latest.
_LONGEST_PAUSE: Final = 60.0

QUESTIONS = Counter(
    "paddock_recovery_questions_total", "Questions to GitHub about suspects.", ["about", "outcome"]
)


class NoAnswer:
    """GitHub gave no usable answer."""


class RepositoryGone(NoAnswer):
    """GitHub answers 404 for everything in the repository, and the complete list of what the same
    installation can read does not contain it (I66): its jobs cannot be asked about any more."""


class GitHubLookups:
    def __init__(
        self, *, github: GitHub, clock: Clock, apps: Sequence[RegisteredApp], most: int
    ) -> None:
        self._github = github
        self._clock = clock
        self._apps = {app.app: app for app in apps}
        self._most = most
        self._left = most
        self._pauses = Pauses(clock)
        #: Ids of repositories that each installation can read, as listed in this round.
        self._listed: dict[InstallationKey, frozenset[int] | None] = {}

    @property
    def apps(self) -> list[AppId]:
        return sorted(self._apps)

    @property
    def paused(self) -> list[PausedScope]:
        return self._pauses.scopes({app.key: id_ for id_, app in self._apps.items()})

    def begin_round(self) -> None:
        self._left = self._most
        self._listed.clear()

    def may_ask(self, who: InstallationKey, scope: Scope, job: JobId | None = None) -> bool:
        """Whether GitHub may be asked now; if so, the question is counted."""
        if self._left <= 0 or self._pauses.active(_place(who, scope, job)):
            return False
        self._left -= 1
        return True

    def _failed(
        self, who: InstallationKey, scope: Scope, job: JobId | None, error: GitHubError
    ) -> None:
        self._pauses.begin(
            _place(who, scope, job), error.failure, at_least=_LEAST_PAUSE, at_most=_LONGEST_PAUSE
        )
        _log.info(
            "recovery.github_failed",
            job=job,
            account=scope.owner,
            repository=scope.repository,
            error=error.failure.sentence,
        )

    async def record(
        self, place: KeyPlace, github_id: GitHubRunnerId | None, name: str
    ) -> RecordWord | None:
        """GitHub's word on a runner; `None` if it was not asked."""
        if not self.may_ask(place.who, place.scope):
            return None
        try:
            if github_id is not None:
                found = await self._github.get_runner(place.who, place.scope, github_id)
            else:
                found = await self._github.find_runner(place.who, place.scope, name=name)
        except GitHubError as error:
            self._failed(place.who, place.scope, None, error)
            QUESTIONS.labels("runner", "no answer").inc()
            return RecordWord.UNREADABLE
        self._pauses.end(_place(place.who, place.scope))
        QUESTIONS.labels("runner", "answered").inc()
        return record_word(found)

    async def job(self, placed: PlacedJob) -> JobRecord | Absent | NoAnswer | None:
        """GitHub's word on a job; `None` if it was not asked."""
        app = self._apps[placed.repository.app].key
        who = InstallationKey(
            host=app.host,
            app=app.app,
            installation=InstallationId(placed.repository.installation),
        )
        try:
            scope = repository_scope(app.host, placed.repository.full_name)
        except ValueError:
            return NoAnswer()
        if not self.may_ask(who, scope, placed.job):
            return None
        try:
            found = await self._github.get_job(who, scope, placed.job)
        except GitHubError as error:
            QUESTIONS.labels("job", "no answer").inc()
            if error.failure.kind is Kind.NOT_FOUND and await self._is_gone(who, placed):
                return RepositoryGone()
            self._failed(who, scope, placed.job, error)
            return NoAnswer()
        self._pauses.end(_place(who, scope, placed.job))
        QUESTIONS.labels("job", "answered").inc()
        return found

    async def _is_gone(self, who: InstallationKey, placed: PlacedJob) -> bool:
        """Whether the list of all that the installation can read, read at this moment, lacks the
        repository. A list that could not be read to its end proves nothing (I29)."""
        if who not in self._listed:
            if self._left <= 0:
                return False
            self._left -= 1
            try:
                self._listed[who] = await self._list(who)
            except GitHubError as error:
                _log.info("recovery.repositories_unreadable", error=error.failure.sentence)
                return False
        listed = self._listed[who]
        return listed is not None and placed.repository.github_id not in listed

    async def _list(self, who: InstallationKey) -> frozenset[int] | None:
        """An empty list counts only if GitHub tells the App that the installation is active."""
        listed = await self._github.list_repositories(who)
        if not listed:
            found = await self._github.get_installation(who.app_key, who.installation)
            if isinstance(found, Absent) or found.suspended_at is not None:
                return None
        return frozenset(each.id for each in listed)


def _place(who: InstallationKey, scope: Scope, job: JobId | None = None) -> Place:
    repository = None if scope.repository is None else f"{scope.owner}/{scope.repository}"
    return Place(app=who.app_key, installation=who.installation, repository=repository, job=job)
