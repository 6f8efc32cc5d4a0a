"""A runner's story."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import assert_never

import msgspec

from paddock.domain.github.debts import MintOutcome
from paddock.domain.pods.fingerprints import describe_exit
from paddock.domain.reading.details import RunnerDetails
from paddock.domain.reading.rows import JobLine, VerdictLine
from paddock.domain.recovery.durations import duration
from paddock.domain.recovery.thresholds import Thresholds
from paddock.domain.runners.endings import Ending, EndingEvidence
from paddock.domain.states import JobState, RunnerState
from paddock.stories.story import (
    Fact,
    ReasonAndNext,
    Story,
    clause,
    counted,
    in_order,
    length,
    of_actions,
    of_steps,
)

_MIB = 1024 * 1024


def tell_runner(details: RunnerDetails, now: datetime, thresholds: Thresholds) -> Story:
    runner = details.runner
    why, following = _told(details, now, thresholds)
    return Story(
        kind="runner",
        name=runner.pod,
        title=f"{runner.pod}, a runner of the pool {runner.pool}"
        + (f", for {runner.account}" if runner.account else ""),
        state=runner.state,
        since=runner.since,
        why=why,
        next=following,
        facts=in_order(
            [*of_steps(details.events), *of_actions(details.actions), *_others(details)]
        ),
        remarks=tuple(_remarks(details)),
        jobs=tuple(job.id for job in details.jobs),
        pods=(runner.pod,),
        log_tail=details.log_tail,
    )


def _told(details: RunnerDetails, now: datetime, t: Thresholds) -> ReasonAndNext:
    runner = details.runner
    age = length(now - runner.since)
    match runner.state:
        case RunnerState.BOOTING:
            return ReasonAndNext(
                f"Its Pod was asked for {age} ago, and its poller has not been heard yet.",
                f"Its poller asks for work. If it is not heard within {duration(t.boot)} (the time of "
                "image pulls apart), recovery replaces it.",
            )
        case RunnerState.IDLE:
            return _idle(details, age, t)
        case RunnerState.CLAIMED:
            return ReasonAndNext(
                f"It was matched with work of {runner.account} {age} ago; its JIT is being minted.",
                "GitHub answers the mint. If its replica does not finish it, the next poll takes "
                "it over.",
            )
        case RunnerState.ARMED:
            return ReasonAndNext(
                f"Its JIT has waited for {age} to be fetched and acknowledged.",
                f"Its Pod asks for it; if not for {duration(t.undelivered)}, recovery retires it.",
            )
        case RunnerState.RUNNING:
            return _running(details, now, age, t)
        case RunnerState.BUSY:
            return ReasonAndNext(
                f"It has been executing {_named(_executed(details))} for {age}.",
                "Its job ends by itself. Paddock does not end it, however long it takes.",
            )
        case RunnerState.DONE:
            return ReasonAndNext(
                f"Its job, {_named(_executed(details))}, completed {age} ago; its Pod is going away.",
                f"Its Pod ends, and gets a verdict; if it lives {duration(t.linger)}, it is retired.",
            )
        case RunnerState.RETIRING:
            return _retiring(details, now)
        case RunnerState.GONE:
            return ReasonAndNext(
                _gone(details), "Nothing: a runner that is gone stays so. Its pool replaces it."
            )
        case _:
            assert_never(runner.state)


def _idle(details: RunnerDetails, age: str, t: Thresholds) -> ReasonAndNext:
    pool = details.runner.pool
    for pause, what, resume in (
        (details.dispatch_paused, "all dispatch", "paddock resume"),
        (details.pool_paused, "its pool", f"paddock pools resume {pool}"),
    ):
        if pause is not None:
            return ReasonAndNext(
                f"It has been idle for {age}, and {what} has been paused {pause}.",
                f"An operator resumes it: `{resume}`.",
            )
    if details.queued:
        waiting = counted(details.queued, "job waits", "jobs wait")
        return ReasonAndNext(
            f"It has been idle for {age}. It asks for work; {waiting} for its pool, and either a "
            "runner is on its way to each, or something withholds it.",
            f"`paddock pools explain {pool}` says what; `paddock why NUMBER` does for one job.",
        )
    return ReasonAndNext(
        f"It has been idle for {age}: it asks for work, and no job waits for its pool.",
        f"A job for the pool {pool} is queued, and it may be claimed for it. If it does not "
        f"ask for {duration(t.silent)}, recovery retires it.",
    )


def _running(details: RunnerDetails, now: datetime, age: str, t: Thresholds) -> ReasonAndNext:
    suspect = details.runner.suspect_since
    if suspect is not None:
        return ReasonAndNext(
            f"It has had its JIT for {age}, and GitHub has not seen it online; {length(now - suspect)} "
            "ago it stopped counting, and another was given out in its place.",
            "It registers after all, and is trusted again; or recovery retires it "
            f"{duration(t.never_registered)} after its start, when GitHub and its log show no job.",
        )
    return ReasonAndNext(
        f"It has had its JIT for {age}; GitHub has not said that it executes a job.",
        "It connects, and GitHub gives it a job of its kind. If GitHub still calls it offline "
        f"{duration(t.suspect)} after its start, another one is given out.",
    )


def _retiring(details: RunnerDetails, now: datetime) -> ReasonAndNext:
    reason, age = clause(details.retire_reason or ""), length(now - details.runner.since)
    return ReasonAndNext(f"It has been retiring for {age}: {reason}.", _next_step(details))


def _next_step(details: RunnerDetails) -> str:
    if "deletion asked" in details.steps:
        return "Its Pod's deletion has been asked for; it ends, and gets a verdict."
    if details.runner.name is None:
        return "No name was ever chosen for it, so it cannot have a job: its Pod is deleted next."
    if "deregistered" not in details.steps:
        return (
            "GitHub removes its record first. If GitHub says that it is busy, it finishes its job; "
            "without an answer nothing happens to it."
        )
    if "proved" not in details.steps:
        return "GitHub has removed it; now its own log has to show no job, twice, 90 s apart."
    return "Its log showed no job once; it is read again 90 s later, and then its Pod is deleted."


def _gone(details: RunnerDetails) -> str:
    verdict = details.verdict
    assert verdict is not None
    lead = f"It ended as {verdict.ending}: {clause(_told_end(verdict))}."
    executed = _executed(details)
    if executed is None:
        meant = next(iter(details.jobs), None)
        if meant is None or not details.was_registered:
            return f"{lead} No job was ever given to it."
        return f"{lead} It was claimed for {_named(meant)}, which {_became(meant)} without it."
    return f"{lead} {_job_outcome(verdict, executed)}"


def _told_end(verdict: VerdictLine) -> str:
    evidence = _evidence(verdict)
    if verdict.ending is Ending.TERMINATED and evidence is not None and evidence.deleted:
        return (
            f"a client other than paddock asked for its Pod's deletion. {verdict.why.rstrip('.')}"
        )
    if verdict.ending is Ending.HARD_DELETED:
        return f"{clause(verdict.ending.meaning)}. {verdict.why.rstrip('.')}"
    return verdict.why


def _evidence(verdict: VerdictLine) -> EndingEvidence | None:
    try:
        return msgspec.convert(verdict.evidence, EndingEvidence)
    except msgspec.ValidationError:
        return None


def _job_outcome(verdict: VerdictLine, job: JobLine) -> str:
    if job.status is JobState.COMPLETED:
        return f"It executed {_named(job)}, which completed: {job.conclusion}."
    if job.status is JobState.QUEUED:
        return f"It was executing {_named(job)}, which GitHub has queued again."
    return f"It was executing {_named(job)}, of which GitHub does not know yet that it has ended."


def _became(job: JobLine) -> str:
    match job.status:
        case JobState.COMPLETED:
            return f"has completed ({job.conclusion})"
        case JobState.IN_PROGRESS:
            return "is in progress"
        case _:
            return f"is {job.status}"


def _executed(details: RunnerDetails) -> JobLine | None:
    return next((job for job in details.jobs if details.executed(job)), None)


def _named(job: JobLine | None) -> str:
    return "a job" if job is None else f"job {job.id} ({job.name}, {job.repository})"


def _others(details: RunnerDetails) -> Iterable[Fact]:
    """Facts that are no steps: from the runner itself, recovery, GitHub and its node."""
    pod = details.runner.pod
    for step, who, what in (
        ("said its job began", pod, "the runner itself said that a job began"),
        ("deregistered", "GitHub", "its record was removed"),
        ("deletion asked", "recovery", "its Pod's deletion was asked for"),
    ):
        if (at := details.steps.get(step)) is not None:
            yield Fact(at=at, who=who, what=what, pod=pod)
    if (suspect := details.runner.suspect_since) is not None:
        yield Fact(at=suspect, who="recovery", what="it no longer counts as supply", pod=pod)
    if details.verdict is not None:
        yield Fact(
            at=details.verdict.ended_at,
            who=details.verdict.node or "the fleet",
            what=f"its process ended{_fingerprint(details.verdict)}",
            pod=pod,
        )


def _fingerprint(verdict: VerdictLine) -> str:
    said = describe_exit(verdict.exit_code, verdict.signal, verdict.reason)
    return f" ({said})" if said else ""


def _remarks(details: RunnerDetails) -> Iterable[str]:
    for chosen in details.names:
        if chosen.state == "settled" and chosen.outcome not in (None, MintOutcome.JOB_COMPLETED):
            yield f"Its name {chosen.name} at GitHub is settled: {chosen.outcome}."
        elif chosen.state != "settled" and details.runner.state is RunnerState.GONE:
            yield f"Its name {chosen.name} may still be on record at GitHub; paddock removes it."
    sample = details.vitals[-1] if details.vitals else None
    if sample is not None and sample.memory_used is not None:
        of = f" of {sample.memory_limit / _MIB:.0f}" if sample.memory_limit else ""
        yield (
            f"Its last vitals, as it reported them: {sample.memory_used / _MIB:.0f}{of} MiB of memory"
            + (
                f", {counted(int(sample.oom_kills), 'process', 'processes')} killed for memory."
                if sample.oom_kills
                else "."
            )
        )
    if details.verdict is not None and details.verdict.refined_at is not None:
        yield f"Its verdict was refined at {details.verdict.refined_at:%H:%M:%S}: GitHub told more."
