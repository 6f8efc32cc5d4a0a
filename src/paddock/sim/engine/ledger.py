"""What operators and users really asked for, for the checkers: limits over time, pools, jobs that may
wait."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from paddock.sim.github.records import Job, JobStatus


@dataclass(slots=True)
class Ledger:
    #: Per account: when which limit began to hold.
    limits: dict[str, list[tuple[float, int | None]]] = field(default_factory=dict)
    #: Per pool: its labels, and how many Pods it keeps idle.
    labels: dict[str, frozenset[str]] = field(default_factory=dict)
    idle: dict[str, int] = field(default_factory=dict)

    def set_limit(self, login: str, limit: int | None, *, at: float) -> None:
        self.limits.setdefault(login, []).append((at, limit))

    def highest_limit(self, login: str, *, since: float) -> int | None:
        """The most lenient that held at any time since then; `None` is no limit."""
        history = self.limits.get(login, [])
        before = [limit for at, limit in history if at <= since][-1:] or [None]
        held = before + [limit for at, limit in history if at > since]
        return None if None in held else max(limit for limit in held if limit is not None)

    def waits_rightly(self, job: Job) -> bool:
        """Whether nobody could serve it, whatever paddock did."""
        if job.status is JobStatus.WAITING:
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
        return self.idle[pool]

    def least_pods(self) -> dict[str, int]:
        return self.idle
