"""A runner's story."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import assert_never

import msgspec

from paddock.domain.dossiers import JobInBrief, RunnerDossier, VerdictOnFile
from paddock.domain.endings import Ending, EndingEvidence
from paddock.domain.fingerprints import describe_exit
from paddock.domain.recovery.durations import duration
from paddock.domain.recovery.thresholds import Thresholds
from paddock.domain.runners import Runner
from paddock.domain.states import JobState, RunnerState
from paddock.stories.facts import in_order, of_actions, of_steps
from paddock.stories.story import Fact, ReasonAndNext, Story, clause, counted, length

_MIB = 1024 * 1024


def tell_runner(dossier: RunnerDossier, now: datetime, thresholds: Thresholds) -> Story:
    runner = dossier.runner
    why, following = _told(dossier, now, thresholds)
    return Story(
        kind="runner",
        name=runner.pod_name,
        title=f"{runner.pod_name}, a runner of the pool {dossier.pool}"
        + (f", for {dossier.account}" if dossier.account else ""),
        state=runner.state,
        since=runner.since,
        why=why,
        next=following,
        facts=in_order(
            [*of_steps(dossier.events), *of_actions(dossier.actions), *_others(dossier)]
        ),
        remarks=tuple(_remarks(dossier)),
        jobs=tuple(job.id for job in dossier.jobs),
        pods=(runner.pod_name,),
        log_tail=dossier.verdict.log_tail if dossier.verdict else None,
    )


def _told(dossier: RunnerDossier, now: datetime, t: Thresholds) -> ReasonAndNext:
    runner = dossier.runner
    age = length(now - runner.since)
    match runner.state:
        case RunnerState.BOOTING:
            return ReasonAndNext(
                f"Its Pod was asked for {age} ago, and its poller has not been heard yet.",
                f"Its poller asks for work. If it is not heard within {duration(t.boot)} (the time of "
                "image pulls apart), recovery replaces it.",
            )
        case RunnerState.IDLE:
            return _idle(dossier, age, t)
        case RunnerState.CLAIMED:
            return ReasonAndNext(
                f"It was matched with work of {dossier.account} {age} ago; its JIT is being minted.",
                "GitHub answers the mint. If its replica does not finish it, the next poll takes "
                "it over.",
            )
        case RunnerState.ARMED:
            return ReasonAndNext(
                f"Its JIT has waited for {age} to be fetched and acknowledged.",
                f"Its Pod asks for it; if not for {duration(t.undelivered)}, recovery retires it.",
            )
        case RunnerState.RUNNING:
            return _running(dossier, now, age, t)
        case RunnerState.BUSY:
            return ReasonAndNext(
                f"It has been executing {_named(_executed(dossier))} for {age}.",
                "Its job ends by itself. Paddock does not end it, however long it takes.",
            )
        case RunnerState.DONE:
            return ReasonAndNext(
                f"Its job, {_named(_executed(dossier))}, completed {age} ago; its Pod is going away.",
                f"Its Pod ends, and gets a verdict; if it lives {duration(t.linger)}, it is retired.",
            )
        case RunnerState.RETIRING:
            return _retiring(dossier, now)
        case RunnerState.GONE:
            return ReasonAndNext(
                _gone(dossier), "Nothing: a runner that is gone stays so. Its pool replaces it."
            )
        case _:
            assert_never(runner.state)


def _idle(dossier: RunnerDossier, age: str, t: Thresholds) -> ReasonAndNext:
    for pause, what, resume in (
        (dossier.everybody_paused, "all dispatch", "paddock resume"),
        (dossier.pool_paused, "its pool", f"paddock pools resume {dossier.pool}"),
    ):
        if pause is not None:
            return ReasonAndNext(
                f"It has been idle for {age}, and {what} has been paused {pause}.",
                f"An operator resumes it: `{resume}`.",
            )
    if dossier.queued:
        waiting = counted(dossier.queued, "job waits", "jobs wait")
        return ReasonAndNext(
            f"It has been idle for {age}. It asks for work; {waiting} for its pool, and either a "
            "runner is on its way to each, or something withholds it.",
            f"`paddock pools explain {dossier.pool}` says what; `paddock why NUMBER` does for one job.",
        )
    return ReasonAndNext(
        f"It has been idle for {age}: it asks for work, and no job waits for its pool.",
        f"A job for the pool {dossier.pool} is queued, and it may be claimed for it. If it does not "
        f"ask for {duration(t.silent)}, recovery retires it.",
    )


def _running(dossier: RunnerDossier, now: datetime, age: str, t: Thresholds) -> ReasonAndNext:
    suspect = dossier.runner.suspect_at
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


def _retiring(dossier: RunnerDossier, now: datetime) -> ReasonAndNext:
    runner = dossier.runner
    reason = clause(runner.retire_reason or "")
    return ReasonAndNext(
        f"It has been retiring for {length(now - runner.since)}: {reason}.", _next_step(runner)
    )


def _next_step(runner: Runner) -> str:
    if runner.deletion_asked_at is not None:
        return "Its Pod's deletion has been asked for; it ends, and gets a verdict."
    if runner.name is None:
        return "No name was ever chosen for it, so it cannot have a job: its Pod is deleted next."
    if runner.deregistered_at is None:
        return (
            "GitHub removes its record first. If GitHub says that it is busy, it finishes its job; "
            "without an answer nothing happens to it."
        )
    if runner.proved_at is None:
        return "GitHub has removed it; now its own log has to show no job, twice, 90 s apart."
    return "Its log showed no job once; it is read again 90 s later, and then its Pod is deleted."


def _gone(dossier: RunnerDossier) -> str:
    verdict = dossier.verdict
    assert verdict is not None
    lead = f"It ended as {verdict.ending}: {clause(_told_end(verdict))}."
    executed = _executed(dossier)
    if executed is None:
        meant = next(iter(dossier.jobs), None)
        if meant is None or dossier.runner.delivery is None:
            return f"{lead} No job was ever given to it."
        return f"{lead} It was claimed for {_named(meant)}, which {_became(meant)} without it."
    return f"{lead} {_job_outcome(verdict, executed)}"


def _told_end(verdict: VerdictOnFile) -> str:
    evidence = _evidence(verdict)
    if verdict.ending is Ending.TERMINATED and evidence is not None and evidence.deleted:
        return (
            f"a client other than paddock asked for its Pod's deletion. {verdict.why.rstrip('.')}"
        )
    if verdict.ending is Ending.HARD_DELETED:
        return f"{clause(verdict.ending.meaning)}. {verdict.why.rstrip('.')}"
    return verdict.why


def _evidence(verdict: VerdictOnFile) -> EndingEvidence | None:
    try:
        return msgspec.json.decode(verdict.evidence, type=EndingEvidence)
    except msgspec.DecodeError:
        return None


def _job_outcome(verdict: VerdictOnFile, job: JobInBrief) -> str:
    if job.state is JobState.COMPLETED:
        return f"It executed {_named(job)}, which completed: {job.conclusion}."
    if job.state is JobState.QUEUED:
        return f"It was executing {_named(job)}, which GitHub has queued again."
    return f"It was executing {_named(job)}, of which GitHub does not know yet that it has ended."


def _became(job: JobInBrief) -> str:
    match job.state:
        case JobState.COMPLETED:
            return f"has completed ({job.conclusion})"
        case JobState.IN_PROGRESS:
            return "is in progress"
        case _:
            return f"is {job.state}"


def _executed(dossier: RunnerDossier) -> JobInBrief | None:
    return next((job for job in dossier.jobs if job.executed), None)


def _named(job: JobInBrief | None) -> str:
    return "a job" if job is None else f"job {job.id} ({job.name}, {job.repository})"


def _others(dossier: RunnerDossier) -> Iterable[Fact]:
    """Facts that are no steps: from the runner itself, recovery, GitHub and its node."""
    runner = dossier.runner
    pod = runner.pod_name
    if runner.job_marked_at is not None:
        yield Fact(
            at=runner.job_marked_at,
            who=pod,
            what="the runner itself said that a job began",
            pod=pod,
        )
    if runner.suspect_at is not None:
        yield Fact(
            at=runner.suspect_at, who="recovery", what="it no longer counts as supply", pod=pod
        )
    if runner.deregistered_at is not None:
        yield Fact(at=runner.deregistered_at, who="GitHub", what="its record was removed", pod=pod)
    if runner.deletion_asked_at is not None:
        yield Fact(
            at=runner.deletion_asked_at,
            who="recovery",
            what="its Pod's deletion was asked for",
            pod=pod,
        )
    if dossier.verdict is not None:
        yield Fact(
            at=dossier.verdict.ended_at,
            who=dossier.verdict.node or "the fleet",
            what=f"its process ended{_fingerprint(dossier.verdict)}",
            pod=pod,
        )


def _fingerprint(verdict: VerdictOnFile) -> str:
    said = describe_exit(verdict.exit_code, verdict.signal, verdict.reason)
    return f" ({said})" if said else ""


def _remarks(dossier: RunnerDossier) -> Iterable[str]:
    for chosen in dossier.names:
        if chosen.state == "settled" and chosen.outcome not in (None, "its job completed"):
            yield f"Its name {chosen.name} at GitHub is settled: {chosen.outcome}."
        elif chosen.state != "settled" and dossier.runner.state is RunnerState.GONE:
            yield f"Its name {chosen.name} may still be on record at GitHub; paddock removes it."
    sample = dossier.last_sample
    if sample is not None and sample.memory_used is not None:
        of = f" of {sample.memory_limit / _MIB:.0f}" if sample.memory_limit else ""
        yield (
            f"Its last vitals, by its own word: {sample.memory_used / _MIB:.0f}{of} MiB of memory"
            + (
                f", {counted(int(sample.oom_kills), 'process', 'processes')} killed for memory."
                if sample.oom_kills
                else "."
            )
        )
    if dossier.verdict is not None and dossier.verdict.refined_at is not None:
        yield f"Its verdict was refined at {dossier.verdict.refined_at:%H:%M:%S}: GitHub told more."
