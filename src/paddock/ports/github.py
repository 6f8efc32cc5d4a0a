"""GitHub, as the core asks it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from paddock.domain.github.objects import (
    Absent,
    ActiveRuns,
    AppKey,
    DeliveryId,
    DeliveryPage,
    InstallationId,
    InstallationKey,
    InstallationRecord,
    JobRecord,
    MintedJit,
    NameConflict,
    Removal,
    RepositoryRecord,
    RunId,
    RunnerGroup,
    RunnerGroupId,
    RunnerPage,
    RunnerRecord,
    RunRecord,
    Scope,
)
from paddock.domain.ids import GitHubRunnerId, JobId
from paddock.domain.runners.versions import RunnerVersion, VersionSchedule


class GitHub(Protocol):
    """GitHub, asked as an App or as one of its installations.

    Without an answer a `GitHubError` is raised, whose `failure` says which scope backs off and for how
    long. An answer is never made up, and never cached (I9). "Not there" is an answer only as `Absent`
    or `Removal.ABSENT`: a 404 together with a successful control read of the same scope by the same
    token in the same call (I66). Scope and installation must be of one host (I71).
    """

    async def mint_jit(
        self,
        who: InstallationKey,
        scope: Scope,
        *,
        name: str,
        runner_group_id: RunnerGroupId,
        labels: Sequence[str],
        work_folder: str = "_work",
    ) -> MintedJit:
        """Register a runner that may run one job. Sent once, never repeated: if the answer is lost
        the failure is `unsettled` and the name stays a debt (I41). A name that exists is a failure
        too; ask `resolve_name_conflict` once, and never use the name again (I19)."""
        ...

    async def resolve_name_conflict(
        self, who: InstallationKey, scope: Scope, *, name: str
    ) -> NameConflict:
        """Look at the runner that has the name, and say what to do. Deletes nothing."""
        ...

    async def delete_runner(
        self, who: InstallationKey, scope: Scope, runner: GitHubRunnerId
    ) -> Removal:
        """Deregister. `BUSY` is GitHub's word and final for this round (I35); `REMOVED` is strong
        evidence that it had no job, not proof (I65)."""
        ...

    async def find_runner(
        self, who: InstallationKey, scope: Scope, *, name: str
    ) -> RunnerRecord | Absent: ...

    async def get_runner(
        self, who: InstallationKey, scope: Scope, runner: GitHubRunnerId
    ) -> RunnerRecord | Absent: ...

    async def list_runners(
        self, who: InstallationKey, scope: Scope, *, page: str | None = None
    ) -> RunnerPage | Absent:
        """One page of a scope's runners. `Absent` only for a repository: GitHub does not know it, or
        the installation may not use it, and the installation itself can be read (I66)."""
        ...

    async def control_read(self, who: InstallationKey, scope: Scope) -> None:
        """Return if the scope's runners can be read now; raise if not. One request."""
        ...

    async def list_runner_groups(self, who: InstallationKey, scope: Scope) -> Sequence[RunnerGroup]:
        """The groups of an organisation. (A repository's runners are all in its default group.)"""
        ...

    async def get_version_schedule(
        self, who: InstallationKey, scope: Scope, version: RunnerVersion
    ) -> VersionSchedule | Absent:
        """Until when the scope's runners of that version may register and get jobs. `Absent`: GitHub
        does not know the version, or has no such dates (Enterprise Server, and accounts without
        Enterprise Cloud as far as its description tells). That is no evidence."""
        ...

    async def get_job(
        self, who: InstallationKey, repository: Scope, job: JobId
    ) -> JobRecord | Absent: ...

    async def get_run(
        self, who: InstallationKey, repository: Scope, run: RunId
    ) -> RunRecord | Absent: ...

    async def list_active_runs(self, who: InstallationKey, repository: Scope) -> ActiveRuns:
        """Queued and in_progress runs with their jobs: a run with one started job is in_progress
        while its others still wait. Costs two requests and one for each run."""
        ...

    async def list_repositories(self, who: InstallationKey) -> Sequence[RepositoryRecord]: ...

    async def list_installations(self, app: AppKey) -> Sequence[InstallationRecord]: ...

    async def get_installation(
        self, app: AppKey, installation: InstallationId
    ) -> InstallationRecord | Absent: ...

    async def list_deliveries(self, app: AppKey, *, cursor: str | None = None) -> DeliveryPage:
        """One page of webhook deliveries, newest first, all attempts (I7)."""
        ...

    async def redeliver(self, app: AppKey, delivery: DeliveryId) -> None:
        """Have GitHub send a delivery again, under the same GUID."""
        ...
