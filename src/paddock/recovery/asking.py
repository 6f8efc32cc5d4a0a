"""Asking GitHub about suspects, within a budget.

Every question costs a request that a mint may need more. A round asks so many and no more; and an
installation that did not answer is left alone for a while: what is not known is `unreadable`, which
no rule takes for an answer (I29).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import structlog
from prometheus_client import Counter

from paddock.dispatch.installations import RegisteredApp
from paddock.domain.evidence import RecordWord, record_word
from paddock.domain.github import (
    Absent,
    InstallationId,
    InstallationKey,
    JobRecord,
    repository_scope,
)
from paddock.domain.github_errors import GitHubError
from paddock.domain.ids import AppId, GitHubRunnerId
from paddock.domain.recovery import KeyPlace, PlacedJob
from paddock.ports import Clock, GitHub

_log = structlog.get_logger()

#: After a failure; as long as a round or two.
_LEAST_PAUSE: Final = 5.0
#: GitHub may order longer ones. A suspect waits no longer than this to be asked about again.
_LONGEST_PAUSE: Final = 60.0

QUESTIONS = Counter(
    "paddock_recovery_questions_total", "Questions to GitHub about suspects.", ["about", "outcome"]
)


class Unreadable:
    """GitHub was asked, and did not say."""


class Asker:
    def __init__(
        self, *, github: GitHub, clock: Clock, apps: Sequence[RegisteredApp], most: int
    ) -> None:
        self._github = github
        self._clock = clock
        self._apps = {app.app: app for app in apps}
        self._most = most
        self._left = most
        self._pauses: dict[InstallationKey, datetime] = {}

    @property
    def apps(self) -> list[AppId]:
        return sorted(self._apps)

    def begin_round(self) -> None:
        self._left = self._most
        now = self._clock.now()
        self._pauses = {who: until for who, until in self._pauses.items() if until > now}

    def may_ask(self, who: InstallationKey) -> bool:
        """Whether it may be asked now; if so, the question is paid for."""
        if self._left <= 0 or self._pauses.get(who, self._clock.now()) > self._clock.now():
            return False
        self._left -= 1
        return True

    def failed(self, who: InstallationKey, error: GitHubError) -> None:
        pause = min(max(error.failure.backoff_s, _LEAST_PAUSE), _LONGEST_PAUSE)
        self._pauses[who] = self._clock.now() + timedelta(seconds=pause)
        _log.info("GitHub did not answer recovery", who=str(who), error=error.failure.sentence)

    async def record(
        self, place: KeyPlace, github_id: GitHubRunnerId | None, name: str
    ) -> RecordWord | None:
        """GitHub's word on a runner; `None` if it was not asked."""
        if not self.may_ask(place.who):
            return None
        try:
            if github_id is not None:
                found = await self._github.get_runner(place.who, place.scope, github_id)
            else:
                found = await self._github.find_runner(place.who, place.scope, name=name)
        except GitHubError as error:
            self.failed(place.who, error)
            QUESTIONS.labels("runner", "no answer").inc()
            return RecordWord.UNREADABLE
        QUESTIONS.labels("runner", "answered").inc()
        return record_word(found)

    async def job(self, placed: PlacedJob) -> JobRecord | Absent | Unreadable | None:
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
            return Unreadable()
        if not self.may_ask(who):
            return None
        try:
            found = await self._github.get_job(who, scope, placed.job)
        except GitHubError as error:
            self.failed(who, error)
            QUESTIONS.labels("job", "no answer").inc()
            return Unreadable()
        QUESTIONS.labels("job", "answered").inc()
        return found
