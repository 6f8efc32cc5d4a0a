"""No limit is exceeded by a new claim: counted by what Pods execute, or could still execute.

A claim is decided under the matcher's lock, so the limits at that moment bind it. No later decision
excuses it. The use of the account or the repository at that moment is not less than what is left of it
now. So the check orders the Pods that hold a JIT now by their claims. Each must fit within the limits
of its own claim, together with those claimed before it. A limit that was lowered below the use binds
only the claims after it.

A Pod counts against its account. It counts against a repository if it is registered there, or if it
is registered at the organisation and executes one of the repository's jobs, or has executed one, or
could still be given one (I78).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from paddock.domain.limits import NOTHING
from paddock.domain.runners.runner import Claim
from paddock.fakes.github import FakeGitHub
from paddock.fakes.github.records import Runner
from simulator.engine.checks import Promise
from simulator.engine.fleet import Jit, SimFleet, SimPod
from simulator.engine.ledger import Ledger
from simulator.engine.time import BEGINNING


class LimitCheck:
    def __init__(
        self,
        *,
        fleet: SimFleet,
        github: FakeGitHub,
        ledger: Ledger,
        now: Callable[[], float],
        violate: Callable[[Promise, str], None],
    ) -> None:
        self._fleet = fleet
        self._github = github
        self._ledger = ledger
        self._now = now
        self._violate = violate
        #: When the claim behind each runner name was committed.
        self._claimed: dict[str, float] = {}
        self._names: dict[object, str] = {}

    def claimed(self, claims: Iterable[Claim]) -> None:
        for claim in claims:
            self._claimed[claim.name] = self._now()
            self._names[claim.runner] = claim.name

    def taken_over(self, claim: Claim) -> None:
        """The same claim under another name: its limits are those of the first mint."""
        before = self._names.get(claim.runner, claim.name)
        self._claimed[claim.name] = self._claimed.get(before, self._now())
        self._names[claim.runner] = claim.name

    def handed(self, jit: Jit) -> None:
        self._check(self._record(jit))

    def began(self, runner_id: int) -> None:
        """A runner, ours or not, executes a job from now on."""
        record = self._github.world.runners.get(runner_id)
        if record is not None and not record.foreign:
            self._check(record)

    def _check(self, record: Runner) -> None:
        holding = [
            (self._claimed_at(held), pod, held)
            for pod in self._fleet.there()
            if pod.alive and pod.jit is not None and not pod.uncounted
            if (held := self._record(pod.jit)).owner is record.owner and not held.foreign
        ]
        holding.sort(key=lambda each: (each[0], each[1].name))
        self._hold_to(record.owner.login, [(at, pod) for at, pod, _ in holding])
        if not (limited := self._ledger.limited_repositories(record.owner.login)):
            return
        executed = self._executed()
        for repository in limited:
            counted = [
                (at, pod)
                for at, pod, each in holding
                if self._counts(each, repository, executed.get(each.id))
            ]
            self._hold_to(repository, counted)

    def _hold_to(self, whose: str, holding: Sequence[tuple[float, SimPod]]) -> None:
        used = NOTHING
        for number, (claimed_at, pod) in enumerate(holding, 1):
            used += pod.cost
            limits = self._ledger.limits_at(whose, claimed_at)
            if not limits.admit(used, NOTHING):
                names = ", ".join(each.name for _, each in holding[:number])
                self._violate(
                    Promise.LIMIT,
                    f"{whose} might have {limits} when {pod.name} was claimed at {claimed_at:.1f} s,"
                    f" and has {used}: {names}",
                )
                return

    def _counts(self, record: Runner, repository: str, executed: str | None) -> bool:
        if record.repository is not None:
            return record.repository.full_name == repository
        if executed is not None:
            return executed == repository
        return record.removed is None and self._reaches(record, repository)

    def _executed(self) -> dict[int, str]:
        """By runner: the repository of the job that it executes, or has executed. It gets one job."""
        jobs = self._github.world.jobs
        return {
            each.runner_id: jobs[each.job_id].repository.full_name
            for each in self._github.truth.executions
            if each.job_id in jobs
        }

    def _reaches(self, record: Runner, full_name: str) -> bool:
        """Whether GitHub might assign it a job of this repository: labels are not compared."""
        return any(
            record.covers(repository, frozenset())
            for repository in self._github.world.repositories.values()
            if repository.full_name == full_name
        )

    def _record(self, jit: Jit) -> Runner:
        return self._github.world.by_client_id[jit.client_id]

    def _claimed_at(self, record: Runner) -> float:
        """A runner claimed before the restored backup is known only by its record at GitHub."""
        minted = (record.created_at - BEGINNING).total_seconds()
        return self._claimed.get(record.name, minted)
