"""GitHub's data as a job's facts: webhooks and look-ups give the same value."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from paddock.domain.github.objects import JobRecord
from paddock.domain.ids import GitHubRunnerId, HostId, JobId
from paddock.domain.jobs.facts import Executor, JobFacts, RepositoryFacts
from paddock.domain.jobs.labels import MAX_LABEL_LENGTH, MAX_LABELS
from paddock.domain.states import JobState
from paddock.github.payloads import Repository, WorkflowJobEvent

#: GitHub's own pages show no more of a name; a matrix can make a name of any length.
_NAME_MAX: Final = 255


class UnusableFacts(Exception):
    """An event lacks what is needed to apply it. The sentence is stored with the delivery."""


def facts_of_event(host: HostId, event: WorkflowJobEvent, *, received_at: datetime) -> JobFacts:
    """`action` says what happened; in a redelivery `status` may be ahead of `action`."""
    try:
        state = JobState(event.action)
    except ValueError:
        raise UnusableFacts(f"workflow_job action {event.action!r} is not known") from None
    job = event.workflow_job
    return _facts(
        host,
        state,
        job_id=job.id,
        run_id=job.run_id,
        run_attempt=job.run_attempt,
        name=job.name,
        workflow=job.workflow_name,
        labels=job.labels,
        created_at=job.created_at or job.started_at or received_at,
        told_at=received_at,
        started_at=job.started_at,
        completed_at=job.completed_at,
        conclusion=job.conclusion,
        runner_id=job.runner_id,
        runner_name=job.runner_name,
    )


def facts_of_record(host: HostId, record: JobRecord, *, read_at: datetime) -> JobFacts:
    if record.state is None:
        raise UnusableFacts(f"job status {record.status!r} is not known")
    return _facts(
        host,
        record.state,
        job_id=record.id,
        run_id=record.run_id,
        run_attempt=record.run_attempt,
        name=record.name,
        workflow=record.workflow_name,
        labels=record.labels,
        created_at=record.created_at,
        told_at=read_at,
        started_at=record.started_at,
        completed_at=record.completed_at,
        conclusion=record.conclusion,
        runner_id=record.runner_id,
        runner_name=record.runner_name,
    )


def repository_of(repository: Repository) -> RepositoryFacts:
    return RepositoryFacts(github_id=repository.id, full_name=repository.full_name)


def _facts(
    host: HostId,
    state: JobState,
    *,
    job_id: int,
    run_id: int,
    run_attempt: int,
    name: str,
    workflow: str | None,
    labels: tuple[str, ...],
    created_at: datetime,
    told_at: datetime,
    started_at: datetime | None,
    completed_at: datetime | None,
    conclusion: str | None,
    runner_id: int | None,
    runner_name: str | None,
) -> JobFacts:
    begun = state in (JobState.IN_PROGRESS, JobState.COMPLETED)
    ended = state is JobState.COMPLETED
    if ended and (completed_at is None or conclusion is None):
        raise UnusableFacts(f"job {job_id} is completed, but not when or how")
    # A queued job's `started_at` is the time it was queued, not a start.
    executor = (
        Executor(github_id=GitHubRunnerId(runner_id), name=runner_name)
        if begun and runner_id and runner_name
        else None
    )
    return JobFacts(
        host=host,
        id=JobId(job_id),
        run_id=run_id,
        run_attempt=run_attempt,
        name=name[:_NAME_MAX],
        workflow=workflow and workflow[:_NAME_MAX],
        labels=tuple(" ".join(label.split())[:MAX_LABEL_LENGTH] for label in labels[:MAX_LABELS]),
        created_at=created_at,
        state=state,
        waited=state is JobState.WAITING,
        known_queued_at=_known_queued_at(state, started_at, told_at),
        started_at=(started_at or created_at) if begun else None,
        completed_at=completed_at if ended else None,
        conclusion=conclusion if ended else None,
        executor=executor,
    )


def _known_queued_at(
    state: JobState, started_at: datetime | None, told_at: datetime
) -> datetime | None:
    """The latest time at which the job was queued. A job that has begun was queued before it began. A
    job reported as queued was queued before the report, which may be late: the earliest report counts
    (`merge`)."""
    match state:
        case JobState.WAITING:
            return None
        case JobState.QUEUED:
            return told_at
        case _:
            return min(started_at or told_at, told_at)
