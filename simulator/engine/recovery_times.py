"""How long recovery takes, by rule, from the moment something really went wrong.

A threshold says when a rule may act. A user waits longer: for the reading, the questions to GitHub,
and the round's limit of actions. So the fakes note when something went wrong, which paddock cannot
know. These moments are compared with the recorded actions.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from paddock.domain.names import PodName
from paddock.fakes.github import FakeGitHub
from paddock.fakes.github.records import Job
from simulator.engine.fleet import SimFleet, SimPod
from simulator.engine.time import BEGINNING

#: Rows have microseconds: an action at the same moment seems to come just before.
_ROUNDED: Final = 1e-5

DONE_ACTIONS: Final = """
    SELECT at, rule, pod_name, job_id FROM actions
     WHERE outcome = 'done' AND action <> 'protect' ORDER BY id
"""


def _trouble(pod: SimPod) -> float | None:
    return pod.trouble_at


def _over(pod: SimPod) -> float | None:
    return pod.over_at


def _removed(pod: SimPod) -> float | None:
    return pod.removed_at


def _made(pod: SimPod) -> float | None:
    return _seconds(pod.created_at)


def _created(job: Job) -> float | None:
    return _seconds(job.created_at)


def _started(job: Job) -> float | None:
    return _seconds(job.started_at)


def _completed(job: Job) -> float | None:
    return _seconds(job.completed_at)


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else (at - BEGINNING).total_seconds()


#: The moment from which each rule's time counts. A rule that is not here (surplus, a step of a
#: retirement) begins by itself and has no such moment.
_OF_PODS: Final[Mapping[str, Callable[[SimPod], float | None]]] = {
    "pod-ended": _over,
    "pod-gone": _removed,
    "suspect": _trouble,
    "waiting-container": _trouble,
    "never-registered": _trouble,
    "zombie": _trouble,
    "never-started": _trouble,
    "unschedulable": _trouble,
    "silent": _trouble,
    "undelivered": _trouble,
    "lingering": _trouble,
    "runner-ended": _trouble,
    "pod-without-row": _made,
}
_OF_JOBS: Final[Mapping[str, Callable[[Job], float | None]]] = {
    "missed-completion": _completed,
    "missed-start": _started,
    "job-unknown": _created,
}


class Times:
    def __init__(self, fleet: SimFleet, github: FakeGitHub) -> None:
        self._fleet = fleet
        self._github = github

    def measured(self, actions: Iterable[Mapping[str, Any]]) -> dict[str, list[float]]:
        """Seconds, by rule. Trouble that began after the rule acted was not the rule's reason."""
        found: dict[str, list[float]] = {}
        pods = {pod.name: pod for pod in self._fleet.pods}
        for action in actions:
            began = self._began(action, pods)
            acted = (action["at"] - BEGINNING).total_seconds()
            if began is not None and acted - began > -_ROUNDED:
                found.setdefault(action["rule"], []).append(round(max(0.0, acted - began), 3))
        return found

    def _began(self, action: Mapping[str, Any], pods: Mapping[PodName, SimPod]) -> float | None:
        of_pod, of_job = _OF_PODS.get(action["rule"]), _OF_JOBS.get(action["rule"])
        pod = pods.get(action["pod_name"]) if action["pod_name"] else None
        job = self._github.world.jobs.get(action["job_id"]) if action["job_id"] else None
        if of_pod is not None and pod is not None:
            return of_pod(pod)
        return of_job(job) if of_job is not None and job is not None else None


def summary(measured: Mapping[str, Iterable[float]]) -> dict[str, dict[str, float]]:
    """How many, and how long: the median, the 95th percentile, and the longest."""
    told = {}
    for rule, times in sorted(measured.items()):
        taken = sorted(times)
        at_19_of_20 = taken[min(len(taken) - 1, int(0.95 * len(taken)))]
        told[rule] = {
            "times": len(taken),
            "median": round(statistics.median(taken), 1),
            "p95": round(at_19_of_20, 1),
            "longest": round(taken[-1], 1),
        }
    return told
