"""Asks GitHub until when it accepts the runner versions that Pods have.

Each version is asked about once for each account that uses its pool, and daily: GitHub publishes a date
when it releases the next version, and has moved dates before. The answers are rows, which the matcher
reads; it never waits for GitHub (I83).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import structlog

from paddock.domain.github.errors import GitHubError
from paddock.domain.github.objects import Absent
from paddock.domain.runners.versions import ASK_AFTER_FAILURE, ASK_AGAIN, VersionQuestion
from paddock.ports import Clock, GitHub
from paddock.ports.runner_versions import VersionScheduleStore

_log = structlog.get_logger()

#: A new version's dates are known within this.
_EVERY: Final = 60.0
#: Questions of one round, one after the other: an installation has 5,000 requests an hour.
_BATCH: Final = 50
#: Answers about versions that are not used any more.
_KEPT: Final = timedelta(days=30)


class VersionSchedules:
    def __init__(self, *, store: VersionScheduleStore, github: GitHub, clock: Clock) -> None:
        self._store = store
        self._github = github
        self._clock = clock

    async def run(self) -> None:
        while True:
            if await self.round() < _BATCH:
                await self._clock.sleep(_EVERY)

    async def round(self) -> int:
        """Ask what is due; return how many questions were asked."""
        questions = await self._store.version_questions(limit=_BATCH)
        for question in questions:
            await self._ask(question)
        if questions:
            await self._store.forget_versions(before=self._clock.now() - _KEPT)
        return len(questions)

    async def _ask(self, question: VersionQuestion) -> None:
        account, version = question.account, question.version
        try:
            found = await self._github.get_version_schedule(question.who, question.scope, version)
        except GitHubError as error:
            _log.warning(
                "version.unanswered",
                account=question.scope.owner,
                version=version,
                error=error.failure.sentence,
            )
            ask_at = self._clock.now() + ASK_AFTER_FAILURE
            await self._store.postpone_version(account, version, ask_at=ask_at)
            return
        ask_at = self._clock.now() + ASK_AGAIN
        if isinstance(found, Absent):
            # No evidence: the endpoint is not everywhere. Dates that GitHub gave before still count.
            _log.info("version.not_known", account=question.scope.owner, version=version)
            await self._store.postpone_version(account, version, ask_at=ask_at)
            return
        await self._store.answer_version(account, found, ask_at=ask_at)
        _log.info(
            "version.answered",
            account=question.scope.owner,
            version=version,
            first_end=str(found.first_end),
        )
