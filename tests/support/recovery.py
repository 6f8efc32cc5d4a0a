"""Recovery's parts over a real store, a fleet in memory, and a GitHub that answers as the test
says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from paddock.dispatch.installations import RegisteredApp
from paddock.domain.github.errors import BackOff, Failure, GitHubError, Kind
from paddock.domain.github.objects import (
    Absent,
    AccountType,
    AppKey,
    GitHubAccountId,
    GitHubAppId,
    GitHubHost,
    GitHubRepositoryId,
    InstallationId,
    InstallationKey,
    InstallationRecord,
    JobRecord,
    Removal,
    RepositoryRecord,
    RunId,
    RunnerPage,
    RunnerRecord,
    Scope,
)
from paddock.domain.ids import AccountId, GitHubRunnerId, JobId, KeyId, PoolId, RunnerId
from paddock.domain.names import PodName, PoolName, pod_name
from paddock.domain.pods.pod import PodOrder
from paddock.domain.recovery.thresholds import RecoveryTerms
from paddock.domain.runners.runner import Runner, WaitingPod
from paddock.ports import EndRecords
from paddock.recovery.loop import Recovery
from paddock.recovery.observe import PodView
from paddock.store.database import Database
from tests.support.fleet import MemoryFleet
from tests.support.github import NoWakeups
from tests.support.runner_rows import read_runner
from tests.support.world import World

HOST = GitHubHost("github.com")


@dataclass
class ScriptedGitHub:
    """GitHub's answers about runners and jobs. `down` answers nothing; `lies` deletes busy runners."""

    records: dict[GitHubRunnerId, RunnerRecord] = field(default_factory=dict)
    jobs: dict[JobId, JobRecord] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    #: The ids of the App's installations, as its own list has them.
    installations: list[int] = field(default_factory=list)
    down: bool = False
    lies: bool = False
    #: Full names that answer 404 to everything.
    not_found: set[str] = field(default_factory=set)
    #: Ids of the repositories that the installation can read.
    listed: list[int] = field(default_factory=list)
    suspended: bool = False

    def register(
        self, runner: Runner, *, status: str = "online", busy: bool = False
    ) -> RunnerRecord:
        assert runner.github_id is not None
        assert runner.name is not None
        record = RunnerRecord(
            host=HOST,
            id=runner.github_id,
            name=runner.name,
            status=status,
            busy=busy,
            labels=("self-hosted", "linux"),
        )
        self.records[record.id] = record
        return record

    def say(self, runner: Runner, *, status: str = "online", busy: bool = False) -> None:
        assert runner.github_id is not None
        self.records[runner.github_id] = replace(
            self.records[runner.github_id], status=status, busy=busy
        )

    def job(self, job: JobId, status: str, at: datetime, **changes: Any) -> JobRecord:
        record = JobRecord(
            host=HOST,
            id=job,
            run_id=RunId(1),
            run_attempt=1,
            name=f"job {job}",
            workflow_name="ci",
            status=status,
            conclusion=changes.pop("conclusion", "success" if status == "completed" else None),
            labels=("self-hosted", "linux"),
            runner_id=changes.pop("runner_id", None),
            runner_name=changes.pop("runner_name", None),
            runner_group_id=None,
            created_at=at,
            started_at=at if status in ("in_progress", "completed") else None,
            completed_at=at if status == "completed" else None,
        )
        self.jobs[job] = record
        return record

    def _called(self, what: str) -> None:
        self.calls[what] += 1
        if self.down:
            raise GitHubError(
                Failure(
                    kind=Kind.SERVER_ERROR,
                    backs_off=BackOff.NONE,
                    backoff_s=1,
                    ceiling_s=1,
                    retryable=True,
                    sentence="GitHub answered 502",
                )
            )

    async def delete_runner(
        self, who: InstallationKey, scope: Scope, runner: GitHubRunnerId
    ) -> Removal:
        self._called("delete_runner")
        record = self.records.get(runner)
        if record is None:
            return Removal.ABSENT
        if record.busy and not self.lies:
            return Removal.BUSY
        del self.records[runner]
        return Removal.REMOVED

    async def find_runner(
        self, who: InstallationKey, scope: Scope, *, name: str
    ) -> RunnerRecord | Absent:
        self._called("find_runner")
        for record in self.records.values():
            if record.name == name:
                return record
        return Absent(proof="the scope was read")

    async def get_runner(
        self, who: InstallationKey, scope: Scope, runner: GitHubRunnerId
    ) -> RunnerRecord | Absent:
        self._called("get_runner")
        return self.records.get(runner) or Absent(proof="the scope was read")

    async def list_runners(
        self, who: InstallationKey, scope: Scope, *, page: str | None = None
    ) -> RunnerPage | Absent:
        self._called("list_runners")
        return RunnerPage(runners=tuple(self.records.values()), next=None)

    async def list_installations(self, app: AppKey) -> Sequence[InstallationRecord]:
        self._called("list_installations")
        return [
            InstallationRecord(
                host=HOST,
                id=InstallationId(number),
                app_id=app.app,
                account_id=GitHubAccountId(number),
                account_login=f"account-{number}",
                account_type="Organization",
                suspended_at=None,
                all_repositories=True,
                permissions=(),
                events=(),
            )
            for number in self.installations
        ]

    async def get_job(
        self, who: InstallationKey, repository: Scope, job: JobId
    ) -> JobRecord | Absent:
        self._called("get_job")
        if f"{repository.owner}/{repository.repository}" in self.not_found:
            raise GitHubError(
                Failure(
                    kind=Kind.NOT_FOUND,
                    backs_off=BackOff.REPOSITORY,
                    backoff_s=60,
                    ceiling_s=600,
                    retryable=False,
                    sentence="GitHub answered 404",
                )
            )
        return self.jobs.get(job) or Absent(proof="the repository was read")

    async def list_repositories(self, who: InstallationKey) -> list[RepositoryRecord]:
        self._called("list_repositories")
        return [
            RepositoryRecord(
                host=HOST,
                id=GitHubRepositoryId(number),
                full_name=f"org-1/repo-{number}",
                owner_id=GitHubAccountId(1),
                owner_type=AccountType.ORGANISATION,
                private=True,
                archived=False,
            )
            for number in self.listed
        ]

    async def get_installation(self, app: AppKey, installation: int) -> InstallationRecord | Absent:
        self._called("get_installation")
        return InstallationRecord(
            host=HOST,
            id=InstallationId(installation),
            app_id=app.app,
            account_id=GitHubAccountId(1),
            account_login="org-1",
            account_type=AccountType.ORGANISATION,
            suspended_at=datetime.now(UTC) if self.suspended else None,
            all_repositories=True,
            permissions=(),
            events=(),
        )

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"recovery never calls GitHub's {name}")


@dataclass
class Yard:
    """One account, one pool, and Pods whose rows and containers change together."""

    world: World
    fleet: MemoryFleet
    github: ScriptedGitHub
    account: AccountId
    pool: PoolId
    key: KeyId
    viewed: PodView = field(init=False)

    async def idle(self) -> Runner:
        """A Pod whose poller asks for work."""
        name = pod_name(PoolName("linux"), self.world.ids.suffix(10))
        [planned] = await self.world.store.plan_runners(
            self.pool, [(RunnerId(self.world.ids.uuid()), name)], why="test"
        )
        await self.fleet.create(PodOrder(runner=planned.id, name=name, pool="linux", spec="{}"))
        pod = self.fleet.start_polling(name)
        heard = await self.world.store.hear_pod(name, pod_uid=pod.uid)
        assert heard is not None
        return heard.runner

    async def armed(self) -> Runner:
        idle = await self.idle()
        await self.world.queue(self.account, self.key, 1)
        [claim] = (await self.world.store.match([waiting(idle)])).claims
        armed = await self.world.arm(claim.runner, claim.generation)
        assert isinstance(armed, Runner)
        self.github.register(armed, status="offline")
        return armed

    async def running(self, *, started: bool = True) -> Runner:
        """Acknowledged; its container is up, its record online."""
        running = await self.world.acknowledge(await self.armed())
        if started:
            self.fleet.end_poller(running.pod_name)
            self.fleet.logs[running.pod_name] = "√ Connected to GitHub\nListening for Jobs\n"
            self.github.say(running)
        return running

    async def fenced(self, runner: Runner, **how: Any) -> Runner:
        fenced = await self.world.store.fence_runner(
            runner.id,
            generation=runner.generation,
            state=runner.state,
            why="test",
            **how,
        )
        assert isinstance(fenced, Runner)
        return fenced

    async def row(self, runner: Runner) -> Runner:
        found = await read_runner(self.world.store, runner.id)
        assert found is not None
        return found

    def says(self, runner: Runner, line: str) -> None:
        self.fleet.logs[runner.pod_name] = self.fleet.logs.get(runner.pod_name, "") + line + "\n"

    @property
    def apps(self) -> list[RegisteredApp]:
        world = self.world
        key = AppKey(host=HOST, app=GitHubAppId(1))
        return [RegisteredApp(key=key, host=world.host, app=world.app)]

    def view(self) -> PodView:
        return PodView(store=self.world.store, fleet=self.fleet, clock=self.world.clock)

    def recovery(
        self, view: PodView | None = None, end_records: EndRecords | None = None, **terms: Any
    ) -> Recovery:
        """A new leader: it knows only the store, the fleet and GitHub."""
        world = self.world
        self.viewed = view or self.view()
        return Recovery(
            store=world.store,
            fleet=self.fleet,
            github=self.github,
            clock=world.clock,
            ids=world.ids,
            wakeups=NoWakeups(),
            view=self.viewed,
            apps=self.apps,
            terms=RecoveryTerms(**terms),
            end_records=end_records,
        )

    async def rounds(self, recovery: Recovery, seconds: float = 0, *, every: float = 10) -> None:
        """Reads and acts, repeatedly for this long."""
        left = seconds
        while True:
            await self.viewed.refresh()
            await recovery.ends()
            await recovery.round()
            await recovery.adopt()
            await recovery.search()
            if left <= 0:
                return
            self.world.clock.advance(min(every, left))
            left -= every

    async def verdict(self, runner: Runner) -> Any:
        [row] = await self.world.rows("SELECT * FROM verdicts WHERE runner_id = $1", runner.id)
        return row

    async def actions(self, *outcomes: str) -> list[tuple[str, str]]:
        rows = await self.world.rows(
            "SELECT rule, outcome FROM actions WHERE cardinality($1::text[]) = 0"
            " OR outcome = ANY ($1) ORDER BY id",
            list(outcomes),
        )
        return [(row["rule"], row["outcome"]) for row in rows]

    @property
    def deleted(self) -> list[PodName]:
        return [PodName(name) for name, _ in self.fleet.deletions]


def waiting(runner: Runner) -> WaitingPod:
    return WaitingPod(
        id=runner.id,
        pool=runner.pool,
        pod_name=runner.pod_name,
        generation=runner.generation,
    )


async def yard(database: Database) -> Yard:
    world = await World(database).begin()
    account, pool = await world.account(), await world.pool()
    return Yard(
        world=world,
        fleet=MemoryFleet(world.clock),
        github=ScriptedGitHub(),
        account=account,
        pool=pool,
        key=await world.key(account, pool),
    )
