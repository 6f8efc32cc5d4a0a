"""How long recovery waits, and why just so long. Each is a setting of `[recovery]`."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any


def _seconds(default: float, reason: str) -> Any:
    return field(default=default, metadata={"reason": reason, "unit": "s"})


def _count(default: int, reason: str) -> Any:
    return field(default=default, metadata={"reason": reason, "unit": ""})


MINUTE = 60.0
HOUR = 60 * MINUTE


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Seconds, unless it is a number of times. A pool may have its own for `boot`, `pull` and
    `unschedulable`: then it is diagnosed with a copy."""

    fresh: float = _seconds(
        30.0,
        "for how long an answer is believed: a runner can get a job at any moment, and asking "
        "each suspect twice a minute stays far below GitHub's quota",
    )
    recheck: float = _seconds(
        60.0,
        "how often a job that looks stuck is asked for: a job's owner feels minutes, and a hundred "
        "stuck jobs cost 6,000 requests an hour",
    )
    absent_reads: int = _count(
        3, "complete reads in a row: one may come from a cache that lags, and two from the same one"
    )
    boot: float = _seconds(
        5 * MINUTE,
        "a VM boots and its poller asks within a minute or two; a place that is held for longer "
        "is missed by others",
    )
    pull: float = _seconds(
        15 * MINUTE,
        "a runner image has some gigabytes, and the slowest registries that people use need "
        "minutes for each",
    )
    unschedulable: float = _seconds(
        5 * MINUTE,
        "another Pod's end frees a node within minutes; what nobody takes for longer waits for a "
        "node that does not exist",
    )
    silent: float = _seconds(
        2 * MINUTE,
        "a poller's request is held for at most 50 seconds: two of them in a row were lost",
    )
    stale_claim: float = _seconds(
        5 * MINUTE,
        "a mint is given up after 45 seconds and its Pod then takes the claim over; five minutes "
        "later nobody is on it",
    )
    undelivered: float = _seconds(
        2 * MINUTE, "a Pod that waits for its JIT asks again within seconds"
    )
    start: float = _seconds(
        30.0,
        "the image is on the node before a Pod is idle, so its runner starts within seconds; "
        "thirty leave time to serve the job again within a minute",
    )
    suspect: float = _seconds(
        60.0,
        "a runner is online about ten seconds after its start; GitHub's view lags by some more",
    )
    suspects: int = _count(
        3,
        "fewer suspects are single failures, also where they are half of a scope's runners; if it "
        "is half and as many as this, GitHub is slow, and replacements would be a storm",
    )
    waiting: float = _seconds(
        3 * MINUTE,
        "by then it has long been replaced; kubelets retry a failed start within two minutes",
    )
    never_registered: float = _seconds(
        5 * MINUTE,
        "nothing that registers later than this was ever seen, and it has been replaced since its "
        "first minute",
    )
    zombie: float = _seconds(
        2 * MINUTE,
        "GitHub removes a runner's record when its job completes: the runner then exits within "
        "seconds, and the webhook is rarely later than this",
    )
    surplus: float = _seconds(
        3 * MINUTE,
        "a key that had a job a moment ago is likely to have the next, and a runner that is online "
        "serves it at once",
    )
    no_job: float = _seconds(
        15 * MINUTE,
        "GitHub assigns within seconds; a runner it gives nothing for this long is not going to "
        "get the job that waits",
    )
    unassigned: float = _seconds(
        60.0, "GitHub assigns within seconds; its assignment service had delays of most of a minute"
    )
    refusals: int = _count(
        2, "answers in a row that the job is queued: the first may have been just before its start"
    )
    linger: float = _seconds(
        10 * MINUTE,
        "after its job a runner cleans up and exits within seconds; the slowest hooks people run "
        "after a job take minutes",
    )
    removals: int = _count(
        3,
        "times that GitHub did not know an installation by its number, nor in the App's list, at "
        "least ten minutes apart; a suspended one is known, and does not count",
    )
    removed: float = _seconds(
        121 * HOUR,
        "GitHub ends a job on a self-hosted runner after 5 days, and a runner that got no job within "
        "15 minutes was retired while the account could be asked: whatever holds a JIT for an hour "
        "longer than that is not at a job whose result GitHub would take",
    )
    adopt: float = _seconds(
        5 * MINUTE, "a row is written before its Pod: the grace is for clocks and slow reads alone"
    )
    echo: float = _seconds(
        2 * MINUTE,
        "webhooks of a job shorter than their delay arrive within this; until then the runner that "
        "ended may have done the job",
    )
    verdict: float = _seconds(
        HOUR, "what GitHub has not said of a runner that ended an hour ago it will not say at all"
    )
    in_progress: float = _seconds(
        HOUR, "a completion that was lost is found by asking; few jobs run for longer"
    )
    unheard: float = _seconds(
        15 * MINUTE,
        "how often a job is asked for of which nothing here would tell: one that waits for an "
        "approval, or is on a runner that is not ours; a hundred of them cost 400 requests an hour",
    )
    job_expired: float = _seconds(
        24 * HOUR,
        "GitHub cancels a job that was queued for a day; then it may not know it any more",
    )
    job_end: float = _seconds(
        48 * HOUR, "GitHub's cancellation may be this late, and is never later"
    )


def reasons() -> dict[str, str]:
    return {each.name: each.metadata["reason"] for each in fields(Thresholds)}


def counted(name: str) -> bool:
    """Whether it is a number of times rather than a time."""
    return any(each.name == name and not each.metadata["unit"] for each in fields(Thresholds))


def words(name: str, thresholds: Thresholds) -> str:
    value: float = getattr(thresholds, name)
    return f"{value:g}" if counted(name) else duration(value)


def duration(seconds: float) -> str:
    if seconds >= HOUR and seconds % HOUR == 0:
        return f"{seconds / HOUR:g} h"
    # A minute is better read as 60 s beside its neighbours of 30 and 45.
    if seconds > MINUTE and seconds % MINUTE == 0:
        return f"{seconds / MINUTE:g} min"
    return f"{seconds:g} s"
