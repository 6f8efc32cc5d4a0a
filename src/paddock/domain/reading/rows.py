"""The rows that readers get: the API answers with them, the dashboard and the command line show them.

No decision uses them. They are read apart from what decisions use, with time-outs of their own.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec

from paddock.domain.github.deliveries import DeliveryState
from paddock.domain.limits import Limits, Resources
from paddock.domain.recovery.records import ActionOutcome
from paddock.domain.runners.endings import Ending
from paddock.domain.runners.vitals import Sample
from paddock.domain.states import JobState, RunnerState


class ReadModel(msgspec.Struct, frozen=True, kw_only=True):
    """Anything shown."""


class JobLine(ReadModel, frozen=True, kw_only=True):
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


class EventLine(ReadModel, frozen=True, kw_only=True):
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


class ActionLine(ReadModel, frozen=True, kw_only=True):
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


class RunnerLine(ReadModel, frozen=True, kw_only=True):
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


class VerdictLine(ReadModel, frozen=True, kw_only=True):
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


class JobCheck(ReadModel, frozen=True, kw_only=True):
    """What GitHub said of a job when it was last asked, and how often in a row."""

    checked_at: datetime
    answer: str
    times: int


class MintLine(ReadModel, frozen=True, kw_only=True):
    """A name that was chosen for a runner, and what became of it at GitHub."""

    name: str
    chosen_at: datetime
    state: Literal["chosen", "minted", "settled"]
    github_id: int | None
    outcome: str | None


class VitalsLine(ReadModel, frozen=True, kw_only=True, omit_defaults=True):
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


class DecisionLine(ReadModel, frozen=True, kw_only=True):
    """A decision on a pool's size, term by term."""

    at: datetime
    wanted: int
    target: int
    why: str
    terms: dict[str, int | None]


class PoolLine(ReadModel, frozen=True, kw_only=True):
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


class KeyLine(ReadModel, frozen=True, kw_only=True):
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


class AccountLine(ReadModel, frozen=True, kw_only=True):
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


class DeliveryLine(ReadModel, frozen=True, kw_only=True):
    number: int
    guid: str
    event: str
    action: str | None
    state: DeliveryState
    received_at: datetime
    settled_at: datetime | None
    attempts: int
    note: str | None


class RuleLine(ReadModel, frozen=True, kw_only=True):
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


class EndingCount(ReadModel, frozen=True, kw_only=True):
    """Endings of a class within one step of time, from `at` on."""

    at: datetime
    ending: Ending
    runners: int


class RuleCount(ReadModel, frozen=True, kw_only=True):
    rule: str
    outcome: ActionOutcome
    actions: int
    last_at: datetime
