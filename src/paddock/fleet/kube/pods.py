"""Converts a Pod of the API to paddock's own `Pod`.

Kubelets report one reason, `PodInitializing`, for three cases: a container waits for another one, its
image is being pulled, or the sandbox does not come up. Recovery waits a different time for each. So
they are told apart here, by the container that the others wait for.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from paddock.domain.names import PodName
from paddock.domain.pods.fingerprints import (
    RUNNER_CONTAINER,
    ContainerState,
    ContainerStatus,
    Waiting,
)
from paddock.domain.pods.pod import Phase, Pod
from paddock.domain.runners.versions import RunnerVersion, runner_version
from paddock.fleet.kube.objects import VERDICT_FINALIZER, Condition, PodObject

#: The init container that asks for work.
POLLER: Final = "poller"
#: The init container that has the runner's image pulled, and tells the version of the runner in it.
PULL: Final = "pull"

_NEVER: Final = datetime.fromtimestamp(0, UTC)
_HELD_UP: Final = "PodInitializing"
_PULLING: Final = "Pulling"
_PHASES: Final = {phase.value: phase for phase in Phase}

#: The reason on a Pod that Kubernetes' Pod garbage collector deletes because its node is gone.
_ORPHANED: Final = "DeletionByPodGC"
_NODE_LOST: Final = "NodeLost"


def is_ours(pod: PodObject) -> bool:
    """Our label or our finalizer is enough: an operator may have changed the labels, and a Pod that
    this function misses is taken for gone."""
    return pod.metadata.labels.pool is not None or VERDICT_FINALIZER in pod.metadata.finalizers


def shown(pod: PodObject) -> Pod:
    metadata, status = pod.metadata, pod.status
    conditions = {condition.type: condition for condition in status.conditions}
    containers = tuple(status.container_statuses)
    initial = status.init_container_statuses
    asked_at = _deletion_asked_at(pod)
    return Pod(
        name=PodName(metadata.name),
        uid=metadata.uid,
        pool=metadata.labels.pool or metadata.annotations.pool or "",
        phase=_phase(pod),
        reason=_reason(status.reason, conditions),
        node=pod.spec.node_name or None,
        created_at=metadata.creation_timestamp or _NEVER,
        deletion_requested_at=asked_at,
        owner=metadata.labels.owner,
        poller=_poller(initial, containers, conditions),
        containers=_with_cause(initial, containers, conditions) if initial else containers,
        unschedulable=_unschedulable(conditions),
        runner_version=_runner_version(initial),
    )


def _runner_version(initial: Sequence[ContainerStatus]) -> RunnerVersion | None:
    """What the first init container found in the runner's image. It has ended before the Pod asks for
    work."""
    for status in initial:
        if status.name == PULL and status.state.terminated is not None:
            return runner_version(status.state.terminated.message)
    return None


def _phase(pod: PodObject) -> Phase:
    """A Pod that was deleted before a node had it never runs: no kubelet will report its end, and our
    finalizer keeps it. So it counts as failed."""
    if pod.metadata.deletion_timestamp is not None and not pod.spec.node_name:
        return Phase.FAILED
    return _PHASES.get(pod.status.phase, Phase.UNKNOWN)


def _deletion_asked_at(pod: PodObject) -> datetime | None:
    """The time of the first deletion request. `deletionTimestamp` is the end of the grace period. Once
    all containers have ended, the kubelet deletes the Pod again with a grace period of 0, and the new
    time replaces the first. Each request is a new generation. If the kubelet had observed the newest
    generation when it wrote the status, the deletion was requested before the end; so the end's time is
    the upper bound."""
    until = pod.metadata.deletion_timestamp
    if until is None:
        return None
    if grace := pod.metadata.deletion_grace_period_seconds:
        return until - timedelta(seconds=grace)
    ended = _ended_at(pod)
    followed = pod.status.observed_generation == pod.metadata.generation > 1
    return min(until, ended) if followed and ended else until


def _ended_at(pod: PodObject) -> datetime | None:
    for status in pod.status.container_statuses:
        if status.name == RUNNER_CONTAINER and status.state.terminated:
            return status.state.terminated.finished_at
    return None


def _reason(reason: str, conditions: dict[str, Condition]) -> str | None:
    if reason:
        return reason
    disrupted = conditions.get("DisruptionTarget")
    if disrupted is not None and disrupted.status == "True" and disrupted.reason == _ORPHANED:
        return _NODE_LOST
    return None


def _unschedulable(conditions: dict[str, Condition]) -> str | None:
    scheduled = conditions.get("PodScheduled")
    if scheduled is None or scheduled.status != "False":
        return None
    return scheduled.message or scheduled.reason or "no reason given"


def _poller(
    initial: Sequence[ContainerStatus],
    containers: Sequence[ContainerStatus],
    conditions: dict[str, Condition],
) -> ContainerStatus | None:
    before: list[ContainerStatus] = []
    for status in initial:
        if status.name == POLLER:
            return _caused(status, before, conditions)
        before.append(status)
    return next((status for status in containers if status.name == RUNNER_CONTAINER), None)


def _with_cause(
    initial: Sequence[ContainerStatus],
    containers: Sequence[ContainerStatus],
    conditions: dict[str, Condition],
) -> tuple[ContainerStatus, ...]:
    """While the poller polls, the runner waits for it, and no other cause is added."""
    past = [status.name for status in initial]
    if POLLER not in past:
        return tuple(containers)
    at = past.index(POLLER)
    if initial[at].state.terminated is None:
        return tuple(containers)
    rest = initial[at + 1 :]
    return tuple(_caused(status, rest, conditions) for status in containers)


def _caused(
    status: ContainerStatus, before: Sequence[ContainerStatus], conditions: dict[str, Condition]
) -> ContainerStatus:
    """The status with the real reason for waiting: that of the first earlier container that has not
    finished, or the pull of its own image."""
    waiting = status.state.waiting
    if waiting is None or waiting.reason != _HELD_UP:
        return status
    reason = _HELD_UP
    for other in before:
        if other.state.terminated is not None:
            continue
        if other.state.waiting is None:
            return status  # the other container is running
        reason = other.state.waiting.reason
        break
    return _waits(status, _PULLING if _pulls(reason, conditions) else reason)


def _pulls(reason: str, conditions: dict[str, Condition]) -> bool:
    """Once the sandbox is ready, a waiting container waits for its image."""
    ready = conditions.get("PodReadyToStartContainers")
    return reason == _HELD_UP and ready is not None and ready.status == "True"


def _waits(status: ContainerStatus, reason: str) -> ContainerStatus:
    return msgspec.structs.replace(status, state=ContainerState(waiting=Waiting(reason=reason)))
