"""What an operator should look at, worst first, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal
from urllib.parse import quote

from paddock.domain.pauses import describe_pause
from paddock.domain.reading.overview import LimitBypassLine, Overview, PauseLine, UnfitHost
from paddock.domain.runners.endings import Ending
from paddock.domain.states import JobState
from paddock.web.dashboard.formatting import count, length

#: Below this share of the rate limit, GitHub's allowance is nearly used up.
_LITTLE_LEFT: Final = 0.1
#: Webhooks are applied in milliseconds; with so many waiting, no replica applies them.
_MANY_PENDING: Final = 200
#: A pool that scales up has its runners within this time.
_LONG_WAIT: Final = timedelta(minutes=5)

_RANK: Final = {"bad": 0, "warn": 1, "info": 2}


@dataclass(frozen=True, slots=True)
class Note:
    kind: Literal["bad", "warn", "info"]
    text: str
    href: str


def attention(overview: Overview) -> list[Note]:
    return sorted(_notes(overview), key=lambda note: _RANK[note.kind])


def _notes(seen: Overview) -> Iterator[Note]:
    yield from (_pause(pause) for pause in seen.pauses)
    for backoff in seen.backoffs:
        left = length(backoff.until - seen.at)
        yield Note(
            "bad",
            f"Nothing is claimed for {backoff.name} for another {left}: {backoff.reason}",
            "/accounts",
        )
    yield from (_unfit(host, seen.at) for host in seen.unfit_hosts)
    yield from _versions(seen)
    yield from (_bypassed(bypass) for bypass in seen.limit_bypasses)
    if seen.dead_deliveries:
        yield Note(
            "bad",
            f"{count(seen.dead_deliveries, 'delivery', 'deliveries')} could not be applied and "
            "was set aside."
            if seen.dead_deliveries == 1
            else f"{seen.dead_deliveries:,} deliveries could not be applied and were set aside.",
            "/deliveries?state=dead",
        )
    if seen.pending_deliveries > _MANY_PENDING:
        yield Note(
            "bad",
            f"{seen.pending_deliveries:,} deliveries wait to be applied.",
            "/deliveries?state=pending",
        )
    if seen.refused:
        yield Note(
            "warn",
            f"{count(seen.refused, 'queued job fits', 'queued jobs fit')} no pool.",
            "/jobs?refused=true",
        )
    oldest = seen.oldest_at
    if oldest is not None and seen.at - oldest > _LONG_WAIT:
        yield Note(
            "warn",
            f"The oldest job that a pool takes has waited for {length(seen.at - oldest)}.",
            "/jobs?status=queued",
        )
    if suspects := sum(cell.suspect for cell in seen.cells):
        yield Note(
            "warn",
            f"GitHub does not see {count(suspects, 'runner')} whose container is up.",
            "/runners?state=running",
        )
    abnormal = sum(number for ending, number in seen.endings.items() if Ending(ending).abnormal)
    if abnormal:
        yield Note(
            "warn",
            f"{count(abnormal, 'runner')} ended abnormally in the last hour.",
            "/endings?abnormal=true",
        )
    for budget in seen.budgets:
        if budget.left < _LITTLE_LEFT:
            yield Note(
                "warn",
                f"{budget.left:.0%} of the budget “{budget.bucket}” of App {budget.app} is left"
                f"{f' for {budget.account}' if budget.account else ''}.",
                "/settings",
            )
    if seen.debts:
        yield Note(
            "info",
            f"{count(seen.debts, 'runner record')} at GitHub may have to be removed.",
            "/recovery",
        )
    if waiting := seen.jobs.get(JobState.WAITING, 0):
        yield Note(
            "info",
            f"{count(waiting, 'job waits', 'jobs wait')} for approval at GitHub.",
            "/jobs?status=waiting",
        )


def _unfit(unfit: UnfitHost, now: datetime) -> Note:
    return Note(
        "bad",
        f"{unfit.host} has been unfit for runners for {length(now - unfit.since)}: {unfit.why}",
        f"/runners?node={quote(unfit.host)}",
    )


def _versions(seen: Overview) -> Iterator[Note]:
    for each in seen.runner_versions:
        if each.is_refused(seen.at) or each.ends_soon(seen.at):
            kind: Literal["bad", "warn"] = "bad" if each.is_refused(seen.at) else "warn"
            yield Note(kind, each.sentence(seen.at), f"/pools/{quote(each.pool)}")


def _bypassed(bypass: LimitBypassLine) -> Note:
    whose = "foreign runners" if bypass.runner == "foreign" else "runners of its organisation"
    return Note(
        "warn",
        f"{count(bypass.jobs, 'job')} of {bypass.repository} on {whose}: its limits do not hold there.",
        f"/jobs?status=in_progress&repository={quote(bypass.repository)}",
    )


def _pause(pause: PauseLine) -> Note:
    who = describe_pause(pause.at, pause.by, pause.why)
    if pause.what == "dispatch":
        return Note("bad", f"All dispatch is paused {who}.", "/")
    if pause.what == "pool":
        return Note("warn", f"Pool {pause.name} is paused {who}.", f"/pools/{pause.name}")
    return Note(
        "warn",
        f"Account {pause.name} is paused {who}.",
        f"/accounts#{quote(pause.name or '')}",
    )
