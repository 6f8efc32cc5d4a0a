"""Two promises against waste, checked against the ground truth.

A control plane that counts a job twice still serves every job. But it builds two hundred Pods for a
hundred jobs, replaces every runner while GitHub is slow for a minute, or requests redelivery of
webhooks that have long arrived. The final state shows none of that, so it is counted during the run.

In worlds with operators and faults the bounds are looser. If an operator moves a limit or deletes a
pool, jobs move to other keys and are served anew. There only a storm counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from paddock.fakes.github import FakeGitHub
from paddock.fakes.github.records import Delivery, JobStatus
from simulator.engine.checks import Promise
from simulator.engine.fleet import Jit, SimFleet, SimPod
from simulator.engine.ledger import Ledger

#: A runner that has not begun this long after it received its JIT may be replaced. The shortest of
#: recovery's thresholds for that counts from the acknowledgement, which comes later.
_LATE: Final = 30.0
#: For this long an ended runner counts as supply, for the job that it may have executed (I68).
_ECHO: Final = 120.0
#: In worlds with operators: runners whose jobs were cancelled together are online for minutes.
_OVER_AT_LAST: Final = 900.0
#: Allowed replacements for runners that do not come online: as many again, or these few (I74).
_FEW: Final = 3
#: Within this all replicas have read a success, with two leaders and a slow list.
_KNOWN_AFTER: Final = 60.0
#: The same where replicas stall and the database is away.
_KNOWN_AT_LAST: Final = 600.0


class WasteChecks:
    def __init__(
        self,
        *,
        fleet: SimFleet,
        github: FakeGitHub,
        ledger: Ledger,
        now: Callable[[], float],
        violate: Callable[[Promise, str], None],
        strict: bool,
    ) -> None:
        """`strict`: the world has neither operators nor unscripted faults."""
        self._strict = strict
        self._fleet = fleet
        self._github = github
        self._ledger = ledger
        self._now = now
        self._violate = violate
        self._handed: list[tuple[float, SimPod, Jit, str]] = []
        #: When a webhook first told of a job's end.
        self._told_over: dict[int, float] = {}

    def handed(self, pod: SimPod, jit: Jit) -> None:
        owner = self._github.world.by_client_id[jit.client_id].owner.login
        self._handed.append((self._now(), pod, jit, owner))
        mine = [each for each in self._handed if each[3] == owner and each[1].pool == pod.pool]
        wanted = self._wanted(owner, pod.pool)
        at_it = [each[1].name for each in mine if self._counts(*each[:3])]
        if self._strict and len(at_it) > wanted:
            self._violate(
                Promise.ENOUGH,
                f"{owner} had {wanted} jobs for {pod.pool}, and these runners were given out for"
                f" them: {', '.join(at_it)}",
            )
        idle = [each[1].name for each in mine if each[1].alive and not self._began(each[2])]
        if len(idle) > 2 * wanted + _FEW:
            self._violate(
                Promise.ENOUGH,
                f"{owner} had {wanted} jobs for {pod.pool}, and {len(idle)} runners have none",
            )

    def _counts(self, at: float, pod: SimPod, jit: Jit) -> bool:
        """Whether it may still execute a job, or has executed one a moment ago."""
        ended = self._ended(jit)
        if ended is not None:
            return self._now() - ended <= _ECHO
        if not pod.alive or pod.deletion_requested_at is not None:
            return False
        return self._began(jit) or self._now() - at <= _LATE

    def _began(self, jit: Jit) -> bool:
        return any(each.runner_id == jit.runner_id for each in self._github.truth.executions)

    def _ended(self, jit: Jit) -> float | None:
        """Seconds, of the last execution that ended."""
        world = self._github.world
        over = [
            each.ended
            for each in self._github.truth.executions
            if each.runner_id == jit.runner_id and each.ended is not None
        ]
        return self._now() - (world.time - over[-1]).total_seconds() if over else None

    def _wanted(self, owner: str, pool: str) -> int:
        """Every job that its runners may take, or took a while ago. A job that waits for an approval
        does not count yet (I12)."""
        labels = self._ledger.labels.get(pool, frozenset())
        # A job counts as wanted until a user deletes its run.
        deleted = len(self._ledger.deleted_jobs)
        executing = {each.job_id for each in self._github.truth.executions if each.ended is None}
        return deleted + sum(
            job.repository.owner.login == owner
            # Where operators change pools, every job of the pool's owner counts.
            and (job.labels <= labels or not self._strict)
            and job.status is not JobStatus.WAITING
            and (job.id in executing or not self._long_over(job.id))
            for job in self._github.world.jobs.values()
        )

    def _long_over(self, job: int) -> bool:
        """A runner that executed it counts for as long; one that was given out for it counts less. A
        job may look queued if no webhook has told of its end, or a restored backup forgot it."""
        told = self._told_over.get(job)
        if told is None or told <= self._ledger.restored_at:
            return False
        return self._now() - told > (_ECHO if self._strict else _OVER_AT_LAST)

    def delivered(self, delivery: Delivery, status: int) -> None:
        if delivery.action == "completed" and 200 <= status < 300:
            self._told_over.setdefault(delivery.payload["workflow_job"]["id"], self._now())

    def asked_again(self, delivery: Delivery) -> None:
        """paddock asks GitHub to deliver a webhook again."""
        attempts = self._of(delivery.guid)
        arrived = [each.delivered_at for each in attempts if 200 <= (each.status_code or 0) < 300]
        first = min((at for at in arrived if at is not None), default=None)
        if first is None:
            return
        late = (self._github.world.time - first).total_seconds()
        if late > (_KNOWN_AFTER if self._strict else _KNOWN_AT_LAST):
            self._violate(
                Promise.ASKED_ONCE,
                f"{delivery.guid} ({delivery.event}) arrived {late:.0f} s ago",
            )

    def _of(self, guid: str) -> Iterable[Delivery]:
        return [each for each in self._github.world.deliveries.values() if each.guid == guid]
