"""The fake GitHub's state: plain mutable records, one per object that has an id at GitHub.

No code outside this package may keep one across a call. `payloads` builds what GitHub *says* about a
record; `truth` shows what is *true* about it. The two differ on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import count
from typing import Any, Literal

import msgspec

#: The permissions that an App with runners asks for. If an installation lacks one, GitHub answers the
#: calls that need it with "Resource not accessible by integration".
RUNNER_PERMISSIONS: Mapping[str, str] = {
    "actions": "read",
    "administration": "write",
    "metadata": "read",
    "organization_self_hosted_runners": "write",
}

AccountType = Literal["Organization", "User"]


@dataclass(slots=True, eq=False)
class Account:
    id: int
    login: str
    type: AccountType
    created_at: datetime
    #: The organisation allows only listed addresses, and ours is not one of them.
    ip_not_permitted: bool = False


@dataclass(slots=True, eq=False)
class Repository:
    id: int
    owner: Account
    name: str
    private: bool
    fork: bool
    created_at: datetime
    actions_disabled: bool = False
    #: "Repository level self-hosted runners are disabled on this repository."
    runners_disabled: bool = False
    run_numbers: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def full_name(self) -> str:
        return f"{self.owner.login}/{self.name}"


@dataclass(slots=True, eq=False)
class App:
    id: int
    slug: str
    client_id: str
    hook_id: int
    owner: Account
    #: PEM; several while a key is being rotated. None of them: no JWT is ever accepted.
    public_keys: tuple[str, ...]
    webhook_secret: str
    webhook_url: str | None
    created_at: datetime
    webhook_form: bool = False  # application/x-www-form-urlencoded instead of JSON
    events: tuple[str, ...] = ("workflow_job",)
    #: The permissions it asks for; an installation has those that its owner has accepted.
    permissions: Mapping[str, str] = field(default_factory=lambda: dict(RUNNER_PERMISSIONS))


@dataclass(slots=True, eq=False)
class Installation:
    id: int
    app: App
    account: Account
    selection: Literal["all", "selected"]
    repositories: set[int]
    permissions: dict[str, str]
    created_at: datetime
    updated_at: datetime
    suspended_at: datetime | None = None
    removed: bool = False

    def covers(self, repository: Repository) -> bool:
        return repository.owner is self.account and (
            self.selection == "all" or repository.id in self.repositories
        )


@dataclass(slots=True, eq=False)
class Token:
    value: str
    installation: Installation
    expires_at: datetime
    permissions: dict[str, str]
    #: None: all that the installation covers.
    repositories: frozenset[int] | None


@dataclass(frozen=True, slots=True)
class VersionDates:
    """Until when a version of the runner may register and get jobs; `None`: no date is set."""

    registration_deprecates_at: datetime | None = None
    runtime_deprecates_at: datetime | None = None


@dataclass(slots=True, eq=False)
class RunnerGroup:
    id: int
    owner: Account
    name: str
    default: bool
    visibility: Literal["all", "selected", "private"]
    repositories: set[int] = field(default_factory=set)
    allows_public: bool = True

    def admits(self, repository: Repository) -> bool:
        match self.visibility:
            case "all":
                return self.allows_public or repository.private
            case "private":
                return repository.private
            case "selected":
                return repository.id in self.repositories


class RunnerEnd(StrEnum):
    """Why a runner's record no longer exists."""

    COMPLETED = "completed"  # its one job completed
    DELETED = "deleted"  # by the API, or by a user's hand
    EXPIRED = "expired"  # it never ran and GitHub removed it
    LOST = "lost"  # its job was given up after the lease


@dataclass(slots=True, eq=False)
class Session:
    id: str
    contact_at: datetime
    version: str


@dataclass(slots=True, eq=False)
class Runner:
    """A runner *record*: GitHub's side of a runner, whether or not a process is behind it."""

    id: int
    name: str
    owner: Account
    repository: Repository | None  # the scope: a repository's runner, or its organisation's
    group: RunnerGroup
    labels: tuple[str, ...]
    created_at: datetime
    client_id: str
    secret: str
    ephemeral: bool = True
    #: Registered by another system and played by the model itself.
    foreign: bool = False
    os: str = "unknown"
    version: str | None = None
    session: Session | None = None
    #: Assigned to this runner, not yet fetched by it.
    offered: Job | None = None
    #: Executed by it now, as far as GitHub knows.
    job: Job | None = None
    #: From when on GitHub admits that it is busy.
    busy_from: datetime | None = None
    removed: RunnerEnd | None = None

    @property
    def scope(self) -> str:
        return self.repository.full_name if self.repository else self.owner.login

    def covers(self, repository: Repository, labels: frozenset[str]) -> bool:
        if self.repository is not None:
            reaches = self.repository is repository
        else:
            reaches = self.owner is repository.owner and self.group.admits(repository)
        return reaches and labels <= {label.lower() for label in self.labels}


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A step that runs a script. Texts may contain `${{ expressions }}`, which the runner evaluates."""

    name: str
    run: str
    shell: str | None = None
    working_directory: str | None = None
    env: dict[str, str] = {}
    condition: str = "success()"
    continue_on_error: bool = False
    timeout_minutes: int | None = None


class JobSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a workflow file would say about one job."""

    name: str = "build"
    labels: tuple[str, ...] = ("self-hosted",)
    steps: tuple[Step, ...] = ()
    env: dict[str, str] = {}
    #: This job's values of the matrix.
    matrix: dict[str, str | int | bool] = {}
    #: The runner masks them in its logs.
    secrets: dict[str, str] = {}
    #: Name to expression.
    outputs: dict[str, str] = {}
    #: How long a runner that only simulates the steps takes over them (foreign runners, and the
    #: simulator's).
    seconds: float = 60.0
    #: The conclusion that such a runner reports.
    conclusion: str = "success"
    #: How the fake runner that gets it dies; see `paddock.fakes.runner`.
    die: str | None = None
    #: Waits for an approval before it is queued.
    gated: bool = False


class JobStatus(StrEnum):
    WAITING = "waiting"
    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


@dataclass(slots=True, eq=False)
class Job:
    id: int
    run: Run
    attempt: int
    spec: JobSpec
    created_at: datetime
    status: JobStatus = JobStatus.QUEUED
    conclusion: str | None = None
    #: When it was created, or approved. GitHub does not publish it.
    queued_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    #: What GitHub says about the executor, kept after its record is removed.
    runner: Runner | None = None
    steps: list[dict[str, Any]] = field(default_factory=list)
    lease_until: datetime | None = None
    cancel_requested: bool = False
    cancel_sent: bool = False
    annotation: str | None = None
    #: A job cancelled in the queue names its runner as null or, as often, as 0 and "".
    no_runner_is_zero: bool = False

    @property
    def repository(self) -> Repository:
        return self.run.repository

    @property
    def labels(self) -> frozenset[str]:
        return frozenset(label.lower() for label in self.spec.labels)


@dataclass(slots=True, eq=False)
class Run:
    id: int
    repository: Repository
    #: Another repository than `repository` when a fork's pull request started the run (I62).
    head_repository: Repository
    number: int
    workflow: str
    event: str
    head_sha: str
    created_at: datetime
    updated_at: datetime
    attempt: int = 1
    jobs: list[Job] = field(default_factory=list)

    @property
    def latest(self) -> list[Job]:
        return [job for job in self.jobs if job.attempt == self.attempt]

    @property
    def status(self) -> JobStatus:
        """A run with one started job is in progress while its other jobs are still queued."""
        states = {job.status for job in self.latest}
        if states == {JobStatus.COMPLETED}:
            return JobStatus.COMPLETED
        if states & {JobStatus.IN_PROGRESS, JobStatus.COMPLETED}:
            return JobStatus.IN_PROGRESS
        return JobStatus.QUEUED if JobStatus.QUEUED in states else JobStatus.WAITING

    @property
    def conclusion(self) -> str | None:
        if self.status is not JobStatus.COMPLETED:
            return None
        ends = {job.conclusion for job in self.latest}
        return next((end for end in ("failure", "cancelled") if end in ends), "success")


@dataclass(slots=True, eq=False)
class Delivery:
    """One attempt to deliver one event to one App. Attempts of the same event share the GUID."""

    id: int
    guid: str
    app: App
    event: str
    action: str | None
    installation_id: int | None
    repository_id: int | None
    payload: dict[str, Any]
    redelivery: bool
    created_at: datetime
    #: None: still under way; GitHub lists an attempt when it has ended.
    status_code: int | None = None
    status: str = ""
    delivered_at: datetime | None = None
    duration: float = 0.0
    url: str = ""
    request_headers: dict[str, str] = field(default_factory=dict)
    response_headers: dict[str, str] = field(default_factory=dict)
    response_payload: str | None = None
