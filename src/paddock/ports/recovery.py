"""What the recovery rules are given as evidence, and the steps that only recovery takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from paddock.domain.github.debts import MintOutcome
from paddock.domain.ids import AccountId, AppId, HostId, JobId, KeyId, RepositoryId, RunnerId
from paddock.domain.names import PodName
from paddock.domain.pods.pod import Pod
from paddock.domain.recovery.records import (
    Balance,
    DoubtTerms,
    FoundRecord,
    JobInDoubt,
    JobWords,
    KeyPlace,
    PlacedJob,
    RunnerScope,
    SupplyGrace,
)
from paddock.domain.runners.runner import Conflict, Runner
from paddock.domain.states import JobState
from paddock.ports.accounts import ActiveInstallationStore
from paddock.ports.endings import ConclusionStore, PostMortemStore, VerdictStore, WantedLogStore
from paddock.ports.jobs import ActionStore, AskedJobStore, JobUpdateStore
from paddock.ports.pools import PoolListStore
from paddock.ports.runners import RunnerStepStore


class PodViewStore(Protocol):
    """Which Pods the complete reads of the fleet showed."""

    async def note_pods(self, pods: Sequence[Pod], *, read_at: datetime) -> None:
        """Note of each runner whether a complete read of the fleet, begun at `read_at`, shows its Pod;
        absences are counted (I29). Only for reads that may prove absence."""
        ...

    async def note_versions(self, pods: Sequence[Pod]) -> None:
        """Note the runner versions that Pods report. One that is not noted because its row is being
        written is noted by the next complete read."""
        ...

    async def expected_pods(self) -> int:
        """How many live runners have had a Pod."""
        ...


class PlaceStore(Protocol):
    """Where GitHub is asked about a key's runners and about jobs."""

    async def key_places(self, keys: Sequence[KeyId]) -> Mapping[KeyId, KeyPlace]:
        """Those of these keys that an active installation serves."""
        ...

    async def placed_jobs(
        self, host: HostId, jobs: Sequence[JobId], *, apps: Sequence[AppId]
    ) -> Mapping[JobId, PlacedJob]:
        """Those of these jobs that are known and that one of the Apps can ask about."""
        ...


class EvidenceStore(PlaceStore, PoolListStore, Protocol):
    """For the gatherer of evidence."""

    async def live_runners(self) -> list[Runner]: ...

    async def live_runners_of(self, pods: Sequence[PodName]) -> list[Runner]:
        """Those of Pods of these names."""
        ...

    async def balances(self, *, recent: datetime) -> Mapping[KeyId, Balance]:
        """Supply and demand of every key with live runners; suspects among those acknowledged since
        `recent`."""
        ...

    async def job_words(self) -> Mapping[RunnerId, JobWords]:
        """Of live runners that have a key."""
        ...

    async def removed_accounts(self) -> Mapping[AccountId, int]:
        """Accounts of which every installation is removed, and how often that was confirmed."""
        ...

    async def trust_runner(self, runner: RunnerId, *, generation: int) -> Runner | Conflict:
        """GitHub sees the runner after all: it is no longer suspect."""
        ...


class RetirementStore(PlaceStore, RunnerStepStore, Protocol):
    """The steps that lead to the deletion of a live Pod."""

    async def note_deregistered(
        self, runner: RunnerId, *, generation: int, settled: MintOutcome | None
    ) -> Runner | Conflict:
        """GitHub has no record of this retiring runner any more. `settled` says what became of its
        name; `None` leaves it a debt."""
        ...

    async def note_proved(self, runner: RunnerId, *, generation: int) -> Runner | Conflict:
        """It showed no job after its deregistration: the first of two proofs (I65)."""
        ...

    async def note_deletion(
        self, runner: RunnerId, *, generation: int, started: bool | None
    ) -> Runner | Conflict:
        """The fleet is about to be asked to delete its Pod."""
        ...

    async def identify_runner(
        self, runner: RunnerId, *, generation: int, record: FoundRecord, delivery: UUID
    ) -> Runner | Conflict:
        """A record was found at GitHub for a retiring runner without a name: its row is older than its
        Pod (I70)."""
        ...


class RunnerRecoveryStore(RunnerStepStore, JobUpdateStore, ActionStore, Protocol):
    """For what recovery does about runners."""

    async def suspect_runner(self, runner: RunnerId, *, generation: int) -> Runner | Conflict:
        """It no longer counts as supply: one replacement is given out."""
        ...


class JobRecoveryStore(PlaceStore, VerdictStore, JobUpdateStore, AskedJobStore, Protocol):
    """For what recovery does about jobs."""

    async def jobs_in_doubt(
        self,
        since: DoubtTerms,
        *,
        also: Sequence[tuple[HostId, JobId]] = (),
        unreadable: Sequence[RepositoryId] = (),
        limit: int,
    ) -> list[JobInDoubt]:
        """Jobs that GitHub should be asked about, and those of `also`; none of repositories that are
        `unreadable`.
        Of every account in turn the one least recently asked about (I26)."""
        ...

    async def oldest_queued(
        self, keys: Sequence[KeyId], *, limit: int
    ) -> Mapping[KeyId, Sequence[tuple[HostId, JobId]]]: ...

    async def supply_graces(self) -> list[SupplyGrace]: ...

    async def end_supply_grace(self, runner: RunnerId) -> None: ...

    async def end_old_supply_graces(self) -> int: ...

    async def explain_job(self, host: HostId, job: JobId, *, waits_because: str) -> None: ...

    async def demote_job(self, host: HostId, job: JobId, *, why: str) -> bool:
        """GitHub says the job is queued again and its runner is gone. False if it is not
        in_progress here; the database refuses it while its runner lives."""
        ...

    async def expire_job(self, host: HostId, job: JobId, *, state: JobState, why: str) -> bool:
        """Complete as `stale` a job that GitHub no longer knows, or lets wait no longer. False if the
        job is no longer in this state, or is on a live runner of ours."""
        ...


class RunnerSearchStore(ActiveInstallationStore, Protocol):
    """The places at GitHub where our runners may be registered."""

    async def runner_scopes(self) -> list[RunnerScope]:
        """Every place where runners of ours may be registered: each organisation, and each repository
        that has a key."""
        ...


class AdoptionStore(PoolListStore, WantedLogStore, Protocol):
    """Rows for Pods that have none."""

    async def runners_of_pods(self, names: Sequence[PodName]) -> Mapping[PodName, Runner]:
        """The runners of Pods with these names, including runners that are gone."""
        ...

    async def adopt_pod(
        self,
        pod: Pod,
        *,
        runner: RunnerId,
        delivery: UUID,
        record: FoundRecord | None,
        why: str,
    ) -> Runner | None:
        """Make a row for a Pod that has none: retiring at once, with GitHub's record if one was found.
        `None` if there is a row by now, or if no such pool ever existed."""
        ...


class RecoveryStore(
    JobRecoveryStore,
    RunnerSearchStore,
    PostMortemStore,
    RunnerRecoveryStore,
    EvidenceStore,
    AdoptionStore,
    ConclusionStore,
    RetirementStore,
    Protocol,
):
    """All of it, for the loop that creates the parts."""
