"""A job's story."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import assert_never

from paddock.domain.jobs.facts import EventCause
from paddock.domain.jobs.intake import Passed
from paddock.domain.reading.details import JobDetails, PassedOver, RelatedRunner
from paddock.domain.recovery.durations import duration
from paddock.domain.recovery.thresholds import Thresholds
from paddock.domain.runners.endings import Ending
from paddock.domain.states import JobState, RunnerState
from paddock.stories.story import (
    Fact,
    ReasonAndNext,
    Story,
    clause,
    in_order,
    length,
    of_actions,
    of_steps,
    sentence,
)
from paddock.stories.waiting import tell_wait

_STALE = "stale"
#: Webhooks arrive within seconds.
_LATE = timedelta(seconds=15)


def tell_job(details: JobDetails, now: datetime, thresholds: Thresholds) -> Story:
    job = details.job
    why, following = _told(details, now, thresholds)
    return Story(
        kind="job",
        name=str(job.id),
        title=f"{job.repository}: {job.name}" + (f" ({job.workflow})" if job.workflow else ""),
        state=job.status.replace("_", " "),
        since=job.since,
        why=why,
        next=following,
        facts=in_order(
            [*_by_github(details), *of_steps(details.events), *of_actions(details.actions)]
        ),
        remarks=tuple(_remarks(details)),
        jobs=(job.id,),
        pods=tuple(each.runner.pod for each in details.runners),
    )


def _told(details: JobDetails, now: datetime, thresholds: Thresholds) -> ReasonAndNext:
    job = details.job
    match job.status:
        case JobState.WAITING:
            return ReasonAndNext(
                "GitHub holds it for an approval (a protected environment or a required review), and "
                "until then it gets no runner.",
                "A reviewer approves it at GitHub, which then calls it queued; or rejects it, and it "
                "is over.",
            )
        case JobState.QUEUED:
            return tell_wait(details, now, thresholds)
        case JobState.IN_PROGRESS:
            return _in_progress(details, now, thresholds)
        case JobState.COMPLETED:
            return ReasonAndNext(_completed(details), "Nothing: it is over.")
        case _:
            assert_never(job.status)


def _in_progress(details: JobDetails, now: datetime, thresholds: Thresholds) -> ReasonAndNext:
    job, ours = details.job, _executor(details)
    age = length(now - (job.started_at or job.since))
    if ours is None:
        whose = job.executor or "a runner that GitHub does not name"
        return ReasonAndNext(
            f"{whose}, which is not one of paddock's runners, has been executing it for {age}.",
            "GitHub reports its end.",
        )
    pod = ours.runner.pod
    if ours.runner.state is not RunnerState.GONE:
        return ReasonAndNext(
            f"{pod} has been executing it for {age}.",
            "It ends by itself, and GitHub reports that. Paddock does not end it, however "
            "long it takes.",
        )
    assert ours.verdict is not None
    return ReasonAndNext(
        f"Its runner, {pod}, ended {length(now - ours.verdict.ended_at)} ago before the job did "
        f"({ours.verdict.ending}: {clause(ours.verdict.why)}), and GitHub has not noticed yet.",
        "GitHub fails it for lost communication when its lease is over, 10 to 15 minutes after the "
        "runner's death, or calls it queued again; paddock asks every "
        f"{duration(thresholds.recheck)} and serves it again in that case.",
    )


def _completed(details: JobDetails) -> str:
    job, ours = details.job, _executor(details)
    ended = f"It completed: {job.conclusion}."
    if job.conclusion == _STALE:
        return f"It was given up as stale: {clause(job.why)}."
    if ours is None:
        if job.executor is None:
            return f"{ended} It never was on a runner."
        return f"{ended} It ran on {job.executor}, which is not one of paddock's runners."
    ran = f"It ran on {ours.runner.pod}"
    if job.started_at and job.completed_at:
        ran += (
            f" for {length(job.completed_at - job.started_at)}, after "
            f"{length(job.started_at - job.queued_at)} in the queue"
        )
    verdict = ours.verdict
    if verdict is None or not verdict.abnormal:
        return f"{ended} {ran}."
    if verdict.ending is Ending.HANDSHAKE_FAILED:
        return f"{ended} {ran}. Nothing died: {clause(verdict.why)}."
    return f"{ended} {ran}, whose end was abnormal ({verdict.ending}): {clause(verdict.why)}."


def _executor(details: JobDetails) -> RelatedRunner | None:
    return next((each for each in details.runners if each.executed), None)


def _by_github(details: JobDetails) -> Iterable[Fact]:
    job = details.job
    yield Fact(at=job.created_at, who="GitHub", what="GitHub created the job")
    if job.queued_at > job.created_at and job.status is not JobState.WAITING:
        again = (
            "queued again" if details.demotions else "queued, after it had waited for an approval"
        )
        yield Fact(at=job.queued_at, who="GitHub", what=f"the job was {again}")
    if job.started_at is not None:
        on = f" on {job.executor}" if job.executor else ""
        yield Fact(at=job.started_at, who="GitHub", what=f"the job began{on}")
    if job.completed_at is not None and job.conclusion != _STALE:
        yield Fact(at=job.completed_at, who="GitHub", what=f"the job ended: {job.conclusion}")


def _remarks(details: JobDetails) -> Iterable[str]:
    """What else explains it: whose code it is, runners that were claimed for it and ended without it,
    and late news."""
    if details.beside_limits is not None:
        yield _beside_limits(details)
    if details.job.trusted is False and details.job.trust_why:
        yield f"It is untrusted: {clause(details.job.trust_why)}."
    for each in details.runners:
        if each.executed or not each.hinted:
            continue
        pod, runner = each.runner.pod, each.runner
        if each.verdict is not None and each.verdict.abnormal:
            yield (
                f"{pod} was claimed for it and ended without it: {each.verdict.ending}, "
                f"{clause(each.verdict.why)}."
            )
        elif runner.suspect_since is not None:
            yield (
                f"{pod} was claimed for it and has not registered with GitHub; since "
                f"{runner.suspect_since:%H:%M:%S} it no longer counts, and another takes its place."
            )
        elif runner.state is RunnerState.RETIRING:
            yield f"{pod} was claimed for it and is given up: {clause(each.retire_reason or '')}."
    failed = [
        event for event in details.events if (event.before, event.after) == ("claimed", "idle")
    ]
    if failed:
        yield f"A mint for its kind failed {_times(len(failed))}, last: {clause(failed[-1].why)}."
    if details.demotions:
        yield f"It was queued again {_times(details.demotions)} after its runner was lost."
    late = details.job.seen_at - details.job.created_at
    if late > _LATE:
        yield (
            f"paddock heard of it {length(late)} after GitHub had created it: its webhook was late or "
            "lost."
        )
    learnt = next((event for event in details.events if event.pod is None), None)
    if learnt is not None and learnt.why != EventCause.WEBHOOK:
        yield f"No webhook reported it: {clause(learnt.why)}."


def _beside_limits(details: JobDetails) -> str:
    job = details.job
    match details.beside_limits:
        case "foreign":
            because = "its runner is not paddock's"
        case "organisation":
            because = f"its runner is registered at {job.account}, and not at the repository"
        case _:
            because = f"runners of the pool {job.pool} register at {job.account}, in a runner group"
    return f"{job.repository} has limits, and they do not bind this job: {because}."


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def tell_passed_over(told: PassedOver) -> Story:
    why, following = _because(told)
    return Story(
        kind="job",
        name=str(told.job),
        title=f"job {told.job}",
        state="passed over" if told.state == "ignored" else "not looked at yet",
        since=told.received_at,
        why=why,
        next=following,
        facts=(
            Fact(
                at=told.received_at,
                who="GitHub",
                what=f"a webhook reported it; it asks for {_labels(told)}",
            ),
        ),
        jobs=(told.job,),
    )


def _because(told: PassedOver) -> ReasonAndNext:
    if told.state != "ignored":
        return ReasonAndNext(
            sentence(
                f"Its webhook has arrived and waits to be applied: {told.note or 'it is new'}"
            ),
            "It is tried again within seconds; `paddock deliveries list` shows it.",
        )
    match told.note:
        case Passed.NOT_OURS:
            return ReasonAndNext(
                f"No pool has any of its labels ({_labels(told)}), so it is left to others.",
                "If it is meant for paddock, its runs-on has to name a pool's labels, or a pool has "
                "to have these. A job keeps its labels: run it again then.",
            )
        case Passed.INSTALLATION_REMOVED | Passed.NO_INSTALLATION:
            return ReasonAndNext(
                "It was reported by an installation of the App that is not there any more, or by "
                "none at all.",
                "Install the GitHub App for its organisation, and run it again.",
            )
        case _:
            return ReasonAndNext(
                sentence(f"Its webhook changed nothing: {told.note}"),
                "Nothing will: no part of paddock waits for it.",
            )


def _labels(told: PassedOver) -> str:
    return ", ".join(told.labels) or "no label at all"
