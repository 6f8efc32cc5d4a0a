"""The life of a job: queued, assigned to a runner, leased, completed or lost.

GitHub assigns a job to *any* online runner in its scope that covers its labels, not only to the runner
made for it: to another job's runner, or to a runner that is not paddock's. Runners of paddock also get
jobs that paddock did not claim them for. This file models that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

from paddock.fakes.github.hooks import Hooks
from paddock.fakes.github.payloads import stamp
from paddock.fakes.github.records import (
    Account,
    Job,
    JobSpec,
    JobStatus,
    Repository,
    Run,
    Runner,
    RunnerEnd,
)
from paddock.fakes.github.truth import Ending, Execution
from paddock.fakes.github.world import World

_MATRIX_LIMIT = 256

#: GitHub keeps runs for months; a demonstration must not grow for ever.
_KEPT_RUNS = 20_000

LOST_COMMUNICATION = (
    "The self-hosted runner lost communication with the server. Verify the machine is running and "
    "has a healthy network connection."
)

#: Jobs with the same demand: repository and lower-case labels. Oldest first within.
_Key = tuple[int, frozenset[str]]


class Jobs:
    def __init__(self, world: World, hooks: Hooks) -> None:
        self._world = world
        self._hooks = hooks
        self._queues: dict[int, dict[_Key, dict[int, Job]]] = {}  # by account
        self._idle: dict[int, dict[int, Runner]] = {}  # by account
        self._coming: set[int] = set()  # idle as soon as the assignment delay is over
        #: Called with the runner that has a message, so that its long poll can end.
        self.on_news: Callable[[Runner], None] = lambda _runner: None

    def queue_run(
        self,
        repository: Repository,
        specs: Iterable[JobSpec],
        *,
        workflow: str = "CI",
        event: str = "push",
        head_repository: Repository | None = None,
        age: timedelta = timedelta(),
    ) -> Run:
        """`age`: the job was created this long ago; its webhooks are sent only now."""
        specs = list(specs)
        if not specs:
            raise ValueError("A run needs at least one job.")
        if len(specs) > _MATRIX_LIMIT:
            raise ValueError(f"A matrix has at most {_MATRIX_LIMIT} jobs, not {len(specs)}.")
        world = self._world
        run = Run(
            id=world.ids.run(),
            repository=repository,
            head_repository=head_repository or repository,
            number=next(repository.run_numbers),
            workflow=workflow,
            event=event,
            head_sha=world.ids.hex(40),
            created_at=world.time - age,
            updated_at=world.time,
        )
        world.runs[run.id] = run
        self._forget_old_runs()
        self._add(run, specs, created_at=run.created_at)
        return run

    def _forget_old_runs(self) -> None:
        while len(self._world.runs) > _KEPT_RUNS:
            oldest = next(iter(self._world.runs.values()))
            if oldest.status is not JobStatus.COMPLETED:
                return
            del self._world.runs[oldest.id]
            for job in oldest.jobs:
                del self._world.jobs[job.id]

    def _add(self, run: Run, specs: Iterable[JobSpec], *, created_at: datetime) -> None:
        world = self._world
        jobs = [
            Job(
                id=world.ids.job(),
                run=run,
                attempt=run.attempt,
                spec=spec,
                created_at=created_at,
                status=JobStatus.WAITING if spec.gated else JobStatus.QUEUED,
            )
            for spec in specs
        ]
        run.jobs.extend(jobs)
        for job in jobs:
            world.jobs[job.id] = job
        for job in jobs:
            if job.status is JobStatus.WAITING:
                self._hooks.job(job, "waiting")
            else:
                self._enter(job)

    def approve(self, job: Job) -> None:
        if job.status is JobStatus.WAITING:
            job.status = JobStatus.QUEUED
            self._enter(job)

    def _enter(self, job: Job) -> None:
        job.queued_at = self._world.time
        self._hooks.job(job, "queued")
        self._world.after(
            self._world.draw(self._world.faults.assign_delay), lambda: self._assignable(job)
        )
        self._world.schedule.at(
            self._world.later(self._world.timing.queued_for), lambda: self._give_up_queued(job)
        )

    def _assignable(self, job: Job, *, again: bool = False) -> None:
        if job.status is not JobStatus.QUEUED:
            return
        account = job.repository.owner
        queue = self._queues.setdefault(account.id, {})
        key = (job.repository.id, job.labels)
        # A job whose runner did not fetch it has waited longest.
        queue[key] = (
            {job.id: job} | queue.get(key, {}) if again else queue.get(key, {}) | {job.id: job}
        )
        self.match(account)

    def _give_up_queued(self, job: Job) -> None:
        if job.status is JobStatus.QUEUED:
            self._complete(job, "cancelled")

    def runner_idle(self, runner: Runner) -> None:
        """The runner came online, or finished a job and takes another."""
        self._coming.add(runner.id)

        def assignable() -> None:
            self._coming.discard(runner.id)
            if not runner.removed and runner.job is None and runner.offered is None:
                self._idle.setdefault(runner.owner.id, {})[runner.id] = runner
                self.match(runner.owner)

        self._world.after(self._world.draw(self._world.faults.assign_delay), assignable)

    def awaits(self, runner: Runner) -> bool:
        """GitHub may assign a job to it."""
        return runner.id in self._coming or runner.id in self._idle.get(runner.owner.id, {})

    def match(self, account: Account) -> None:
        """Assigns the oldest jobs to online runners, in random order."""
        world = self._world
        queue, idle = self._queues.get(account.id), self._idle.get(account.id)
        if not queue or not idle:
            return
        online = [runner for runner in idle.values() if world.online(runner)]
        world.dice.shuffle(online)
        for runner in online:
            job = self._oldest_for(runner, queue)
            # The offer before may have caused another match, which took this runner.
            if job is not None and runner.id in idle:
                self._offer(job, runner)

    def _oldest_for(self, runner: Runner, queue: dict[_Key, dict[int, Job]]) -> Job | None:
        best: Job | None = None
        for jobs in queue.values():
            first = next(iter(jobs.values()))
            if (best is None or first.id < best.id) and runner.covers(
                first.repository, first.labels
            ):
                best = first
        return best

    def _offer(self, job: Job, runner: Runner) -> None:
        world = self._world
        self._leave_queue(job)
        del self._idle[runner.owner.id][runner.id]
        runner.offered = job
        unseen = world.chance(world.faults.busy_unseen, "busy_unseen")
        runner.busy_from = world.later(world.draw(world.faults.busy_unseen_for) if unseen else 0)
        if runner.foreign:
            self.begin(runner)
            world.after(job.spec.seconds, lambda: self._foreign_done(job, runner))
            return

        def not_fetched() -> None:
            if runner.offered is job:
                self.withdraw(runner)

        world.schedule.at(world.later(world.timing.fetch_within), not_fetched)
        self.on_news(runner)

    def _leave_queue(self, job: Job) -> None:
        queue = self._queues.get(job.repository.owner.id, {})
        jobs = queue.get((job.repository.id, job.labels))
        if jobs and jobs.pop(job.id, None) and not jobs:
            del queue[job.repository.id, job.labels]

    def withdraw(self, runner: Runner) -> None:
        """The runner did not fetch its job: GitHub assigns the job to another runner."""
        job, runner.offered, runner.busy_from = runner.offered, None, None
        if job is not None:
            self._assignable(job, again=True)

    def forget_idle(self, runner: Runner) -> None:
        self._idle.get(runner.owner.id, {}).pop(runner.id, None)

    def begin(self, runner: Runner) -> Job:
        """The runner fetched the job and executes it from now on."""
        world, job = self._world, runner.offered
        assert job is not None
        runner.offered, runner.job = None, job
        job.status = JobStatus.IN_PROGRESS
        job.started_at = job.run.updated_at = world.time
        job.runner = runner
        job.steps = [_step("Set up job", 1, "in_progress", None, stamp(world.time), None)]
        world.truth.began(Execution(job.id, runner.id, runner.name, world.time))
        self._hooks.job(job, "in_progress")
        if not runner.foreign:
            self.renew(job)
            assert job.lease_until is not None
            world.schedule.at(job.lease_until, lambda: self._check_lease(job))
        return job

    def renew(self, job: Job) -> None:
        job.lease_until = self._world.later(self._world.timing.lease)

    def _check_lease(self, job: Job) -> None:
        if job.status is not JobStatus.IN_PROGRESS or job.lease_until is None:
            return
        if job.lease_until > self._world.time:
            self._world.schedule.at(job.lease_until, lambda: self._check_lease(job))
            return
        self._lose(job)

    def _lose(self, job: Job) -> None:
        world, runner = self._world, job.runner
        assert runner is not None
        job.annotation = LOST_COMMUNICATION
        world.truth.ended(runner.id, at=world.time, how=Ending.LOST)
        self._complete(job, "cancelled" if job.cancel_requested else "failure")

        def forget() -> None:
            runner.job = None
            world.remove_runner(runner, runner.removed or RunnerEnd.LOST)

        # Until then GitHub goes on calling the runner busy.
        world.after(world.draw(world.timing.lost_lingers), forget)

    def give_back(self, job: Job, runner_id: int) -> None:
        """Its runner died before the first step and sent nothing since: GitHub takes the job for one
        that never began. It sends no webhook."""
        runner = job.runner
        if job.status is not JobStatus.IN_PROGRESS or runner is None or runner.id != runner_id:
            return
        job.status, job.runner = JobStatus.QUEUED, None
        job.started_at = job.lease_until = None
        job.steps = []
        runner.job = runner.busy_from = None
        self._world.remove_runner(runner, runner.removed or RunnerEnd.LOST)
        self._assignable(job, again=True)

    def finish(self, job: Job, conclusion: str, steps: Iterable[dict[str, Any]] = ()) -> None:
        """The runner reports its result; an ephemeral runner's record goes with it."""
        runner = job.runner
        assert runner is not None
        self._world.truth.ended(
            runner.id, at=self._world.time, how=Ending.COMPLETED, conclusion=conclusion
        )
        self._complete(job, conclusion, steps)
        runner.job = runner.busy_from = None
        if runner.ephemeral:
            self._world.remove_runner(runner, runner.removed or RunnerEnd.COMPLETED)
        else:
            self.runner_idle(runner)

    def _foreign_done(self, job: Job, runner: Runner) -> None:
        if runner.job is job:
            self.finish(job, "cancelled" if job.cancel_requested else job.spec.conclusion)

    def _complete(self, job: Job, conclusion: str, steps: Iterable[dict[str, Any]] = ()) -> None:
        world = self._world
        self._leave_queue(job)
        job.status, job.conclusion = JobStatus.COMPLETED, conclusion
        job.completed_at = job.run.updated_at = world.time
        job.no_runner_is_zero = job.runner is None and world.dice.random() < 0.5
        if job.runner is not None:
            job.steps = _finished_steps(job, conclusion, list(steps), stamp(world.time))
        self._hooks.job(job, "completed")

    def cancel(self, job: Job) -> None:
        """At once if no runner executes it; otherwise the runner is asked to stop."""
        world = self._world
        match job.status:
            case JobStatus.COMPLETED:
                return
            case JobStatus.IN_PROGRESS:
                if job.cancel_requested:
                    return
                job.cancel_requested = True
                runner = job.runner
                assert runner is not None
                if runner.foreign:
                    self.finish(job, "cancelled")
                    return
                self.on_news(runner)

                def unanswered() -> None:
                    if job.status is JobStatus.IN_PROGRESS:
                        self._lose(job)

                world.schedule.at(world.later(world.timing.cancel_within), unanswered)
            case JobStatus.QUEUED | JobStatus.WAITING:
                self._complete(job, "cancelled")
                for runner in world.runners.values():
                    if runner.offered is job:
                        runner.offered = runner.busy_from = None
                        self.runner_idle(runner)
                        break

    def cancel_run(self, run: Run) -> bool:
        """False if nothing is left to cancel."""
        if run.status is JobStatus.COMPLETED:
            return False
        for job in run.latest:
            self.cancel(job)
        return True

    def delete_run(self, run: Run) -> None:
        """Deletes it with its jobs; GitHub sends no webhook for them, as when a repository is
        deleted."""
        for job in run.jobs:
            self._leave_queue(job)
            job.status, job.conclusion = JobStatus.COMPLETED, "cancelled"
            for runner in self._world.runners.values():
                if runner.offered is job:
                    runner.offered = runner.busy_from = None
                    self.runner_idle(runner)
            del self._world.jobs[job.id]
        del self._world.runs[run.id]

    def forget_repository(self, repository: Repository) -> list[Job]:
        """All its runs. Executing jobs are given up; their runners notice later."""
        world, forgotten = self._world, []
        for run in [each for each in world.runs.values() if each.repository is repository]:
            forgotten += run.jobs
            for job in run.jobs:
                runner = job.runner
                if job.status is JobStatus.IN_PROGRESS and runner is not None:
                    world.truth.ended(runner.id, at=world.time, how=Ending.LOST)
                    runner.job = runner.busy_from = None
                    world.remove_runner(runner, runner.removed or RunnerEnd.LOST)
            self.delete_run(run)
        return forgotten

    def rerun(self, run: Run, jobs: Iterable[Job]) -> None:
        """Another attempt; the jobs of an attempt have new ids."""
        specs = [job.spec for job in jobs]
        run.attempt += 1
        run.updated_at = self._world.time
        self._add(run, specs, created_at=self._world.time)


def _step(
    name: str,
    number: int,
    status: str,
    conclusion: str | None,
    started_at: str | None,
    completed_at: str | None,
) -> dict[str, Any]:
    return {
        "name": name,
        "status": status,
        "conclusion": conclusion,
        "number": number,
        "started_at": started_at,
        "completed_at": completed_at,
    }


def _finished_steps(
    job: Job, conclusion: str, reported: list[dict[str, Any]], at: str
) -> list[dict[str, Any]]:
    began = stamp(job.started_at or job.created_at)
    if not reported:
        reported = [{"name": step.name, "conclusion": conclusion} for step in job.spec.steps]
    steps = [_step("Set up job", 1, "completed", "success", began, began)]
    for number, one in enumerate(reported, start=2):
        steps.append(_step(one["name"], number, "completed", one["conclusion"], began, at))
    end = "cancelled" if job.annotation else "success"
    steps.append(_step("Complete job", len(steps) + 1, "completed", end, at, at))
    return steps
