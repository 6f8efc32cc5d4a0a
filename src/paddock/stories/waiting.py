"""Why a queued job waits: the matcher's reason, with the numbers behind it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from paddock.domain.allocation import Withheld
from paddock.domain.github.backoffs import BackOffCause
from paddock.domain.jobs.facts import UnservedCause
from paddock.domain.limits import Limits, Resources
from paddock.domain.pauses import Pause
from paddock.domain.reading.details import JobDetails, RelatedRunner, Wait
from paddock.domain.reading.rows import JobLine, RunnerLine
from paddock.domain.recovery.durations import duration
from paddock.domain.recovery.thresholds import Thresholds
from paddock.domain.states import RunnerState
from paddock.stories.story import ReasonAndNext, clause, counted, length, sentence


def tell_wait(details: JobDetails, now: datetime, thresholds: Thresholds) -> ReasonAndNext:
    job, wait = details.job, details.wait
    if wait is None:
        return _refused(job)
    if wait.ahead < wait.supply:
        return _on_its_way(details, wait, now, thresholds)
    if wait.ahead < wait.supply + wait.supply_graces:
        until = wait.supply_grace_until or now
        return ReasonAndNext(
            "A runner that was claimed for its key has just ended without a reported job; the job may "
            "have been done, and GitHub is asked before it is served again.",
            f"GitHub says that it is queued, and it gets another runner: within "
            f"{length(until - now)} at most.",
        )
    return _withheld(job, wait, now, thresholds)


def _withheld(job: JobLine, wait: Wait, now: datetime, thresholds: Thresholds) -> ReasonAndNext:
    match wait.withheld:
        case None:
            return _next_match(job, wait, thresholds)
        case Withheld.PAUSED:
            return _paused(job, wait)
        case Withheld.INSTALLATION:
            return _uninstalled(job, wait)
        case Withheld.REGISTRATION:
            return ReasonAndNext(
                f"A limit of a repository, or the pool, was changed: runners of {job.account} register "
                "at another scope now, and the job has not been moved there yet.",
                "The next match moves it, as soon as a runner of the pool asks for work.",
            )
        case Withheld.BACK_OFF:
            return _backing_off(job, wait, now)
        case Withheld.ACCOUNT_LIMIT:
            return _limited(job.account, "account", wait.account_used, wait.account_limits)
        case Withheld.REPOSITORY_LIMIT:
            told = _limited(
                job.repository, "repository", wait.repository_used, wait.repository_limits
            )
            return told._replace(why=f"{told.why}{_of_the_organisation(wait)}")
        case Withheld.POOL_MAXIMUM:
            return ReasonAndNext(
                f"All {wait.pool_maximum} runners that the pool {job.pool} may have are occupied.",
                f"One of them ends, or the pool's maxRunners is raised. {_before_it(wait)}".strip(),
            )
        case Withheld.MINT_BUDGET:
            return ReasonAndNext(
                f"As many JITs have been minted for {job.account} as GitHub allows for now.",
                "The budget comes back by itself, within a minute; another App for the account, or "
                f"higher limits in the settings, would raise it. {_before_it(wait)}".strip(),
            )
        case Withheld.NO_POD if wait.refused_version is None:
            return _no_pod(job, wait, thresholds)
        case Withheld.NO_POD | Withheld.RUNNER_VERSION:
            return _refused_version(job, wait, now)


def _refused(job: JobLine) -> ReasonAndNext:
    if job.refusal == UnservedCause.UNTRUSTED:
        return ReasonAndNext(
            f"Its pool takes no jobs of strangers: {clause(job.refusal_detail or '')}.",
            "Nothing here, if it is a stranger's; a run whose code cannot be told is asked for again.",
        )
    if job.refusal == UnservedCause.NOT_ASSIGNED:
        return ReasonAndNext(
            f"GitHub does not assign it: {clause(job.refusal_detail or '')}.",
            "Look at the runner group's access to the repository, at its labels and at GitHub's own "
            "status. Another runner is tried after 15 minutes, then twice as long, up to 4 hours.",
        )
    wanted = ", ".join(job.labels) or "no label at all"
    return ReasonAndNext(
        f"No pool takes it ({job.refusal}): {clause(job.refusal_detail or '')}.",
        f"A pool whose labels cover {wanted} is applied, or its runs-on is corrected and it is run "
        "again. When pools change, it is looked at again at once.",
    )


def _on_its_way(
    details: JobDetails, wait: Wait, now: datetime, thresholds: Thresholds
) -> ReasonAndNext:
    """There is supply for it: GitHub chooses which of these runners gets it."""
    if details.not_assigned_because is not None:
        return ReasonAndNext(
            f"GitHub does not assign it: {clause(details.not_assigned_because)}.",
            "Look at the runner group's access to the repository, at its labels and at GitHub's own "
            "status; as soon as GitHub assigns it, the runner that waits runs it.",
        )
    runner = _nearest(details.runners)
    if runner is None:
        return ReasonAndNext(
            "A runner on its way to its key says that it executes a job, and GitHub has not said "
            "which one.",
            "GitHub's in_progress names the job; if it does not come, recovery asks.",
        )
    pod, since = runner.pod, length(now - runner.since)
    match runner.state:
        case RunnerState.CLAIMED:
            return ReasonAndNext(
                f"{pod} was claimed for it {since} ago, and its JIT is being minted at GitHub.",
                "GitHub answers the mint. If the replica that mints has died, the Pod's next question "
                "takes the claim over.",
            )
        case RunnerState.ARMED:
            return ReasonAndNext(
                f"{pod} was given a JIT for it {since} ago and has not acknowledged it yet.",
                "The Pod fetches it and starts its runner; if it does not ask for "
                f"{duration(thresholds.undelivered)}, recovery replaces it.",
            )
        case _:
            return ReasonAndNext(
                f"{pod} got its JIT {since} ago and has been started; GitHub has not given it a "
                "job yet.",
                "The runner connects and GitHub assigns the job, usually within ten seconds. If "
                f"GitHub still calls it offline after {duration(thresholds.suspect)}, another one is "
                "given out.",
            )


def _nearest(runners: Sequence[RelatedRunner]) -> RunnerLine | None:
    """Of the runners on their way, the one that was claimed for this job, or the furthest."""
    order = (RunnerState.RUNNING, RunnerState.ARMED, RunnerState.CLAIMED)
    on_their_way = [
        each for each in runners if each.runner.state in order and each.runner.suspect_since is None
    ]
    found = min(
        on_their_way,
        key=lambda each: (not each.hinted, order.index(each.runner.state), each.runner.since),
        default=None,
    )
    return None if found is None else found.runner


def _next_match(job: JobLine, wait: Wait, thresholds: Thresholds) -> ReasonAndNext:
    return ReasonAndNext(
        "Nothing stands in its way: "
        f"{counted(wait.idle, 'runner is', 'runners are')} idle in the pool {job.pool}.",
        f"The next match gives one out as soon as it asks. {_before_it(wait)} Runners that do not ask "
        f"for {duration(thresholds.silent)} are replaced.".replace("  ", " "),
    )


def _paused(job: JobLine, wait: Wait) -> ReasonAndNext:
    def said(what: str, pause: Pause, resume: str) -> ReasonAndNext:
        return ReasonAndNext(
            f"{what} has been paused {pause}.", f"An operator resumes it: `{resume}`."
        )

    if wait.dispatch_paused:
        return said("All dispatch", wait.dispatch_paused, "paddock resume")
    if wait.account_paused:
        return said(
            f"The account {job.account}",
            wait.account_paused,
            f"paddock accounts resume {job.account}",
        )
    if wait.pool_paused:
        return said(f"The pool {job.pool}", wait.pool_paused, f"paddock pools resume {job.pool}")
    return ReasonAndNext(
        f"Its pool, {job.pool}, is being deleted.",
        "Another pool with its labels takes it as soon as there is one.",
    )


def _uninstalled(job: JobLine, wait: Wait) -> ReasonAndNext:
    what = {
        "suspended": f"The App's installation for {job.account} is suspended",
        "removed": f"The App is no longer installed for {job.account}",
    }.get(wait.installation or "removed", f"The App is not installed for {job.account}")
    return ReasonAndNext(
        f"{what}, so no runner can be registered there.",
        f"An owner of {job.account} unsuspends or installs the GitHub App; paddock reads it at once.",
    )


def _backing_off(job: JobLine, wait: Wait, now: datetime) -> ReasonAndNext:
    off = wait.back_off
    if off is None:
        return ReasonAndNext("It backs off after a failure.", "The next try is due any moment.")
    whom = {
        "key": f"runners like its own ({job.account}, pool {job.pool})",
        "repository": job.repository,
        "account": f"the account {job.account}",
        "app": "the whole GitHub App",
    }[off.scope]
    times = "once" if off.failures == 1 else f"{off.failures} times in a row"
    match off.cause:
        case BackOffCause.MINT_FAILED:
            why = f"Minting failed for {whom} {times}, and it is left alone for now"
        case BackOffCause.ENDED_WITHOUT_A_JOB:
            why = f"No more runners are given to {whom} for now"
        case BackOffCause.VERSION_REFUSED:
            return ReasonAndNext(
                f"GitHub refused the version of a runner, so none is given to {whom} for now.",
                f"The image of the pool {job.pool} is renewed; the next runner is given out in "
                f"{length(off.until - now)}.",
            )
    return ReasonAndNext(
        f"{why}: {clause(off.reason)}.",
        f"The cause is removed at GitHub; it is tried again in {length(off.until - now)} in any case.",
    )


def _limited(name: str, kind: str, used: Resources, limits: Limits) -> ReasonAndNext:
    full = [
        f"{used.runners} of {counted(limits.runners, 'runner')}"
        if limits.runners is not None
        else "",
        f"{used.vcpu_milli / 1000:g} of {limits.vcpu_milli / 1000:g} CPUs"
        if limits.vcpu_milli is not None
        else "",
        f"{used.memory_mib} of {limits.memory_mib} MiB of memory"
        if limits.memory_mib is not None
        else "",
    ]
    command = (
        f"paddock accounts limits {name}"
        if kind == "account"
        else f"paddock accounts limits {name.partition('/')[0]} --repository {name}"
    )
    return ReasonAndNext(
        f"The {kind} {name} has reached its limit: it uses {', '.join(filter(None, full))}.",
        f"One of its runners ends, or its limit is raised: `{command} --runners N`.",
    )


def _of_the_organisation(wait: Wait) -> str:
    """Runners that were given out before the first limit was set (I78)."""
    if not wait.repository_wider:
        return ""
    theirs = counted(wait.repository_wider, "of these runners is", "of these runners are")
    return f" {theirs} registered at the organisation and can execute its jobs."


def _refused_version(job: JobLine, wait: Wait, now: datetime) -> ReasonAndNext:
    """GitHub would give no job to the Pods that the pool has."""
    refused = wait.refused_version
    renewed = f"The image of the pool {job.pool} is renewed; jobs go to its new Pods at once."
    if refused is None:
        return ReasonAndNext(
            "GitHub refuses the runner version of the Pods that are idle.", renewed
        )
    version = f"runner version {refused.version} of the pool {job.pool}"
    if refused.ended_at is not None and refused.ended_at <= now:
        return ReasonAndNext(
            f"GitHub has given no jobs to {version} since {refused.ended_at:%Y-%m-%d %H:%M} UTC, so "
            "none of its Pods gets a JIT.",
            f"{renewed} GitHub is asked about the version once a day.",
        )
    left = "a while" if refused.refused_until is None else length(refused.refused_until - now)
    return ReasonAndNext(
        f"GitHub refused a runner because of {version}, and has announced no date for it.",
        f"{renewed} If it was a mistake of GitHub's: the version is tried again in {left}.",
    )


def _no_pod(job: JobLine, wait: Wait, thresholds: Thresholds) -> ReasonAndNext:
    if wait.booting:
        coming = (
            f"{counted(wait.booting, 'runner is', 'runners are')} starting and will ask for work; one "
            f"that is not heard within {duration(thresholds.boot)} is replaced."
        )
    else:
        coming = (
            "The pool makes more as soon as its size allows it; `paddock pools explain` tells why."
        )
    because = (
        f" The pool should have {wait.pool_target}: {clause(wait.pool_because)}."
        if (wait.pool_target is not None and wait.pool_because)
        else ""
    )
    return ReasonAndNext(
        f"No runner of the pool {job.pool} is idle.",
        sentence(f"{coming} {_before_it(wait)}{because}"),
    )


def _before_it(wait: Wait) -> str:
    unserved = wait.ahead - wait.supply - wait.supply_graces
    if unserved <= 0:
        return ""
    before = counted(unserved, "job of its kind is", "jobs of its kind are")
    return f"{before} served before it."
