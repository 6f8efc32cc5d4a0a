"""Runner records: minted, deleted, expired; and the two sides of each.

The API side (mint, delete) is GitHub's REST API. The runner's side (`connect`, `poll`, `acquire`,
`renew`, `complete`, `disconnect`) is what the services for runners do; `runner_routes` serves them to
real runners, and the simulator's call them here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from paddock.fakes.github import jit
from paddock.fakes.github.jit import runner_key
from paddock.fakes.github.jobs import Jobs
from paddock.fakes.github.records import (
    Account,
    Job,
    JobStatus,
    Repository,
    Runner,
    RunnerEnd,
    RunnerGroup,
    Session,
    Step,
)
from paddock.fakes.github.truth import Deletion, Ending, Mint
from paddock.fakes.github.world import World

DEFAULT_GROUP_ID = 1


class RunnerRefused(Exception):
    """The runner's side is refused; `code` is what the fake runner acts on."""

    code = "refused"


class RegistrationDeletedError(RunnerRefused):
    code = "registration-deleted"


class SessionConflictError(RunnerRefused):
    code = "session-conflict"


class VersionDeprecatedError(RunnerRefused):
    code = "version-deprecated"


class JobGoneError(RunnerRefused):
    code = "job-gone"


@dataclass(frozen=True, slots=True)
class Offer:
    """A job for this runner, to be fetched with `acquire`."""

    job_id: int


@dataclass(frozen=True, slots=True)
class Cancellation:
    job_id: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """What the runner is told to execute."""

    job_id: int
    run_id: int
    name: str
    repository: str
    steps: tuple[Step, ...]
    die: str | None
    #: How often to renew the lease.
    renew_seconds: float


@dataclass(frozen=True, slots=True)
class Minted:
    runner: Runner
    encoded_jit_config: str


class Runners:
    def __init__(self, world: World, jobs: Jobs) -> None:
        self._world = world
        self._jobs = jobs

    def mint(
        self,
        scope: Account | Repository,
        *,
        name: str,
        group: RunnerGroup,
        labels: Iterable[str],
        work_folder: str = "_work",
        app_id: int = 0,
    ) -> Minted:
        world = self._world
        runner = self._record(scope, name=name, group=group, labels=labels)
        world.truth.mints.append(Mint(world.time, app_id, runner.scope, name, runner.id))
        world.schedule.at(
            world.later(world.timing.unused_for), lambda: self._expire_if_unused(runner)
        )
        encoded = jit.encode(
            runner, api_url=world.api_url, html_url=world.html_url, work_folder=work_folder
        )
        return Minted(runner, encoded)

    def _record(
        self,
        scope: Account | Repository,
        *,
        name: str,
        group: RunnerGroup,
        labels: Iterable[str],
    ) -> Runner:
        world = self._world
        repository = scope if isinstance(scope, Repository) else None
        owner = scope.owner if isinstance(scope, Repository) else scope
        number = world.ids.runner()
        runner = Runner(
            id=number,
            name=name,
            owner=owner,
            repository=repository,
            group=group,
            labels=tuple(labels),
            created_at=world.time,
            client_id=world.ids.guid(),
            secret=runner_key(number).secret,
        )
        world.runners[runner.id] = runner
        world.by_client_id[runner.client_id] = runner
        return runner

    def _expire_if_unused(self, runner: Runner) -> None:
        world = self._world
        if runner.removed or runner.job or runner.offered:
            return
        if world.online(runner):
            world.schedule.at(
                world.later(world.timing.unused_for), lambda: self._expire_if_unused(runner)
            )
            return
        self._jobs.forget_idle(runner)
        world.remove_runner(runner, RunnerEnd.EXPIRED)

    def add_foreign(
        self,
        scope: Account | Repository,
        *,
        name: str,
        group: RunnerGroup,
        labels: Iterable[str],
        ephemeral: bool = False,
    ) -> Runner:
        """A runner that is not paddock's. It is online from now on and the model plays it: each job
        takes the `seconds` of its spec."""
        runner = self._record(scope, name=name, group=group, labels=labels)
        runner.foreign, runner.ephemeral, runner.os = True, ephemeral, "Linux"
        self._jobs.runner_idle(runner)
        return runner

    def delete(self, runner: Runner) -> None:
        world = self._world
        executing = world.truth.executing(runner.id)
        world.truth.deletions.append(Deletion(world.time, runner.id, runner.name, executing))
        self._jobs.forget_idle(runner)
        world.remove_runner(runner, RunnerEnd.DELETED)
        if runner.offered is not None:
            self._jobs.withdraw(runner)
        self._jobs.on_news(runner)

    def connect(self, *, client_id: str, secret: str, version: str) -> Session:
        world = self._world
        runner = world.by_client_id.get(client_id)
        if runner is None or runner.removed or runner.secret != secret:
            raise RegistrationDeletedError(
                "The runner registration has been deleted from the server, please re-configure."
            )
        if runner.session is not None and world.online(runner):
            raise SessionConflictError("A session for this runner already exists.")
        session = Session(id=world.ids.guid(), contact_at=world.time, version=version)
        if runner.session is not None:
            world.sessions.pop(runner.session.id, None)
        runner.session, runner.version, runner.os = session, version, "Linux"
        world.sessions[session.id] = runner
        if not world.refuses_version(version):
            self._jobs.runner_idle(runner)
        return session

    def poll(self, session_id: str) -> Offer | Cancellation | None:
        """The message for this runner now. The caller does the waiting."""
        world = self._world
        runner = self._of(session_id)
        assert runner.session is not None
        was_online = world.online(runner)
        runner.session.contact_at = world.time
        if runner.removed:
            raise RegistrationDeletedError(
                "The runner registration has been deleted from the server, please re-configure."
            )
        job, version = runner.job, runner.session.version
        if job is None and world.refuses_version(version):
            # As it was seen: the runner has said that it listens (actions/runner#3366).
            self._jobs.forget_idle(runner)
            self._jobs.withdraw(runner)
            raise VersionDeprecatedError(
                f"Runner version v{version} is deprecated and cannot receive messages."
            )
        if runner.offered is not None:
            return Offer(runner.offered.id)
        if job is not None:
            if job.cancel_requested and not job.cancel_sent:
                job.cancel_sent = True
                return Cancellation(job.id)
        elif not (was_online and self._jobs.awaits(runner)):
            self._jobs.runner_idle(runner)
        return None

    def acquire(self, session_id: str, job_id: int) -> Assignment:
        runner = self._of(session_id)
        if runner.removed or runner.offered is None or runner.offered.id != job_id:
            raise JobGoneError(f"Job {job_id} is no longer offered to this runner.")
        job = self._jobs.begin(runner)
        return Assignment(
            job_id=job.id,
            run_id=job.run.id,
            name=job.spec.name,
            repository=job.repository.full_name,
            steps=job.spec.steps,
            die=job.spec.die,
            renew_seconds=self._world.timing.lease / 10,
        )

    def renew(self, session_id: str, job_id: int) -> None:
        self._jobs.renew(self._executed(session_id, job_id))

    def complete(
        self,
        session_id: str,
        job_id: int,
        conclusion: str,
        steps: Iterable[dict[str, Any]] = (),
    ) -> None:
        self._jobs.finish(self._executed(session_id, job_id), conclusion, steps)

    def disconnect(self, session_id: str) -> None:
        """The runner ends its session. A job that it leaves behind is lost after its lease."""
        runner = self._world.sessions.pop(session_id, None)
        if runner is None:
            return
        runner.session = None
        self._jobs.forget_idle(runner)
        if runner.offered is not None:
            self._jobs.withdraw(runner)

    def died(self, runner_id: int) -> None:
        """For harnesses: the process has ended and will not report it. GitHub does not learn of it."""
        self._world.truth.ended(runner_id, at=self._world.time, how=Ending.DIED)

    def on_news(self, callback: Callable[[Runner], None]) -> None:
        """`callback` is called with a runner for which `poll` would now return something new."""
        self._jobs.on_news = callback

    def _of(self, session_id: str) -> Runner:
        runner = self._world.sessions.get(session_id)
        if runner is None or runner.session is None:
            raise RegistrationDeletedError("There is no such session: it was ended or replaced.")
        return runner

    def _executed(self, session_id: str, job_id: int) -> Job:
        job = self._of(session_id).job
        if job is None or job.id != job_id or job.status is not JobStatus.IN_PROGRESS:
            raise JobGoneError(f"Job {job_id} is not executed by this runner any more.")
        return job
