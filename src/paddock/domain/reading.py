"""What people and programs are shown: the lines of lists, and one object with all that is known of it.

The HTTP API answers with exactly these; the dashboard and the command line show them. No decision uses
them, so they are read apart from what decisions use, with time-outs of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final, Generic, Literal, TypeVar
from uuid import UUID

import msgspec

from paddock.domain.deliveries import DeliveryState
from paddock.domain.endings import Ending
from paddock.domain.limits import Limits, Resources
from paddock.domain.recovery.records import ActionOutcome
from paddock.domain.states import JobState, RunnerState
from paddock.domain.vitals import Sample

#: A page people read; and the most a program may ask for at once.
PAGE: Final = 50
LONGEST_PAGE: Final = 200

T = TypeVar("T")


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """Anything shown."""


class Page(Line, Generic[T], frozen=True, kw_only=True):
    """`next` is the cursor of the page after this one; absent on the last."""

    items: list[T]
    next: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Paging:
    """At most `limit` items, from `cursor` on (the `next` of the page before)."""

    limit: int = PAGE
    cursor: str | None = None


class BadCursor(ValueError):
    """Not a cursor that a page of this list gave out."""


class JobLine(Line, frozen=True, kw_only=True):
    host: str
    id: int
    name: str
    workflow: str | None
    repository: str
    account: str
    labels: list[str]
    status: JobState
    conclusion: str | None
    #: The pool whose runners may have it; absent if none takes it, for the reason in `refusal`.
    pool: str | None
    refusal: str | None
    refusal_detail: str | None
    run_id: int
    run_attempt: int
    #: When GitHub created it, and when it became queued: later if it waited for an approval or was
    #: queued again. `seen_at` is when its first word arrived here.
    created_at: datetime
    queued_at: datetime
    seen_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    since: datetime
    why: str
    #: The runner GitHub names, and the Pod it is in if it is ours.
    executor: str | None
    pod: str | None
    #: Why it is queued, as `paddock why` says it: in lists of jobs. A job's story has it in `told`.
    waits_because: str | None = None
    #: Whether the code is the repository's own, where its pool asks; absent where that is not known.
    trusted: bool | None
    trust_why: str | None


class EventLine(Line, frozen=True, kw_only=True):
    id: int
    at: datetime
    actor: str
    before: str | None
    after: str
    why: str
    generation: int | None
    runner: UUID | None
    pod: str | None
    host: str | None
    job: int | None
    account: str | None
    pool: str | None
    evidence: Any


class ActionLine(Line, frozen=True, kw_only=True):
    """What recovery did, or would have done."""

    id: int
    at: datetime
    actor: str
    rule: str
    action: str
    outcome: ActionOutcome
    why: str
    runner: UUID | None
    pod: str | None
    host: str | None
    job: int | None
    evidence: Any


class RunnerLine(Line, frozen=True, kw_only=True):
    id: UUID
    pod: str
    pool: str
    state: RunnerState
    since: datetime
    why: str
    created_at: datetime
    heard_at: datetime | None
    gone_at: datetime | None
    generation: int
    shape: Literal["gated", "single"]
    node: str | None
    image: str | None
    account: str | None
    host: str | None
    #: The name GitHub knows it by.
    name: str | None
    #: The job it executes, and the one it was claimed for: those need not be the same.
    job: int | None
    hint: int | None
    #: Its container is up and GitHub calls it offline.
    suspect_since: datetime | None
    #: It is made from an older description of its pool.
    stale: bool
    ending: Ending | None


class VerdictLine(Line, frozen=True, kw_only=True):
    runner: UUID
    pod: str
    pool: str
    account: str | None
    host: str | None
    job: int | None
    node: str | None
    image: str | None
    ending: Ending
    abnormal: bool
    why: str
    exit_code: int | None
    signal: int | None
    reason: str | None
    #: These three in words; absent if nothing is known.
    exit_text: str | None
    ended_at: datetime
    written_at: datetime
    refined_at: datetime | None
    evidence: Any


class JobCheck(Line, frozen=True, kw_only=True):
    """What GitHub said of a job when it was last asked, and how often in a row."""

    checked_at: datetime
    answer: str
    times: int


class JobStory(Line, frozen=True, kw_only=True):
    """A job with all that is known of it, oldest first."""

    job: JobLine
    events: list[EventLine]
    actions: list[ActionLine]
    #: Those that executed it or were claimed for it.
    runners: list[RunnerLine]
    check: JobCheck | None


class MintLine(Line, frozen=True, kw_only=True):
    """A name that was chosen for a runner, and what became of it at GitHub."""

    name: str
    chosen_at: datetime
    state: Literal["chosen", "minted", "settled"]
    github_id: int | None
    outcome: str | None


class VitalsLine(Line, frozen=True, kw_only=True, omit_defaults=True):
    """One measurement that a runner made of itself. It comes from where untrusted code runs."""

    at: float
    memory_used: float | None = None
    memory_limit: float | None = None
    oom_kills: float | None = None
    memory_pressure: float | None = None
    cpu_pressure: float | None = None
    io_pressure: float | None = None
    cpu_seconds: float | None = None
    disk_used: float | None = None
    load: float | None = None

    @staticmethod
    def of(sample: Sample) -> VitalsLine:
        return VitalsLine(**msgspec.structs.asdict(sample))


class RunnerStory(Line, frozen=True, kw_only=True):
    """A runner with all that is known of it, oldest first."""

    runner: RunnerLine
    #: When it reached each step of its life that it has reached.
    steps: dict[str, datetime]
    retire_reason: str | None
    names: list[MintLine]
    events: list[EventLine]
    actions: list[ActionLine]
    jobs: list[JobLine]
    verdict: VerdictLine | None
    log_tail: str | None
    vitals: list[VitalsLine]


class DecisionLine(Line, frozen=True, kw_only=True):
    """A decision on a pool's size, term by term."""

    at: datetime
    wanted: int
    target: int
    why: str
    terms: dict[str, int | None]


class PoolLine(Line, frozen=True, kw_only=True):
    name: str
    state: Literal["active", "draining", "deleted"]
    labels: list[str]
    shape: Literal["gated", "single"]
    runner_group: str | None
    image: str | None
    cost: Resources
    max_runners: int | None
    paused_at: datetime | None
    paused_by: str | None
    paused_why: str | None
    #: How many runners there are, by state; states without runners are left out.
    runners: dict[RunnerState, int]
    stale: int
    queued: int
    oldest_at: datetime | None
    #: The decision in force.
    decision: DecisionLine | None

    @property
    def size(self) -> int:
        return sum(self.runners.values())


class KeyLine(Line, frozen=True, kw_only=True):
    """Jobs of one account that wait for one pool's runners, and whether dispatch serves them now."""

    pool: str
    account: str
    #: The repository its runners register at; absent: the organisation.
    repository: str | None
    queued: int
    oldest_at: datetime
    #: Runners on their way to them.
    supply: int
    blocked: str | None
    blocked_until: datetime | None
    blocked_because: str | None


class PoolStory(Line, frozen=True, kw_only=True):
    pool: PoolLine
    decisions: list[DecisionLine]
    keys: list[KeyLine]
    events: list[EventLine]


class AccountLine(Line, frozen=True, kw_only=True):
    host: str
    login: str
    kind: Literal["organization", "user"]
    installation: Literal["active", "suspended", "removed"]
    weight: int
    limits: Limits
    used: Resources
    #: Its runners that execute a job.
    busy: int
    queued: int
    oldest_at: datetime | None
    paused_at: datetime | None
    paused_by: str | None
    paused_why: str | None


class DeliveryLine(Line, frozen=True, kw_only=True):
    number: int
    guid: str
    event: str
    action: str | None
    state: DeliveryState
    received_at: datetime
    settled_at: datetime | None
    attempts: int
    note: str | None


class RuleLine(Line, frozen=True, kw_only=True):
    """A rule of recovery, and what it did in the last day."""

    name: str
    about: str
    seen: str
    done: str
    action: str
    asks: list[str]
    dry_run: bool
    #: Actions in the last day by outcome, and the last of them.
    lately: dict[str, int]
    last_at: datetime | None


#: What a client may send: PostgreSQL has no text with a NUL in it, and names are shorter.
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=256, pattern="^[^\\x00]*$")]
#: GitHub's numbers are those of a PostgreSQL bigint.
Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Moment = Annotated[datetime, msgspec.Meta(tz=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    status: JobState | None = None
    account: Text | None = None
    repository: Text | None = None
    pool: Text | None = None
    conclusion: Text | None = None
    host: Text | None = None
    #: Only those that no pool takes.
    refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerFilter:
    state: RunnerState | None = None
    pool: Text | None = None
    account: Text | None = None
    node: Text | None = None
    #: Only those that have not ended, or only those that have.
    live: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictFilter:
    ending: Ending | None = None
    abnormal: bool | None = None
    pool: Text | None = None
    node: Text | None = None
    image: Text | None = None
    since: Moment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    runner: UUID | None = None
    job: Number | None = None
    account: Text | None = None
    pool: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionFilter:
    rule: Text | None = None
    #: Without actions that every runner gets, or that follow from an earlier action.
    noteworthy: bool = False
    outcome: ActionOutcome | None = None
    runner: UUID | None = None
    job: Number | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFilter:
    state: DeliveryState | None = None
    event: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndingCount:
    """Endings of a class within one step of time, from `at` on."""

    at: datetime
    ending: Ending
    runners: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleCount:
    rule: str
    outcome: ActionOutcome
    actions: int
    last_at: datetime


#: How many deliveries there are in each state.
DeliveryCounts = Mapping[DeliveryState, int]
