"""Look up whether a job runs trusted code, for pools that require it.

One look-up per run, however many jobs the run has. A failed look-up is repeated; until it succeeds the
job counts as untrusted. If its pool refuses untrusted code, the job waits (I62).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

import structlog
from prometheus_client import Counter

from paddock.dispatch.installations import RegisteredApp
from paddock.dispatch.pauses import Pauses, Place
from paddock.domain.github.errors import GitHubError
from paddock.domain.github.objects import InstallationId, InstallationKey, repository_scope
from paddock.domain.jobs.trust import Trust, TrustQuestion, judge_run
from paddock.log_events import owner_of
from paddock.ports import Clock, GitHub, Topic, Wakeups
from paddock.ports.jobs import TrustStore

_log = structlog.get_logger()

#: The delay after a wake-up, during which the stored delivery is applied. A trusted job waits this
#: long, plus the look-up itself.
EVERY: Final = 1.0
#: How long a job can stay unnoticed if its wake-up was lost, or if applying its delivery took longer.
_LOOK_AGAIN: Final = 15.0
#: Jobs per round; a matrix has up to 256, all of one run.
_JOBS: Final = 500
#: After a failure, before the same repository is asked again.
_AT_LEAST: Final = 5.0

LOOKED_UP = Counter(
    "paddock_runs_looked_up_total", "Runs looked up for whose code they run, by answer.", ["answer"]
)


class TrustReview:
    def __init__(
        self,
        *,
        store: TrustStore,
        github: GitHub,
        clock: Clock,
        apps: Sequence[RegisteredApp],
        wakeups: Wakeups,
    ) -> None:
        self._store = store
        self._github = github
        self._clock = clock
        self._apps = {app.app: app for app in apps}
        self._pauses = Pauses(clock)
        self._woken = wakeups.subscribe(Topic.DELIVERIES, Topic.DEMAND, Topic.POOLS)

    async def run(self) -> None:
        while True:
            if not await self.round():
                await self._woken.wait(_LOOK_AGAIN)
            await self._clock.sleep(EVERY)

    async def round(self) -> int:
        """Look up the runs of jobs that wait for it; return the number of these jobs."""
        apps = list(self._apps)
        paused = self._pauses.scopes({app.key: id_ for id_, app in self._apps.items()})
        asked = await self._store.trust_questions(
            apps,
            unreadable=await self._store.unreadable_repositories(paused, apps=apps),
            limit=_JOBS,
        )
        by_run = sorted(asked, key=_run)
        for _, jobs in groupby(by_run, key=_run):
            await self._look_up(list(jobs))
        return len(asked)

    async def _look_up(self, jobs: Sequence[TrustQuestion]) -> None:
        one = jobs[0]
        place = Place(
            app=self._apps[one.app].key, installation=one.installation, repository=one.full_name
        )
        if self._pauses.active(place):
            return
        try:
            trust = await self._ask(one)
        except GitHubError as error:
            LOOKED_UP.labels("none").inc()
            if self._pauses.begin(place, error.failure, at_least=_AT_LEAST):
                _log.warning(
                    "trust.unknown",
                    account=owner_of(one.full_name),
                    repository=one.full_name,
                    run=one.run,
                    error=error.failure.sentence,
                )
            return
        self._pauses.end(place)
        LOOKED_UP.labels("trusted" if trust.trusted else "untrusted").inc()
        await self._store.note_trust(jobs, trust)

    async def _ask(self, job: TrustQuestion) -> Trust:
        app = self._apps[job.app].key
        who = InstallationKey(
            host=app.host, app=app.app, installation=InstallationId(job.installation)
        )
        try:
            scope = repository_scope(app.host, job.full_name)
        except ValueError as error:
            return Trust(trusted=False, why=str(error))
        return judge_run(await self._github.get_run(who, scope, job.run))


def _run(job: TrustQuestion) -> tuple[int, int, int]:
    return job.host, job.repository, job.run
