"""The one store, as the core uses it.

Each method is one transaction: what it writes, and the events that tell of it, commit together or
not at all (I14). Errors are those of `paddock.store.errors`; nothing is retried behind the caller's
back that may have been committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol, Self
from uuid import UUID

from paddock.domain.accounts import AccountSummary, InstallationFacts, MintBudget, ServedAccount
from paddock.domain.backoffs import BackOffTerms, Subject
from paddock.domain.comparison import ActiveRepository, OpenJob
from paddock.domain.debts import Debt
from paddock.domain.deliveries import (
    Delivery,
    DeliveryNumber,
    DeliveryState,
    DeliverySummary,
    NewDelivery,
    Postponement,
    Settlement,
)
from paddock.domain.endings import Ending
from paddock.domain.fingerprints import Fingerprint
from paddock.domain.handover import Heard
from paddock.domain.ids import (
    AccountId,
    AppId,
    GitHubRunnerId,
    HostId,
    JobId,
    PoolId,
    RepositoryId,
    RunnerId,
)
from paddock.domain.intake import RefusedJob, Surroundings
from paddock.domain.jobs import JobReport, RepositoryFacts, Unplaced
from paddock.domain.limits import UNLIMITED, Limits
from paddock.domain.pools import PoolFacts, PoolSummary
from paddock.domain.retention import History
from paddock.domain.runners import Claim, Conflict, Match, Runner, WaitingPod
from paddock.domain.states import JobState, RunnerState
from paddock.domain.summary import Summary
from paddock.domain.vitals import Sample


class Store(Protocol):
    actor: str

    def acting_as(self, actor: str) -> Self:
        """The same store, its events signed by somebody else."""
        ...

    # Hosts, Apps, accounts and their limits.
    async def ensure_host(self, name: str, *, api_url: str) -> HostId: ...

    async def ensure_app(
        self, host: HostId, github_id: int, *, slug: str | None = None, mints: MintBudget
    ) -> AppId: ...

    async def record_installation(
        self, facts: InstallationFacts, *, limits: Limits = UNLIMITED, weight: int = 1
    ) -> AccountId:
        """Limits and weight are those of a new account; a known one keeps its own."""
        ...

    async def remove_installation(self, host: HostId, installation: int) -> None: ...

    async def active_installations(self, app: AppId) -> list[int]: ...

    async def record_repositories(
        self, host: HostId, account: AccountId, repositories: Sequence[RepositoryFacts]
    ) -> None:
        """The complete list of what the account's installation may use."""
        ...

    async def list_accounts(self) -> list[AccountSummary]: ...

    async def find_repository(
        self, account: AccountId, full_name: str
    ) -> tuple[RepositoryId, Limits] | None: ...

    async def served_accounts(self, app: AppId) -> list[ServedAccount]: ...

    async def set_account_limits(self, account: AccountId, limits: Limits) -> bool: ...

    async def set_repository_limits(self, repository: RepositoryId, limits: Limits) -> bool:
        """Jobs that wait move to the scope at which the limit is exact; runners keep the one they
        were claimed for."""
        ...

    async def set_weight(self, account: AccountId, weight: int) -> bool: ...

    async def pause_account(self, account: AccountId, *, why: str) -> bool: ...

    async def resume_account(self, account: AccountId, *, why: str) -> bool: ...

    # Pools.
    async def apply_pool(self, pool: PoolFacts) -> PoolId: ...

    async def apply_pools(self, pools: Sequence[PoolFacts]) -> list[PoolId]:
        """All of them, or none."""
        ...

    async def list_pools(self) -> list[PoolSummary]: ...

    async def find_pool(self, name: str) -> PoolId | None: ...

    async def wanted_groups(self) -> list[tuple[PoolId, str]]:
        """Active pools and the runner groups they name."""
        ...

    async def set_groups(self, account: AccountId, groups: Mapping[PoolId, int]) -> None:
        """Under which id each pool's runner group is known in the account; those not given are not
        there (any more), and their pools take none of its new jobs."""
        ...

    async def pause_pool(self, pool: PoolId, *, why: str) -> bool: ...

    async def resume_pool(self, pool: PoolId, *, why: str) -> bool: ...

    # Jobs.
    async def apply_jobs(self, reports: Iterable[JobReport], *, why: str) -> list[Unplaced]: ...

    async def demote_job(self, host: HostId, job: JobId, *, why: str) -> bool:
        """GitHub says the job is queued again and its runner is gone. False if it is not
        in_progress here; the database refuses it while its runner lives."""
        ...

    async def abandon_jobs(self, host: str, *, why: str) -> int:
        """All of a host's jobs that have not ended are completed as stale: it has forgotten them.
        How many."""
        ...

    # Deliveries.
    async def store_deliveries(self, deliveries: Sequence[NewDelivery]) -> frozenset[str]:
        """The GUIDs that are new. When this returns, all of them are durable (I1). It may be
        repeated, also after `OutcomeUnknown`."""
        ...

    async def take_deliveries(self, limit: int) -> list[Delivery]:
        """The oldest that wait, for this replica alone for some seconds: replicas work side by
        side, and what one dies over another applies."""
        ...

    async def apply_deliveries(
        self,
        *,
        reports: Sequence[JobReport],
        settled: Sequence[Settlement],
        postponed: Sequence[Postponement],
    ) -> list[Unplaced]:
        """The jobs, the runners they move and the deliveries that told of them, in one
        transaction. Applying a delivery twice is harmless (the merge is a join), losing one is not."""
        ...

    async def hurry_deliveries(self, host: HostId, installation: int) -> None:
        """What waited for this installation to be read waits no longer."""
        ...

    async def retry_deliveries(self, numbers: Sequence[DeliveryNumber] | None) -> int:
        """Dead deliveries are pending again: these, or all of them. Returns how many."""
        ...

    async def known_guids(self, host: HostId, guids: Sequence[str]) -> frozenset[str]: ...

    async def list_deliveries(
        self, *, state: DeliveryState | None, limit: int
    ) -> list[DeliverySummary]: ...

    async def count_deliveries(self) -> Mapping[DeliveryState, int]: ...

    async def hook_cursor(self, app: AppId) -> datetime:
        """Every delivery of the App made before this has arrived or was given up. An App that is
        new here starts now."""
        ...

    async def move_hook_cursor(self, app: AppId, until: datetime) -> None: ...

    # What incoming jobs are judged by.
    async def surroundings(self, installations: Iterable[tuple[HostId, int]]) -> Surroundings: ...

    async def our_runners(
        self, named: Sequence[tuple[AccountId, str]]
    ) -> frozenset[tuple[AccountId, str]]:
        """Which of these runner names are ours, each within its own tenant (I5)."""
        ...

    async def refused_jobs(self, limit: int) -> list[RefusedJob]: ...

    async def adopt_jobs(self, reports: Sequence[JobReport]) -> int:
        """Refused jobs that a pool takes now. Returns how many became demand."""
        ...

    # Comparison with GitHub.
    async def active_repositories(
        self, apps: Sequence[AppId], *, since: datetime
    ) -> list[ActiveRepository]:
        """Those with a job since then, or with one that has not ended; only what one of these Apps
        can read."""
        ...

    async def open_jobs(self, repository: RepositoryId) -> list[OpenJob]: ...

    async def job_states(self, host: HostId, jobs: Sequence[JobId]) -> Mapping[JobId, JobState]:
        """Those of these jobs that are known."""
        ...

    async def note_comparison(self, repository: RepositoryId) -> None: ...

    # The steps of a runner's life: each returns the runner as it is now, or what was found instead.
    async def runner(self, runner: RunnerId) -> Runner | None: ...

    async def live_runners(self) -> list[Runner]: ...

    async def plan_runners(
        self, pool: PoolId, pods: Sequence[tuple[RunnerId, str]], *, why: str
    ) -> list[Runner]:
        """Rows for Pods that are about to be created, under the names they will have."""
        ...

    async def hear_runner(
        self, runner: RunnerId, *, generation: int, pod_uid: str
    ) -> Runner | Conflict: ...

    async def arm_runner(
        self,
        runner: RunnerId,
        *,
        generation: int,
        github_id: GitHubRunnerId,
        delivery: UUID,
        sealed_jit: bytes,
        sealing_key: str,
    ) -> Runner | Conflict: ...

    async def release_runner(
        self, runner: RunnerId, *, generation: int, why: str, no_record_because: str | None
    ) -> Runner | Conflict:
        """Undo a claim whose mint failed. `no_record_because` says how it is known that GitHub made
        no runner record under the chosen name; `None` leaves the name a debt."""
        ...

    async def acknowledge_runner(
        self, runner: RunnerId, *, generation: int, delivery: UUID
    ) -> Runner | Conflict: ...

    async def occupy_runner(
        self,
        runner: RunnerId,
        *,
        generation: int,
        job: JobId,
        why: str,
        evidence: str | None = None,
    ) -> Runner | Conflict: ...

    async def finish_runner(
        self,
        runner: RunnerId,
        *,
        generation: int,
        job: JobId,
        why: str,
        evidence: str | None = None,
    ) -> Runner | Conflict: ...

    async def fence_runner(
        self,
        runner: RunnerId,
        *,
        generation: int,
        state: RunnerState,
        why: str,
        evidence: str | None = None,
    ) -> Runner | Conflict: ...

    async def conclude_runner(
        self,
        runner: RunnerId,
        *,
        generation: int,
        state: RunnerState,
        ending: Ending,
        why: str,
        ended_at: datetime,
        fingerprint: Fingerprint | None = None,
        log_tail: str | None = None,
        evidence: str | None = None,
    ) -> Runner | Conflict:
        """The end of a runner and its verdict; its capacity is free when this returns."""
        ...

    # Matching.
    async def match(self, pods: Sequence[WaitingPod]) -> Match:
        """Claim as many of the waiting Pods as demand, limits and budgets allow, fairly."""
        ...

    async def take_over_claim(
        self, runner: RunnerId, *, generation: int, name: str, mint_deadline: datetime
    ) -> Claim | Conflict:
        """The claim goes on under a fresh name, if its mint's deadline has passed; the old name
        stays a debt."""
        ...

    # Handing over, and what is owed at GitHub.
    async def hear_pod(self, pod_name: str, *, pod_uid: str) -> Heard | None:
        """A Pod's poller asks; the first time makes it idle. `None`: no row knows this Pod."""
        ...

    async def acknowledge_delivery(
        self, pod_name: str, *, pod_uid: str, delivery: UUID
    ) -> Runner | RunnerState | None:
        """armed → running, and the JIT is erased. The runner; or the state it is in, if the
        delivery was this Pod's and is past that; `None` if it never was this Pod's."""
        ...

    async def back_off(self, subject: Subject, terms: BackOffTerms) -> datetime:
        """One failure more in a row; until when nothing is claimed for the subject."""
        ...

    async def recover_from_backoffs(self, subjects: Sequence[Subject]) -> None: ...

    async def debts(self, *, before: datetime, limit: int) -> list[Debt]:
        """Names chosen before then that are no runner's any more, and unsettled."""
        ...

    async def count_debts(self) -> int: ...

    async def settle_mint(self, name: str, *, outcome: str) -> None: ...

    async def postpone_debt(self, name: str, *, until: datetime) -> None: ...

    # Vitals.
    async def add_vitals(
        self,
        pod_name: str,
        *,
        pod_uid: str,
        samples: Sequence[Sample],
        job_started_at: datetime | None,
    ) -> bool:
        """Extend the series of the Pod's runner; false if it has none."""
        ...

    async def vitals(self, runner: RunnerId) -> list[Sample]: ...

    # What there is, in numbers.
    async def summary(self, *, since: datetime) -> Summary: ...

    # Forgetting.
    async def forget(self, history: History, *, before: datetime) -> int:
        """At most `BATCH` of the oldest that are over; how many rows went. If it is `BATCH`, there
        are more. What lives is never forgotten."""
        ...
