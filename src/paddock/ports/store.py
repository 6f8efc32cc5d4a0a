"""The one store, as the core uses it.

Each method is one transaction: what it writes, and the events that tell of it, commit together or not
at all (I14). Errors are those of `paddock.store.errors`; no method repeats a transaction that may have
been committed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol, Self
from uuid import UUID

from paddock.domain.accounts import AccountSummary, InstallationFacts, MintBudget, ServedAccount
from paddock.domain.backoffs import BackOffTerms, PausedScope, Subject, UnassignedTerms
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
from paddock.domain.endings import Ending, Retired
from paddock.domain.handover import Heard
from paddock.domain.ids import (
    AccountId,
    AppId,
    GitHubRunnerId,
    HostId,
    JobId,
    KeyId,
    PoolId,
    RepositoryId,
    RunnerId,
)
from paddock.domain.intake import IntakeContext, RefusedJob
from paddock.domain.jobs import JobReport, RepositoryFacts, Unplaced
from paddock.domain.levels import HostFault, Levels, Steps
from paddock.domain.limits import UNLIMITED, Limits
from paddock.domain.names import PodName
from paddock.domain.pauses import Pause
from paddock.domain.pods import Pod
from paddock.domain.pools import PoolFacts, PoolSummary
from paddock.domain.recovery.evidence import JobWord
from paddock.domain.recovery.records import (
    ActionTaken,
    Balance,
    DoubtTerms,
    FoundRecord,
    JobInDoubt,
    JobWords,
    KeyPlace,
    LateNews,
    OpenVerdict,
    PlacedJob,
    RunnerEnd,
    RunnerScope,
    SupplyGrace,
    WantedLog,
)
from paddock.domain.retention import History
from paddock.domain.runners import Claim, Conflict, Match, Runner, RunnerSummary, WaitingPod
from paddock.domain.sizing import Decision
from paddock.domain.states import JobState, RunnerState
from paddock.domain.steering import StartFailures
from paddock.domain.summary import Summary
from paddock.domain.surveys import PoolExplanation, Survey
from paddock.domain.trust import Trust, TrustQuestion
from paddock.domain.vitals import Sample, VitalsOutcome, VitalsReport


class Store(Protocol):
    actor: str

    def acting_as(self, actor: str) -> Self:
        """The same store, with `actor` as the author of its events."""
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

    async def remove_installation(self, host: HostId, installation: int) -> None:
        """GitHub does not know the installation: neither by its number, nor in its list. Confirmations
        are counted, those `CONFIRMED_APART` from the last, until the installation is recorded again."""
        ...

    async def removed_installations(self, app: AppId) -> list[int]:
        """Removed ones whose accounts still have runners here."""
        ...

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
        """Waiting jobs move to the scope at which the limit is exact; runners keep the scope they were
        claimed for."""
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
        """The id of each pool's runner group in the account. A pool that is not given has no group
        there (any more), and takes none of the account's new jobs."""
        ...

    async def pause_pool(self, pool: PoolId, *, why: str) -> bool: ...

    async def resume_pool(self, pool: PoolId, *, why: str) -> bool: ...

    async def delete_pool(self, pool: PoolId, *, why: str) -> bool:
        """The pool takes no more jobs, its waiting jobs may go to another pool, and it is gone when its
        last runner is (I42). False if it is being deleted already."""
        ...

    async def pause_dispatch(self, *, why: str) -> bool:
        """Stop all claims; runners at work go on. False if dispatch is paused already."""
        ...

    async def resume_dispatch(self, *, why: str) -> bool: ...

    async def dispatch_pause(self) -> Pause | None: ...

    async def end_session(self, session: UUID, *, ends_at: datetime) -> None:
        """End it at every replica. It would have lasted until `ends_at`."""
        ...

    async def is_session_ended(self, session: UUID) -> bool: ...

    async def survey_pools(
        self, *, ended: Sequence[str], since: datetime, after: int | None = None
    ) -> Survey:
        """The input for the sizes of pools, at one moment. `ended` names Pods that are known to have
        ended. Decisions: those after `since` and the ones in force then, or those `after` a number."""
        ...

    async def record_decisions(self, decisions: Sequence[Decision]) -> None: ...

    async def failed_starts(self, *, since: datetime) -> list[StartFailures]: ...

    async def note_host_faults(self, faults: Mapping[str, str]) -> None:
        """All faults there are: why each host is not fit for runners. A host that had a fault before
        keeps its time."""
        ...

    async def host_faults(self) -> list[HostFault]: ...

    async def refuse_jobs_of(self, pools: Sequence[PoolId]) -> int:
        """Refuse the jobs that wait for these pools, which are no longer active; returns how many."""
        ...

    async def delete_drained_pools(self) -> list[str]:
        """Mark draining pools as deleted whose last runner is gone; returns their names."""
        ...

    async def explain_pool(self, pool: PoolId) -> PoolExplanation | None: ...

    # Jobs.
    async def apply_jobs(self, reports: Iterable[JobReport], *, why: str) -> list[Unplaced]: ...

    async def demote_job(self, host: HostId, job: JobId, *, why: str) -> bool:
        """GitHub says the job is queued again and its runner is gone. False if it is not
        in_progress here; the database refuses it while its runner lives."""
        ...

    async def abandon_jobs(self, host: str, *, why: str) -> int:
        """Complete as stale all jobs of a host that have not ended: the host has forgotten them.
        Returns how many."""
        ...

    # Deliveries.
    async def store_deliveries(self, deliveries: Sequence[NewDelivery]) -> frozenset[str]:
        """Returns the GUIDs that are new. When this returns, all deliveries are durable (I1). It may be
        repeated, also after `OutcomeUnknown`."""
        ...

    async def take_deliveries(self, limit: int) -> list[Delivery]:
        """The oldest that wait, reserved for this replica for some seconds. Replicas work side by side;
        if one dies, another applies its deliveries."""
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

    async def expedite_deliveries(
        self, host: HostId, installation: int, also: Sequence[DeliveryNumber]
    ) -> None:
        """Deliveries that waited for this installation to be read, and those of `also`, wait no
        longer."""
        ...

    async def retry_deliveries(self, numbers: Sequence[DeliveryNumber] | None) -> int:
        """Dead deliveries are pending again: these, or all of them. Returns how many."""
        ...

    async def known_guids(self, host: HostId, guids: Sequence[str]) -> frozenset[str]: ...

    async def list_deliveries(
        self, *, state: DeliveryState | None, limit: int
    ) -> list[DeliverySummary]: ...

    async def hook_cursor(self, app: AppId) -> datetime:
        """Every delivery of the App made before this has arrived or was given up. An App that is
        new here starts now."""
        ...

    async def move_hook_cursor(self, app: AppId, until: datetime) -> None: ...

    # What incoming jobs are judged by.
    async def surroundings(self, installations: Iterable[tuple[HostId, int]]) -> IntakeContext: ...

    async def our_runners(
        self, named: Sequence[tuple[AccountId, str]]
    ) -> frozenset[tuple[AccountId, str]]:
        """Which of these runner names are ours, each within its own tenant (I5)."""
        ...

    async def refused_jobs(
        self, limit: int, *, after: RefusedJob | None = None
    ) -> list[RefusedJob]:
        """The next ones `after` this, by number."""
        ...

    async def adopt_jobs(self, reports: Sequence[JobReport]) -> int:
        """Refused jobs that a pool takes now. Returns how many became demand."""
        ...

    async def trust_questions(
        self, apps: Sequence[AppId], *, unreadable: Sequence[RepositoryId] = (), limit: int
    ) -> list[TrustQuestion]:
        """Waiting jobs whose runs were not looked up, of pools that ask whose code they run; none of
        `unreadable` repositories. The oldest of each account in turn (I26)."""
        ...

    async def note_trust(self, jobs: Sequence[TrustQuestion], trust: Trust) -> None: ...

    # Comparison with GitHub.
    async def active_repositories(
        self, apps: Sequence[AppId], *, since: datetime
    ) -> list[ActiveRepository]:
        """Those with a job after `since`, or with a job that has not ended; only those that one of
        these Apps can read."""
        ...

    async def open_jobs(self, repository: RepositoryId) -> list[OpenJob]: ...

    async def job_states(self, host: HostId, jobs: Sequence[JobId]) -> Mapping[JobId, JobState]:
        """Those of these jobs that are known."""
        ...

    async def note_comparison(self, repository: RepositoryId) -> None: ...

    # The steps of a runner's life: each returns the runner as it is now, or the conflict that was found
    # instead.
    async def runner(self, runner: RunnerId) -> Runner | None: ...

    async def live_runners(self) -> list[Runner]: ...

    async def plan_runners(
        self, pool: PoolId, pods: Sequence[tuple[RunnerId, str]], *, why: str
    ) -> list[Runner]:
        """Rows for Pods that are about to be created, under the names they will have. None for a pool
        that is being deleted."""
        ...

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

    async def occupy_runner(
        self,
        runner: RunnerId,
        *,
        generation: int,
        job: JobId | None,
        why: str,
        evidence: str | None = None,
    ) -> Runner | Conflict:
        """The runner executes a job. `job` is `None` where the evidence does not say which."""
        ...

    async def fence_runner(
        self,
        runner: RunnerId,
        *,
        generation: int,
        state: RunnerState,
        why: str,
        evidence: str | None = None,
        retired: Retired = Retired.GIVEN_UP,
        unregistered: bool = False,
    ) -> Runner | Conflict:
        """The runner is never dispatched again. Its ending is judged by `retired` (why) and
        `unregistered` (GitHub never saw it online)."""
        ...

    async def force_runner(
        self,
        runner: RunnerId,
        *,
        generation: int,
        state: RunnerState,
        why: str,
        evidence: str | None = None,
    ) -> Runner | Conflict:
        """Retire for good, in the actor's name: nothing brings the runner back, and its Pod is deleted
        whether a job is on it or not."""
        ...

    async def conclude_runners(self, ends: Sequence[RunnerEnd]) -> list[Runner]:
        """The ends of many runners, each with its verdict; their capacity is free when this returns
        (I80). Returns the runners that ended by this call: a row that had moved on is left out."""
        ...

    # Matching.
    async def match(self, pods: Collection[WaitingPod]) -> Match:
        """Claim as many of the waiting Pods as demand, limits and budgets allow, fairly, and at most a
        batch. If `pods` is a `WaitingPods`, Pods that no key asks for cost nothing (I77)."""
        ...

    async def take_over_claim(
        self,
        runner: RunnerId,
        *,
        generation: int,
        name: str,
        mint_deadline: datetime,
        unanswered: bool = False,
    ) -> Claim | Conflict:
        """Continue the claim under a fresh name, if its mint's deadline has passed, or if the match
        that made it was `unanswered`; the old name stays a debt."""
        ...

    # Handing over, and what is owed at GitHub.
    async def hear_pod(self, pod_name: str, *, pod_uid: str) -> Heard | None:
        """A Pod's poller asks; its first request makes the runner idle. `None`: no row knows this
        Pod."""
        ...

    async def has_demand(self) -> bool:
        """Whether a job is queued that a match could serve."""
        ...

    async def hear_again(self, asked: Mapping[RunnerId, datetime]) -> frozenset[RunnerId]:
        """Note that the pollers of idle runners asked again, and when; returns those that are still
        idle."""
        ...

    async def acknowledge_delivery(
        self, pod_name: str, *, pod_uid: str, delivery: UUID
    ) -> Runner | RunnerState | None:
        """armed → running, and the JIT is erased. Returns the runner; or its state, if the delivery was
        this Pod's and the runner is past that step; `None` if it never was this Pod's."""
        ...

    async def back_off(self, subject: Subject, terms: BackOffTerms) -> datetime:
        """Count one more failure in a row; returns until when nothing is claimed for the subject."""
        ...

    async def recover_from_backoffs(self, subjects: Sequence[Subject]) -> None: ...

    async def debts(self, *, before: datetime, limit: int) -> list[Debt]:
        """Unsettled names, chosen before `before`, that no runner has any more."""
        ...

    async def settle_mint(self, name: str, *, outcome: str) -> None: ...

    async def postpone_debt(self, name: str, *, until: datetime) -> None: ...

    # Recovery.
    async def note_pods(self, pods: Sequence[Pod], *, read_at: datetime) -> None:
        """Note of each runner whether a complete read of the fleet, begun at `read_at`, shows its Pod;
        absences are counted (I29). Only for reads that may prove absence."""
        ...

    async def expected_pods(self) -> int:
        """How many live runners have had a Pod."""
        ...

    async def note_deregistered(
        self, runner: RunnerId, *, generation: int, settled: str | None
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

    async def suspect_runner(self, runner: RunnerId, *, generation: int) -> Runner | Conflict:
        """It no longer counts as supply: one replacement is given out."""
        ...

    async def trust_runner(self, runner: RunnerId, *, generation: int) -> Runner | Conflict:
        """GitHub sees the runner after all: it is no longer suspect."""
        ...

    async def balances(self, *, recent: datetime) -> Mapping[KeyId, Balance]:
        """Supply and demand of every key with live runners; suspects among those acknowledged since
        `recent`."""
        ...

    async def key_places(self, keys: Sequence[KeyId]) -> Mapping[KeyId, KeyPlace]:
        """Those of these keys that an active installation serves."""
        ...

    async def list_runners(self, *, pool: str | None = None) -> list[RunnerSummary]: ...

    async def find_runner(self, name: str) -> Runner | None:
        """By its Pod's name, or by any name it was ever registered under."""
        ...

    async def removed_accounts(self) -> Mapping[AccountId, int]:
        """Accounts of which every installation is removed, and how often that was confirmed."""
        ...

    async def runner_scopes(self) -> list[RunnerScope]:
        """Every place where runners of ours may be registered: each organisation, and each repository
        that has a key."""
        ...

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

    async def identify_runner(
        self, runner: RunnerId, *, generation: int, record: FoundRecord, delivery: UUID
    ) -> Runner | Conflict:
        """A record was found at GitHub for a retiring runner without a name: its row is older than its
        Pod (I70)."""
        ...

    async def supply_graces(self) -> list[SupplyGrace]: ...

    async def end_supply_grace(self, runner: RunnerId) -> None: ...

    async def end_old_supply_graces(self) -> int: ...

    async def placed_jobs(
        self, host: HostId, jobs: Sequence[JobId], *, apps: Sequence[AppId]
    ) -> Mapping[JobId, PlacedJob]:
        """Those of these jobs that are known and that one of the Apps can ask about."""
        ...

    async def job_words(self) -> Mapping[RunnerId, JobWords]:
        """Of live runners that have a key."""
        ...

    async def oldest_queued(
        self, keys: Sequence[KeyId], *, limit: int
    ) -> Mapping[KeyId, Sequence[tuple[HostId, JobId]]]: ...

    async def unreadable_repositories(
        self, paused: Sequence[PausedScope], *, apps: Sequence[AppId]
    ) -> list[RepositoryId]:
        """The repositories in these scopes. Each account is read through the first of the Apps."""
        ...

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

    async def open_verdicts(
        self,
        *,
        after: datetime,
        until: datetime,
        unreadable: Sequence[RepositoryId] = (),
        but: Sequence[RunnerId] = (),
        limit: int,
    ) -> list[OpenVerdict]:
        """Verdicts of runners that ended in that time and of which GitHub has not said whether they had
        a job. None of `unreadable` repositories, and not of the runners in `but`. Each account in turn
        (I26)."""
        ...

    async def note_job_check(
        self, host: HostId, job: JobId, *, answer: JobWord, waits_because: str | None = None
    ) -> int:
        """Record GitHub's answer about a job; returns how often in a row GitHub gave it."""
        ...

    async def explain_job(self, host: HostId, job: JobId, *, waits_because: str) -> None: ...

    async def withhold_unassigned(self, key: KeyId, terms: UnassignedTerms) -> int:
        """Jobs of the key that GitHub was found not to assign are no demand for a while; returns how
        many."""
        ...

    async def expire_job(self, host: HostId, job: JobId, *, state: JobState, why: str) -> bool:
        """Complete as `stale` a job that GitHub no longer knows, or lets wait no longer. False if the
        job is no longer in this state, or is on a live runner of ours."""
        ...

    async def record_action(self, taken: ActionTaken) -> None: ...

    async def record_actions(self, taken: Sequence[ActionTaken]) -> None: ...

    async def logs_wanted(self) -> list[WantedLog]:
        """Ended runners whose log or circumstances are still asked for (I79)."""
        ...

    async def keep_log(self, runner: RunnerId, log_tail: str) -> bool:
        """Add the log to the verdict; false if it has one already, or none is wanted any more."""
        ...

    async def end_post_mortem(self, runner: RunnerId, *, circumstances: Sequence[str]) -> bool:
        """Stop asking for the runner's log and circumstances; false if that was so already."""
        ...

    async def late_news(self, *, since: datetime, limit: int) -> list[LateNews]:
        """Verdicts of runners ended since then whose job has changed since the verdict was written."""
        ...

    async def refine_verdict(
        self, runner: RunnerId, *, ending: Ending, why: str, evidence: str
    ) -> None: ...

    # Vitals.
    async def add_vitals(self, reports: Sequence[VitalsReport]) -> list[VitalsOutcome]:
        """Extend the series of the Pods' runners; what became of each report, in their order. This
        waits for no row that another transaction has locked."""
        ...

    async def vitals(self, runner: RunnerId) -> list[Sample]: ...

    # What there is, in numbers.
    async def summary(self, *, since: datetime) -> Summary: ...

    async def levels(self) -> Levels: ...

    async def steps(self, *, after: datetime, until: datetime) -> list[Steps]:
        """Of the runners that got their job in that time."""
        ...

    # Forgetting.
    async def forget(self, history: History, *, before: datetime) -> int:
        """Delete at most `BATCH` of the oldest rows that are over; returns how many. If it is `BATCH`,
        there are more. Live rows are never deleted."""
        ...
