"""What recovery reads beside a runner's row, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal

from paddock.domain.github.objects import InstallationKey, Scope
from paddock.domain.ids import (
    AccountId,
    GitHubRunnerId,
    HostId,
    JobId,
    KeyId,
    PoolId,
    RunnerId,
)
from paddock.domain.jobs.comparison import ActiveRepository
from paddock.domain.names import PodName, RunnerName
from paddock.domain.pods.fingerprints import Fingerprint
from paddock.domain.recovery.evidence import ExecutorState, JobWord
from paddock.domain.runners.endings import Ending
from paddock.domain.states import JobState, RunnerState


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """A key's supply, and what is queued for it: counted no further than one more than the supply.
    `suspects` of its `recent` runners are not seen by GitHub."""

    supply: int
    queued: int
    recent: int
    suspects: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPlace:
    """Where a key's runners are registered, and as whom GitHub is asked about them."""

    key: KeyId
    host: HostId
    account: AccountId
    pool: PoolId
    who: InstallationKey
    scope: Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerScope:
    """A place where runners of ours may be registered. `state` is of the installation it is asked
    through; `keys` are the demand keys of the place, by their pool's name."""

    who: InstallationKey
    scope: Scope
    state: Literal["active", "suspended", "removed"]
    keys: Mapping[str, KeyId]


@dataclass(frozen=True, slots=True, kw_only=True)
class SupplyGrace:
    """A runner that ended without a reported job: it counts as supply until GitHub was asked about
    the job it was claimed for, or until its time is up (I68)."""

    runner: RunnerId
    key: KeyId
    host: HostId
    hint: JobId | None
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubtTerms:
    """From when on a job is worth a question: its runner gone before, GitHub not asked since, queued
    beside supply since before, queued at all since before, in progress since before, unheard of
    since before."""

    gone_before: datetime
    asked_before: datetime
    waiting_before: datetime
    expired_before: datetime
    running_before: datetime
    unheard_before: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInDoubt:
    """A job whose state here may not be GitHub's. `supply` is of its key; `times` says how often in
    a row GitHub gave the last `answer`; `waits_because` is what was found out of why it waits."""

    host: HostId
    id: JobId
    state: JobState
    queued_at: datetime
    since: datetime
    key: KeyId | None
    executor: ExecutorState
    supply: int
    checked_at: datetime | None
    answer: JobWord
    times: int
    waits_because: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWords:
    """How far the jobs of a runner are here: the one it executes, the one it was claimed for."""

    host: HostId
    job: JobState | None
    hint: JobState | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenVerdict:
    """A runner that ended with a JIT and without a reported job. `outcome` says what became of its
    record at GitHub, if that is settled; `evidence` is its verdict's, JSON."""

    runner: RunnerId
    key: KeyId
    github_id: GitHubRunnerId | None
    name: RunnerName | None
    host: HostId
    hint_job: JobId | None
    hint: JobState | None
    ended_at: datetime
    evidence: str
    outcome: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedJob:
    """A job and the repository GitHub is asked about it in."""

    job: JobId
    state: JobState
    repository: ActiveRepository


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRecord:
    """A runner record at GitHub that can only be of one Pod: it bears a name made from the Pod's."""

    key: KeyId
    name: RunnerName
    generation: int
    github_id: GitHubRunnerId


class ActionOutcome(StrEnum):
    DONE = "done"
    DRY_RUN = "dry-run"
    LIMITED = "limited"
    LOST_THE_RACE = "lost the race"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionTaken:
    """One action, done or not, with its evidence as JSON."""

    rule: str
    action: str
    outcome: ActionOutcome
    why: str
    evidence: str
    runner: RunnerId | None = None
    job: tuple[HostId, JobId] | None = None
    pod_name: PodName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerEnd:
    """What is written when a runner has ended: from which state, how, and by which evidence (JSON).
    `pod_uid` and `node` are for a row that has not seen its Pod yet.

    Until `supply_grace_until` it still counts as supply of its key: its job may have been done, and the
    webhook may be on its way (I68). Until `log_wanted_until` its log and circumstances are asked for
    (I79)."""

    runner: RunnerId
    generation: int
    state: RunnerState
    ending: Ending
    why: str
    ended_at: datetime
    pod_uid: str | None = None
    node: str | None = None
    fingerprint: Fingerprint | None = None
    log_tail: str | None = None
    evidence: str | None = None
    supply_grace_until: datetime | None = None
    log_wanted_until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedLog:
    """An ended runner whose log or circumstances are still asked for. `vanished`: its Pod was not seen
    terminal, so it must not be deleted."""

    runner: RunnerId
    pod_name: PodName
    pod_uid: str
    node: str | None
    #: GitHub's name of the runner.
    name: RunnerName | None
    #: The job that it executed or was meant for.
    job: JobId | None
    account: str | None
    pool: str
    ended_at: datetime
    until: datetime
    has_log: bool
    vanished: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LateNews:
    """A verdict, and what GitHub says by now of the job that was on its runner. `evidence` is the
    verdict's own, JSON."""

    runner: RunnerId
    name: RunnerName | None
    pod_name: PodName
    account: str | None
    pool: str
    ending: Ending
    ended_at: datetime
    evidence: str
    job: JobId
    job_state: JobState
    conclusion: str | None
    completed_at: datetime | None
