"""Leaving GitHub alone after a failure: the narrowest scope that has to, for as long as it has to.

For loops that look at many accounts in turn: one that fails for one of them must neither hammer it nor
stop for the others (I17). Kept in memory; a restarted process finds out again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import assert_never

from paddock.domain.backoffs import PausedScope
from paddock.domain.github import AppKey
from paddock.domain.github_errors import BackOff, Failure
from paddock.domain.ids import AppId, JobId
from paddock.ports import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What was asked about, and as whom. What a wider scope does not name is `None`."""

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
        """All that is left alone now, except single jobs. What is chosen to be asked about leaves these
        out: they would take the places of others round after round (I26)."""
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
        """Whether it is the first failure of its scope in a row: worth a line in the log."""
        scope = place.within(failure.backs_off)
        before, now = self._pauses.get(scope), self._clock.now()
        failures = before.failures + 1 if before else 1
        since = before.since if before else now
        seconds = failure.after(failures, lasted=(now - since).total_seconds())
        wait = timedelta(seconds=min(max(seconds, at_least), at_most))
        self._pauses[scope] = _Pause(failures, since, now + wait)
        return before is None

    def end(self, place: Place) -> None:
        """It worked: what contains it works too."""
        for scope in _SCOPES:
            self._pauses.pop(place.within(scope), None)
