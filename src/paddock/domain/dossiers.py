"""All that is recorded about one job or one runner, read at one moment.

An operator who asks why a job waits, or how a runner ended, should not have to join six tables, and two
operators must not get two answers. `paddock.stories` makes sentences of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from paddock.domain.allocation import Withheld
from paddock.domain.backoffs import BackOffCause, BackOffScope
from paddock.domain.endings import Ending
from paddock.domain.ids import HostId, JobId
from paddock.domain.limits import Limits, Resources
from paddock.domain.names import PodName, RunnerName
from paddock.domain.pauses import Pause
from paddock.domain.runners import Runner
from paddock.domain.states import JobState
from paddock.domain.vitals import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A step, and the component that made it. `pod` is the runner's Pod if it was a runner's step."""

    at: datetime
    actor: str
    before: str | None
    after: str
    why: str
    pod: PodName | None = None
    #: JSON.
    evidence: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What recovery did, or would have done."""

    at: datetime
    actor: str
    rule: str
    action: str
    outcome: str
    why: str
    pod: PodName | None = None
    #: JSON.
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictOnFile:
    ending: Ending
    abnormal: bool
    why: str
    exit_code: int | None
    signal: int | None
    reason: str | None
    node: str | None
    ended_at: datetime
    written_at: datetime
    refined_at: datetime | None
    log_tail: str | None
    #: JSON: an `EndingEvidence`, or nothing.
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOnFile:
    host: HostId
    host_name: str
    id: JobId
    account: str
    repository: str
    run_id: int
    name: str
    workflow: str | None
    labels: tuple[str, ...]
    state: JobState
    pool: str | None
    refusal: str | None
    refusal_detail: str | None
    created_at: datetime
    queued_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    conclusion: str | None
    #: The executor GitHub names, ours or not.
    executor: str | None
    demotions: int
    #: When paddock first heard of it.
    seen_at: datetime
    since: datetime
    why: str
    #: Whether its code is the repository's own, and how that is known; `None`: its run was not looked
    #: up.
    trusted: bool | None = None
    trust_why: str | None = None
    #: Why its repository's limits do not hold for this job (I78).
    beside_limits: Literal["foreign", "organisation", "runner group"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What GitHub said of a job when it was last asked."""

    at: datetime
    answer: str
    times: int
    waits_because: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackedOff:
    scope: BackOffScope
    until: datetime
    failures: int
    cause: BackOffCause
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedVersion:
    """`ended_at`: from then on GitHub gives its runners no jobs. `refused_at`: a runner of it was
    refused without such a date, and the next one waits until `refused_until`."""

    version: str
    ended_at: datetime | None
    refused_at: datetime | None
    refused_until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """What stands between a queued job that a pool takes and its runner, at one moment."""

    #: How many jobs of its key are served before it, and how many runners are on their way to them.
    ahead: int
    supply: int
    #: Runners that ended without a reported job, and count as supply until GitHub was asked.
    supply_graces: int
    supply_grace_until: datetime | None
    #: The matcher's own reason; `None` if the next match serves it.
    withheld: Withheld | None
    everybody_paused: Pause | None
    account_paused: Pause | None
    pool_paused: Pause | None
    pool_state: Literal["active", "draining", "deleted"]
    #: The best state among the account's installations.
    installation: Literal["active", "suspended", "removed"] | None
    back_off: BackedOff | None
    account_limits: Limits
    account_used: Resources
    #: Of the repository, if its runners register there.
    repository_limits: Limits
    repository_used: Resources
    #: How many of those are registered at the organisation.
    repository_wider: int = 0
    pool_maximum: int | None
    pool_occupied: int
    idle: int
    booting: int
    #: Why the pool has the size it has.
    pool_target: int | None
    pool_because: str | None
    #: The version of the pool's runners, if GitHub refuses it to the account.
    refused_version: RefusedVersion | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RelatedRunner:
    """A runner in a job's story: the one that executed it, one that was claimed for it, or one of
    those on their way to its key."""

    runner: Runner
    executed: bool
    hinted: bool
    verdict: VerdictOnFile | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDossier:
    job: JobOnFile
    #: `None` unless it is queued and a pool takes it.
    wait: Wait | None
    check: Check | None
    runners: tuple[RelatedRunner, ...]
    #: Those of the job, and those of its runners while they belonged to it.
    events: tuple[Event, ...]
    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenName:
    """A name a runner was to be registered under, and what became of it at GitHub."""

    name: RunnerName
    at: datetime
    state: Literal["chosen", "minted", "settled"]
    outcome: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInBrief:
    host_name: str
    id: JobId
    name: str
    repository: str
    state: JobState
    conclusion: str | None
    #: Whether GitHub names this runner as its executor.
    executed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerDossier:
    runner: Runner
    pool: str
    pool_paused: Pause | None
    everybody_paused: Pause | None
    #: Jobs that wait for its pool, with or without a runner on the way.
    queued: int
    account: str | None
    verdict: VerdictOnFile | None
    #: Those it executed, and the one it was claimed for.
    jobs: tuple[JobInBrief, ...]
    names: tuple[ChosenName, ...]
    events: tuple[Event, ...]
    actions: tuple[Action, ...]
    #: As the runner itself reported it.
    last_sample: Sample | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """A job that is known only from its webhooks: paddock did nothing for it."""

    job: JobId
    labels: tuple[str, ...]
    received_at: datetime
    state: str
    note: str | None
