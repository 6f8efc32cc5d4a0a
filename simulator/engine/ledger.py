"""What operators and users really asked for, for the checkers: limits over time, pools, jobs that may
wait, and what a restored backup lost."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from paddock.domain.limits import UNLIMITED, Limits
from paddock.fakes.github.records import Job, JobStatus


@dataclass(slots=True)
class Ledger:
    #: Per account (its login) and per repository (its full name): which limits held, and from when.
    limits: dict[str, list[tuple[float, Limits]]] = field(default_factory=dict)
    #: When the first job came; before that nothing is claimed.
    first_job: float = math.inf
    #: Per pool: its labels, and how many Pods it keeps idle.
    labels: dict[str, frozenset[str]] = field(default_factory=dict)
    idle: dict[str, int] = field(default_factory=dict)
    #: Per pool: its largest number of Pods, if its owner set one; and when it was last described.
    size: dict[str, int | None] = field(default_factory=dict)
    described_at: dict[str, float] = field(default_factory=dict)
    #: Accounts and pools that an operator paused.
    paused: set[str] = field(default_factory=set)
    #: When a backup was last restored.
    restored_at: float = -math.inf
    #: GitHub's records whose names were lost with a backup. If such a runner never comes online GitHub
    #: removes its record after a day; paddock cannot know of it.
    forgotten_records: set[int] = field(default_factory=set)
    #: Jobs whose run, or repository, was deleted at GitHub.
    deleted_jobs: set[int] = field(default_factory=set)
    owners_of_deleted: dict[int, str] = field(default_factory=dict)
    #: Those of them whose repository was deleted.
    jobs_of_deleted_repositories: set[int] = field(default_factory=set)
    #: Accounts (their logins) that uninstalled the App: GitHub answers no request about them any more.
    uninstalled: set[str] = field(default_factory=set)
    #: Pods whose log a leader has logged, as far as a restored backup remembers.
    logs_told: set[str] = field(default_factory=set)

    def set_limits(self, whose: str, limits: Limits, *, at: float) -> None:
        """Initial limits, if set before the first job, count as if they had always held."""
        history = self.limits.setdefault(whose, [])
        history.append((at if history or at >= self.first_job else -math.inf, limits))

    def limits_at(self, whose: str, moment: float) -> Limits:
        """The limits at that moment; the most lenient if they changed at that very moment."""
        history = self.limits.get(whose, [])
        held = [limits for at, limits in history if at < moment][-1:] or [UNLIMITED]
        changed = [limits for at, limits in history if at == moment]
        held += changed
        return Limits(
            runners=_most(each.runners for each in held),
            vcpu_milli=_most(each.vcpu_milli for each in held),
            memory_mib=_most(each.memory_mib for each in held),
        )

    def limited_repositories(self, login: str) -> list[str]:
        """All limits that this account has, or had, of its own."""
        return sorted(whose for whose in self.limits if whose.startswith(f"{login}/"))

    def delete(self, jobs: Iterable[Job]) -> set[int]:
        """Deleted at GitHub, with everything that could be read of them."""
        owners = {job.id: job.repository.owner.login for job in jobs}
        self.owners_of_deleted |= owners
        self.deleted_jobs |= set(owners)
        return set(owners)

    def knowable_deleted_jobs(self) -> list[int]:
        """The deleted jobs of accounts that still have the App."""
        owners = self.owners_of_deleted
        return sorted(job for job in self.deleted_jobs if owners.get(job) not in self.uninstalled)

    def waits_rightly(self, job: Job) -> bool:
        """Whether paddock could not have served it by any means."""
        if job.status is JobStatus.WAITING:
            return True
        if job.status is JobStatus.QUEUED and job.repository.owner.login in self.uninstalled:
            return True
        return job.status is JobStatus.QUEUED and len(self._fitting(job.labels)) != 1

    def fits(self, job: Job) -> str | None:
        match self._fitting(job.labels):
            case [pool]:
                return pool
            case _:
                return None

    def _fitting(self, labels: Iterable[str]) -> list[str]:
        return [pool for pool, own in self.labels.items() if frozenset(labels) <= own]

    def most_pods(self, pool: str) -> int:
        return self.idle.get(pool, 0)

    def least_pods(self) -> dict[str, int]:
        return self.idle


def _most(limits: Iterable[int | None]) -> int | None:
    """`None` is no limit."""
    held = list(limits)
    return None if None in held else max(limit for limit in held if limit is not None)
