"""Pauses of requests to GitHub after a failure, for the narrowest scope that the failure is about.

For loops that ask about many accounts in turn: after a failure for one account a loop must neither
repeat its requests at once nor stop for the other accounts (I17). Pauses are kept in memory; after a
restart the first failure begins one again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import assert_never

from paddock.domain.github.backoffs import PausedScope
from paddock.domain.github.errors import BackOff, Failure
from paddock.domain.github.objects import AppKey
from paddock.domain.ids import AppId, JobId
from paddock.ports import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a request was about, and the App and installation that sent it. `None` in a wider scope."""

    app: AppKey
    installation: int | None = None
    #: Its full name.
    repository: str | None = None
    job: JobId | None = None

    def within(self, scope: BackOff) -> Place:
        match scope:
            case BackOff.APP:
                return Place(app=self.app)
            case BackOff.ACCOUNT:
                return Place(app=self.app, installation=self.installation)
            case BackOff.REPOSITORY:
                return replace(self, job=None)
            case BackOff.JOB | BackOff.NONE:
                return self
            case _:
                assert_never(scope)


_SCOPES = (BackOff.JOB, BackOff.REPOSITORY, BackOff.ACCOUNT, BackOff.APP)


@dataclass(frozen=True, slots=True)
class _Pause:
    failures: int
    since: datetime
    until: datetime


class Pauses:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pauses: dict[Place, _Pause] = {}

    def active(self, place: Place) -> bool:
        now = self._clock.now()
        found = (self._pauses.get(place.within(scope)) for scope in _SCOPES)
        return any(pause.until > now for pause in found if pause is not None)

    def scopes(self, apps: Mapping[AppKey, AppId]) -> list[PausedScope]:
        """All paused scopes except single jobs. A query for what to ask about leaves these out:
        otherwise they would take the places of others in every round (I26)."""
        now = self._clock.now()
        return [
            PausedScope(
                app=apps[place.app], installation=place.installation, repository=place.repository
            )
            for place, pause in self._pauses.items()
            if place.job is None and place.app in apps and pause.until > now
        ]

    def begin(
        self, place: Place, failure: Failure, *, at_least: float, at_most: float = math.inf
    ) -> bool:
        """Pause the failure's scope. True for its first failure in a row, which callers log."""
        scope = place.within(failure.backs_off)
        before, now = self._pauses.get(scope), self._clock.now()
        failures = before.failures + 1 if before else 1
        since = before.since if before else now
        seconds = failure.after(failures, lasted=(now - since).total_seconds())
        wait = timedelta(seconds=min(max(seconds, at_least), at_most))
        self._pauses[scope] = _Pause(failures, since, now + wait)
        return before is None

    def end(self, place: Place) -> None:
        """A request succeeded: end the pauses of its place and of all wider scopes."""
        for scope in _SCOPES:
            self._pauses.pop(place.within(scope), None)
