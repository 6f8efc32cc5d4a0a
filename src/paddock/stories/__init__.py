"""Why it is where it is: what is on file about a job or a runner, in sentences.

"Waiting for a runner…" sends its reader through a queue, a database, a cluster and GitHub. A story
says it in one sentence, with what would have to happen next, and then who knew what when. It decides
nothing and finds nothing out: it only tells what the matcher, recovery and GitHub have left behind.
Everyone who is told (command line, dashboard, API) is told the same.
"""

from __future__ import annotations

from datetime import datetime
from typing import assert_never

from paddock.domain.dossiers import JobDossier, PassedOver, RunnerDossier
from paddock.domain.recovery.thresholds import Thresholds
from paddock.stories.jobs import tell_job
from paddock.stories.runners import tell_runner
from paddock.stories.story import Fact, Story
from paddock.stories.unknown import tell_passed_over

__all__ = ["Fact", "Story", "tell"]


def tell(
    dossier: JobDossier | RunnerDossier | PassedOver,
    *,
    now: datetime,
    thresholds: Thresholds | None = None,
) -> Story:
    match dossier:
        case JobDossier():
            return tell_job(dossier, now, thresholds or Thresholds())
        case RunnerDossier():
            return tell_runner(dossier, now, thresholds or Thresholds())
        case PassedOver():
            return tell_passed_over(dossier)
        case _:
            assert_never(dossier)
