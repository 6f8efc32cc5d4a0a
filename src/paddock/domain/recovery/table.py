"""The rules of recovery in order: for each subject the first that holds decides.

The order is by the strength of the evidence. What has ended or is gone for certain comes first (I33).
Then every evidence that a job is executed is believed. Only below that line is a runner fenced, so no
rule further down has to think of live jobs. Each rule is in the file of the state that it is about.
"""

from __future__ import annotations

from typing import Any, Final

from paddock.domain.recovery.deletion_requested import LEAVING
from paddock.domain.recovery.ended_without_job import (
    ENDED_UNEXPLAINED,
    EXIT_WITHOUT_JOB,
    RAN_AFTER_ALL,
)
from paddock.domain.recovery.executing import BUSY, EXECUTING, MISSED_IN_PROGRESS
from paddock.domain.recovery.expired_job import JOB_END, JOB_EXPIRED
from paddock.domain.recovery.forced_end import ACCOUNT_REMOVED, FORCED, RECORD_REMOVED
from paddock.domain.recovery.job_gone import JOB_DELETED, REPOSITORY_DELETED
from paddock.domain.recovery.lingering import LINGERING, RUNNER_ENDED
from paddock.domain.recovery.lost_runner import GIVEN_BACK, RUNNER_LOST
from paddock.domain.recovery.missed_webhook import (
    HINT_MOVED_ON,
    JOB_UNKNOWN,
    MISSED_COMPLETION,
    MISSED_COMPLETION_PERHAPS,
    MISSED_START,
    STILL_WAITING,
)
from paddock.domain.recovery.never_registered import NEVER_REGISTERED
from paddock.domain.recovery.never_started import NEVER_STARTED
from paddock.domain.recovery.no_job_in_time import NO_JOB_IN_TIME
from paddock.domain.recovery.pod_ended import CONCLUDED, POD_ENDED
from paddock.domain.recovery.pod_gone import NEVER_CREATED, POD_GONE
from paddock.domain.recovery.pod_without_row import (
    ENDED_WITHOUT_ROW,
    EXECUTING_WITHOUT_ROW,
    POD_WITHOUT_ROW,
    PROTECTED,
    RUNNER_ENDED_WITHOUT_ROW,
    UNRECOGNISED_WITHOUT_ROW,
)
from paddock.domain.recovery.retiring import RETIRING
from paddock.domain.recovery.rule import Rule
from paddock.domain.recovery.silent_poller import SILENT
from paddock.domain.recovery.stale_claim import CLAIM_IN_DOUBT, STALE_CLAIM
from paddock.domain.recovery.stale_queued import STALE_QUEUED
from paddock.domain.recovery.started_unclaimed import STARTED_UNCLAIMED, STARTED_UNEXPLAINED
from paddock.domain.recovery.surplus import SURPLUS
from paddock.domain.recovery.suspect import SUSPECT, TOO_MANY_SUSPECTS
from paddock.domain.recovery.unassigned_job import UNASSIGNED, WAITS_BESIDE_SUPPLY
from paddock.domain.recovery.undelivered import UNDELIVERED
from paddock.domain.recovery.unrecognised import UNRECOGNISED
from paddock.domain.recovery.unschedulable import UNSCHEDULABLE
from paddock.domain.recovery.waiting_container import WAITING_CONTAINER
from paddock.domain.recovery.zombie import ZOMBIE

RULES: Final[tuple[Rule[Any, Any], ...]] = (
    # Runners whose rows are not `gone`.
    POD_ENDED,
    POD_GONE,
    NEVER_CREATED,
    RUNNER_ENDED,
    FORCED,
    ACCOUNT_REMOVED,
    RECORD_REMOVED,
    HINT_MOVED_ON,
    MISSED_IN_PROGRESS,
    BUSY,
    EXECUTING,
    RETIRING,
    TOO_MANY_SUSPECTS,
    SUSPECT,
    UNRECOGNISED,
    STARTED_UNCLAIMED,
    STARTED_UNEXPLAINED,
    LEAVING,
    UNSCHEDULABLE,
    NEVER_STARTED,
    SILENT,
    CLAIM_IN_DOUBT,
    STALE_CLAIM,
    UNDELIVERED,
    WAITING_CONTAINER,
    NEVER_REGISTERED,
    ZOMBIE,
    SURPLUS,
    NO_JOB_IN_TIME,
    LINGERING,
    # Runners that ended without a reported job.
    RAN_AFTER_ALL,
    EXIT_WITHOUT_JOB,
    ENDED_UNEXPLAINED,
    # Pods that no row knows.
    CONCLUDED,
    ENDED_WITHOUT_ROW,
    RUNNER_ENDED_WITHOUT_ROW,
    EXECUTING_WITHOUT_ROW,
    UNRECOGNISED_WITHOUT_ROW,
    POD_WITHOUT_ROW,
    PROTECTED,
    # Jobs.
    MISSED_COMPLETION,
    JOB_UNKNOWN,
    MISSED_START,
    RUNNER_LOST,
    GIVEN_BACK,
    REPOSITORY_DELETED,
    MISSED_COMPLETION_PERHAPS,
    STILL_WAITING,
    JOB_EXPIRED,
    JOB_END,
    JOB_DELETED,
    STALE_QUEUED,
    UNASSIGNED,
    WAITS_BESIDE_SUPPLY,
)
