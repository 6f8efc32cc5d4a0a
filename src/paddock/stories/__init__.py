"""Why a job or a runner is in its state: what is recorded about it, in sentences.

GitHub's "Waiting for a runner…" sends its reader through a queue, a database, a cluster and GitHub. A
story gives the reason in one sentence, then what has to happen next, then which component knew what and
when. It decides nothing and asks nothing: it only reports what the matcher, recovery and GitHub have
left on record. The command line, the dashboard and the API show the same story.
"""

from __future__ import annotations

from datetime import datetime
from typing import assert_never

from paddock.domain.reading.details import JobDetails, PassedOver, RunnerDetails
from paddock.domain.recovery.thresholds import Thresholds
from paddock.stories.jobs import tell_job, tell_passed_over
from paddock.stories.runners import tell_runner
from paddock.stories.story import Fact, Story

__all__ = ["Fact", "Story", "tell"]


def tell(
    details: JobDetails | RunnerDetails | PassedOver,
    *,
    now: datetime,
    thresholds: Thresholds | None = None,
) -> Story:
    match details:
        case JobDetails():
            return tell_job(details, now, thresholds or Thresholds())
        case RunnerDetails():
            return tell_runner(details, now, thresholds or Thresholds())
        case PassedOver():
            return tell_passed_over(details)
        case _:
            assert_never(details)
