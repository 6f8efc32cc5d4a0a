"""The only ways out of the core.

Services are written against these protocols and nothing else, so that the simulator can run the
product's own code with virtual time, seeded ids and faults at every call. Each `Store` method is one
transaction (see `paddock.store`); everything a service does between two port calls is pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol
from uuid import UUID

from paddock.domain.github import (
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
    RunnerRecord,
    RunRecord,
    Scope,
)
from paddock.domain.ids import GitHubRunnerId, JobId


class Clock(Protocol):
    """Time. Nothing else in paddock may ask the system, or the database, what time it is."""

    def now(self) -> datetime:
        """The time of day, aware, in UTC: what is stored and shown."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back: what durations and deadlines within a process are made of."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class Ids(Protocol):
    """Randomness. Seeded in the simulator, the operating system's in production."""

    def uuid(self) -> UUID:
        """A fresh id; later ids sort after earlier ones, so that indexes grow at one end."""
        ...

    def suffix(self, length: int) -> str:
        """Lower-case letters and digits that may end a Pod's name."""
        ...

    def secret(self) -> str:
        """Unguessable, at least 256 bits, printable."""
        ...


class Topic(StrEnum):
    """What a sleeping loop can be woken for. Losing a wake-up costs time, never correctness: every
    loop also looks by itself after a while (I28)."""

    DELIVERIES = "deliveries"  # a webhook was stored
    DEMAND = "demand"  # a job was queued, or capacity came free
    RUNNERS = "runners"  # a runner changed state
    POOLS = "pools"  # a pool, an account or a limit changed


class Subscription(Protocol):
    async def wait(self, timeout: float) -> frozenset[Topic]:
        """The topics woken since the last call, at the latest after `timeout` seconds (then none).
        Wake-ups that arrive between two calls are kept, and many are one."""
        ...


class Wakeups(Protocol):
    def subscribe(self, *topics: Topic) -> Subscription: ...


class GitHub(Protocol):
    """GitHub, asked as an App or as one of its installations.

    What cannot be answered is raised as `GitHubError`, whose `failure` says who backs off and for
    how long; an answer is never made up, and never remembered (I9). "Not there" is an answer only
    as `Absent` or `Removal.ABSENT`: a 404 together with a successful control read of the same scope
    by the same token in the same call (I66). Scope and installation must be of one host (I71).
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

    async def control_read(self, who: InstallationKey, scope: Scope) -> None:
        """Return if the scope's runners can be read now; raise if not. One request."""
        ...

    async def list_runner_groups(self, who: InstallationKey, scope: Scope) -> Sequence[RunnerGroup]:
        """The groups of an organisation. (A repository's runners are all in its default group.)"""
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
