"""GitHub's JSON. Only the fields that become records are read.

Other fields that GitHub adds or drops have no effect. An answer that lacks one of these fields is
rejected.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, TypeVar

import msgspec

from paddock.domain.github.objects import (
    DeliveryId,
    DeliveryRecord,
    GitHubAccountId,
    GitHubAppId,
    GitHubHost,
    GitHubRepositoryId,
    InstallationId,
    InstallationRecord,
    JobRecord,
    MintedJit,
    RepositoryRecord,
    RunId,
    RunnerGroup,
    RunnerGroupId,
    RunnerRecord,
    RunRecord,
)
from paddock.domain.ids import GitHubRunnerId, JobId
from paddock.domain.runners.versions import RunnerVersion, VersionSchedule
from paddock.github.auth import Token
from paddock.github.connection import BadAnswer

T = TypeVar("T")
Time = Annotated[datetime, msgspec.Meta(tz=True)]
Filled = Annotated[str, msgspec.Meta(min_length=1)]


def decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        # msgspec names the field and the type it expected, never the value.
        raise BadAnswer(str(error)) from None


class Label(msgspec.Struct):
    name: str


class Runner(msgspec.Struct):
    id: int
    name: str
    status: str
    busy: bool
    labels: list[Label]
    runner_group_id: int | None = None

    def record(self, host: GitHubHost) -> RunnerRecord:
        return RunnerRecord(
            host=host,
            id=GitHubRunnerId(self.id),
            name=self.name,
            status=self.status,
            busy=self.busy,
            labels=tuple(label.name for label in self.labels),
            group_id=RunnerGroupId(self.runner_group_id) if self.runner_group_id else None,
        )


class RunnerPage(msgspec.Struct):
    runners: list[Runner]


class Minted(msgspec.Struct):
    runner: Runner
    encoded_jit_config: Filled

    def __repr__(self) -> str:
        return f"Minted({self.runner!r})"

    def record(self, host: GitHubHost) -> MintedJit:
        return MintedJit(
            runner=self.runner.record(host), encoded_jit_config=self.encoded_jit_config
        )


class Job(msgspec.Struct):
    id: int
    run_id: int
    name: str
    status: str
    created_at: Time
    labels: list[str]
    run_attempt: int = 1
    workflow_name: str | None = None
    conclusion: str | None = None
    runner_id: int | None = None
    runner_name: str | None = None
    runner_group_id: int | None = None
    started_at: Time | None = None
    completed_at: Time | None = None

    def record(self, host: GitHubHost) -> JobRecord:
        return JobRecord(
            host=host,
            id=JobId(self.id),
            run_id=RunId(self.run_id),
            run_attempt=self.run_attempt,
            name=self.name,
            workflow_name=self.workflow_name,
            status=self.status,
            conclusion=self.conclusion,
            labels=tuple(self.labels),
            runner_id=GitHubRunnerId(self.runner_id) if self.runner_id else None,
            runner_name=self.runner_name or None,
            runner_group_id=RunnerGroupId(self.runner_group_id) if self.runner_group_id else None,
            created_at=self.created_at,
            started_at=self.started_at,
            completed_at=self.completed_at,
        )


class Jobs(msgspec.Struct):
    jobs: list[Job]


class RepositoryReference(msgspec.Struct):
    id: int


class Run(msgspec.Struct):
    id: int
    event: str
    created_at: Time
    repository: RepositoryReference
    head_repository: RepositoryReference | None = None
    status: str | None = None
    conclusion: str | None = None
    name: str | None = None
    run_attempt: int = 1

    def record(self, host: GitHubHost) -> RunRecord:
        head = self.head_repository
        return RunRecord(
            host=host,
            id=RunId(self.id),
            run_attempt=self.run_attempt,
            name=self.name,
            event=self.event,
            status=self.status,
            conclusion=self.conclusion,
            repository_id=GitHubRepositoryId(self.repository.id),
            head_repository_id=GitHubRepositoryId(head.id) if head else None,
            created_at=self.created_at,
        )


class Runs(msgspec.Struct):
    workflow_runs: list[Run]


class Account(msgspec.Struct):
    """A user or organisation has a login, an enterprise only a slug."""

    login: str | None = None
    slug: str | None = None


class Installation(msgspec.Struct):
    id: int
    app_id: int
    account: Account | None
    target_id: int
    target_type: str
    repository_selection: str
    permissions: dict[str, str]
    events: list[str]
    suspended_at: Time | None = None

    def record(self, host: GitHubHost) -> InstallationRecord:
        account = self.account or Account()
        return InstallationRecord(
            host=host,
            id=InstallationId(self.id),
            app_id=GitHubAppId(self.app_id),
            account_id=GitHubAccountId(self.target_id),
            account_login=account.login or account.slug or "",
            account_type=self.target_type,
            suspended_at=self.suspended_at,
            all_repositories=self.repository_selection == "all",
            permissions=tuple(sorted(self.permissions.items())),
            events=tuple(self.events),
        )


class Owner(msgspec.Struct):
    id: int
    type: str


class Repository(msgspec.Struct):
    id: int
    full_name: str
    owner: Owner
    private: bool
    archived: bool = False

    def record(self, host: GitHubHost) -> RepositoryRecord:
        return RepositoryRecord(
            host=host,
            id=GitHubRepositoryId(self.id),
            full_name=self.full_name,
            owner_id=GitHubAccountId(self.owner.id),
            owner_type=self.owner.type,
            private=self.private,
            archived=self.archived,
        )


class Repositories(msgspec.Struct):
    repositories: list[Repository]


class Group(msgspec.Struct):
    id: int
    name: str
    default: bool
    visibility: str
    allows_public_repositories: bool = False

    def record(self, host: GitHubHost) -> RunnerGroup:
        return RunnerGroup(
            host=host,
            id=RunnerGroupId(self.id),
            name=self.name,
            default=self.default,
            visibility=self.visibility,
            allows_public_repositories=self.allows_public_repositories,
        )


class Groups(msgspec.Struct):
    runner_groups: list[Group]


class VersionDates(msgspec.Struct):
    runner_version: str
    registration_deprecates_at: Time | None = None
    runtime_deprecates_at: Time | None = None

    def schedule(self, version: RunnerVersion) -> VersionSchedule:
        return VersionSchedule(
            version=version,
            registration_ends_at=self.registration_deprecates_at,
            runtime_ends_at=self.runtime_deprecates_at,
        )


class Delivery(msgspec.Struct):
    id: int
    guid: str
    delivered_at: Time
    redelivery: bool
    status: str
    status_code: int
    event: str
    action: str | None = None
    installation_id: int | None = None
    repository_id: int | None = None

    def record(self, host: GitHubHost) -> DeliveryRecord:
        return DeliveryRecord(
            host=host,
            id=DeliveryId(self.id),
            guid=self.guid,
            delivered_at=self.delivered_at,
            redelivery=self.redelivery,
            status=self.status,
            status_code=self.status_code,
            event=self.event,
            action=self.action,
            installation_id=InstallationId(self.installation_id) if self.installation_id else None,
            repository_id=GitHubRepositoryId(self.repository_id) if self.repository_id else None,
        )


class AccessToken(msgspec.Struct):
    token: Filled
    expires_at: Time

    def __repr__(self) -> str:
        return f"AccessToken(until {self.expires_at})"

    def record(self) -> Token:
        return Token(value=self.token, expires_at=self.expires_at)
