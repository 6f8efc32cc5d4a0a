"""GitHub's objects as paddock knows them, and the names under which it asks for them.

Only the fields that decisions need. Each value names its host: two GitHub hosts both count their ids
from one, so an id without its host would sooner or later touch a stranger's runner (I71). Nothing here
talks to GitHub; `paddock.github` fills these records.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, NewType

from paddock.domain.ids import GitHubRunnerId, JobId
from paddock.domain.states import JobState

#: `github.com`, `tenant.ghe.com`, `github.example.org`: GitHub's ids are unique within one host.
GitHubHost = NewType("GitHubHost", str)

GitHubAppId = NewType("GitHubAppId", int)
InstallationId = NewType("InstallationId", int)
GitHubAccountId = NewType("GitHubAccountId", int)
GitHubRepositoryId = NewType("GitHubRepositoryId", int)
RunId = NewType("RunId", int)
RunnerGroupId = NewType("RunnerGroupId", int)
DeliveryId = NewType("DeliveryId", int)

#: GitHub accepts this many labels for a runner. It needs at least one: it adds no default labels.
RUNNER_LABELS_MAX: Final = 100

# A login or a repository's name. Everything outside it would change the path it is put into.
_NAME = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,100}\Z")


class Operation(StrEnum):
    """One kind of request. GitHub's per-minute points are counted for each of these by itself."""

    MINT = "mint a JIT"
    DELETE_RUNNER = "delete a runner"
    GET_RUNNER = "get a runner"
    LIST_RUNNERS = "list runners"
    LIST_GROUPS = "list runner groups"
    GET_VERSION = "get a runner version's dates"
    GET_JOB = "get a job"
    GET_RUN = "get a run"
    LIST_RUNS = "list runs"
    LIST_JOBS = "list a run's jobs"
    LIST_REPOSITORIES = "list repositories"
    TOKEN = "get an installation token"  # noqa: S105 (a name, not a secret)
    GET_APP = "get the App"
    LIST_INSTALLATIONS = "list installations"
    GET_INSTALLATION = "get an installation"
    LIST_DELIVERIES = "list deliveries"
    REDELIVER = "redeliver"

    @property
    def writes(self) -> bool:
        """Whether it costs five points instead of one."""
        return self in _WRITES

    @property
    def repeatable(self) -> bool:
        """Whether sending it twice does no more than sending it once.

        A second mint registers a second runner, or meets its own name (I19). A second token is merely
        unused. A second redelivery would be applied once but costs one more request, so it waits for
        the next round.
        """
        return self not in (Operation.MINT, Operation.REDELIVER)

    @property
    def as_app(self) -> bool:
        """Whether the App itself asks, with its JWT, and not one of its installations."""
        return self in _AS_APP


_WRITES: Final = frozenset(
    {Operation.MINT, Operation.DELETE_RUNNER, Operation.TOKEN, Operation.REDELIVER}
)
_AS_APP: Final = frozenset(
    {
        Operation.TOKEN,
        Operation.GET_APP,
        Operation.LIST_INSTALLATIONS,
        Operation.GET_INSTALLATION,
        Operation.LIST_DELIVERIES,
        Operation.REDELIVER,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppKey:
    """A GitHub App on its host."""

    host: GitHubHost
    app: GitHubAppId

    def __str__(self) -> str:
        return f"App {self.app} on {self.host}"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallationKey:
    """A tenant: one installation of one App (I4). All requests are made as one of these, except those
    of the App itself."""

    host: GitHubHost
    app: GitHubAppId
    installation: InstallationId

    @property
    def app_key(self) -> AppKey:
        return AppKey(host=self.host, app=self.app)

    def __str__(self) -> str:
        return f"installation {self.installation} of App {self.app} on {self.host}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Where runners are registered: an organisation, or one repository (I18).

    `owner` is the login the repository's owner has *now*; after a rename GitHub answers 404 or a
    redirect, and the installation has to be read again.
    """

    host: GitHubHost
    owner: str
    repository: str | None = None

    def __post_init__(self) -> None:
        for name in (self.owner, self.repository):
            if name is not None and not _NAME.match(name):
                raise ValueError(f"{name!r} is not the name of a GitHub account or repository")

    @property
    def path(self) -> str:
        if self.repository is None:
            return f"/orgs/{self.owner}"
        return f"/repos/{self.owner}/{self.repository}"

    def __str__(self) -> str:
        return f"{self.owner}/{self.repository}" if self.repository else self.owner


def repository_scope(host: GitHubHost, full_name: str) -> Scope:
    """The scope of one repository, from `owner/name` as GitHub writes it."""
    owner, slash, name = full_name.partition("/")
    if not slash or "/" in name:
        raise ValueError(f"{full_name!r} is not a repository's full name, owner/name")
    return Scope(host=host, owner=owner, repository=name)


class AccountType(StrEnum):
    ORGANISATION = "Organization"
    USER = "User"
    ENTERPRISE = "Enterprise"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryRecord:
    host: GitHubHost
    id: GitHubRepositoryId
    full_name: str
    owner_id: GitHubAccountId
    owner_type: str
    private: bool
    archived: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerRecord:
    """A registered runner as GitHub sees it. `busy` lags by a minute and more (I65)."""

    host: GitHubHost
    id: GitHubRunnerId
    name: str
    status: str
    busy: bool
    labels: tuple[str, ...]
    group_id: RunnerGroupId | None = None

    @property
    def online(self) -> bool:
        """Anything but GitHub's plain "offline" counts as online: what is not understood is left
        alone."""
        return self.status != "offline"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerPage:
    """Some of a scope's runners. `next` is where the page after it begins, `None` at the end."""

    runners: tuple[RunnerRecord, ...]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MintedJit:
    """A runner that may now register itself, once. The configuration is a credential."""

    runner: RunnerRecord
    encoded_jit_config: str = field(repr=False)


#: `requested` and `pending` jobs are held back by a gate or a concurrency group, as `waiting` ones
#: are: they are not demand (I12).
_JOB_STATES: Final = {
    "requested": JobState.WAITING,
    "pending": JobState.WAITING,
    "waiting": JobState.WAITING,
    "queued": JobState.QUEUED,
    "in_progress": JobState.IN_PROGRESS,
    "completed": JobState.COMPLETED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A job as a look-up returns it. GitHub writes 0 for "no runner"; here that is `None`."""

    host: GitHubHost
    id: JobId
    run_id: RunId
    run_attempt: int
    name: str
    workflow_name: str | None
    status: str
    conclusion: str | None
    labels: tuple[str, ...]
    runner_id: GitHubRunnerId | None
    runner_name: str | None
    runner_group_id: RunnerGroupId | None
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None

    @property
    def state(self) -> JobState | None:
        """`None` for an unknown status: that is no evidence, and the job stays as it is (I29)."""
        return _JOB_STATES.get(self.status)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    host: GitHubHost
    id: RunId
    run_attempt: int
    name: str | None
    event: str
    status: str | None
    conclusion: str | None
    repository_id: GitHubRepositoryId
    head_repository_id: GitHubRepositoryId | None
    created_at: datetime

    @property
    def fork(self) -> bool:
        """Whether the code may come from another repository. After a head repository is deleted that
        cannot be known, and any doubt means untrusted (I62)."""
        return self.head_repository_id != self.repository_id


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveRuns:
    """A repository's queued and in_progress runs with their jobs.

    `complete` is false when there were more than were read: a job's absence then proves nothing
    (I29).
    """

    runs: tuple[tuple[RunRecord, tuple[JobRecord, ...]], ...]
    complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallationRecord:
    host: GitHubHost
    id: InstallationId
    app_id: GitHubAppId
    account_id: GitHubAccountId
    account_login: str
    account_type: str
    suspended_at: datetime | None
    all_repositories: bool
    permissions: tuple[tuple[str, str], ...]
    events: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerGroup:
    host: GitHubHost
    id: RunnerGroupId
    name: str
    default: bool
    visibility: str
    allows_public_repositories: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRecord:
    """One attempt to deliver a webhook. Attempts of the same event share their GUID (I7)."""

    host: GitHubHost
    id: DeliveryId
    guid: str
    delivered_at: datetime
    redelivery: bool
    status: str
    status_code: int
    event: str
    action: str | None
    installation_id: InstallationId | None
    repository_id: GitHubRepositoryId | None

    @property
    def succeeded(self) -> bool:
        return 200 <= self.status_code < 300


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryPage:
    """Newest first. `next` is where the page after it begins, `None` at the end (I8)."""

    deliveries: tuple[DeliveryRecord, ...]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """GitHub does not know it, and the same token could read the same scope at that moment (I66). A 404
    without that proof is raised as a failure, and proves nothing.
    """

    proof: str


class Removal(StrEnum):
    """What became of a runner that was to be deleted."""

    REMOVED = "removed"
    ABSENT = "absent"  # 404, proven as in `Absent`
    BUSY = "busy"  # it executes a job; leave it (I35)


class ConflictAction(StrEnum):
    RENAME = "mint under a fresh name"
    DELETE_AND_RENAME = "delete the record, then mint under a fresh name"


@dataclass(frozen=True, slots=True, kw_only=True)
class NameConflict:
    """What to do after GitHub said that a runner's name exists (I19)."""

    action: ConflictAction
    record: RunnerRecord | None
    why: str


def decide_conflict(found: RunnerRecord | Absent) -> NameConflict:
    """A name that exists already is nearly always our own earlier mint, whose answer was lost. Its JIT
    was lost with the answer, so the record can only be removed. The name is never tried again, in any
    case, so there is nothing to loop on (I19, runs-on#546)."""
    if isinstance(found, Absent):
        return NameConflict(
            action=ConflictAction.RENAME,
            record=None,
            why=f"the name is taken where this App cannot see it ({found.proof})",
        )
    if found.busy or found.online:
        return NameConflict(
            action=ConflictAction.RENAME,
            record=found,
            why=f"a runner named {found.name} is in use; it is left alone",
        )
    return NameConflict(
        action=ConflictAction.DELETE_AND_RENAME,
        record=found,
        why=f"runner {found.id} ({found.name}) was registered by a mint whose answer was lost",
    )
