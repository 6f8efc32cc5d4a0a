"""The watch of paddock's Kubernetes fleet: `python -m bench.watchers.ours PORT`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import uvloop
from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import Cluster, User

from bench.watchers.result import Needed, begin, hand_in
from bench.watchers.stream import LAST, NAMESPACE
from paddock.domain.pods.fingerprints import RUNNER_CONTAINER, ContainerStatus
from paddock.domain.pods.pod import Phase, Pod
from paddock.fleet.kube.api import KubeApi, Resource
from paddock.fleet.kube.pod_lists import PodLists
from paddock.fleet.kube.pod_watch import PodWatch
from paddock.system import SystemClock


async def follow(port: int) -> dict[str, Needed]:
    cluster = Cluster(server=f"http://127.0.0.1:{port}")
    api = KubeApi.connected(KubeConfig.from_one(cluster=cluster, user=User(token="any")))
    resource = Resource("pods", namespace=NAMESPACE)
    watch = PodWatch(api, resource, PodLists(api, resource), clock=SystemClock())
    pods: dict[str, Needed] = {}
    async for pod in watch.changes():
        if pod.phase is Phase.UNKNOWN and pod.reason == "deleted":
            pods.pop(pod.name, None)
        else:
            pods[pod.name] = _needed(pod)
        if pod.name == LAST:
            break
    return pods


def _needed(pod: Pod) -> Needed:
    runner = next((each for each in pod.containers if each.name == RUNNER_CONTAINER), None)
    ended = runner.state.terminated if runner else None
    return Needed(
        uid=pod.uid,
        phase=pod.phase.value,
        node=pod.node,
        leaving=pod.deletion_requested_at is not None,
        owner=pod.owner,
        poller=_state([pod.poller] if pod.poller else []),
        runner=_state([runner] if runner else []),
        exit_code=ended.exit_code if ended else None,
    )


def _state(statuses: Sequence[ContainerStatus]) -> str | None:
    for status in statuses:
        for name in ("waiting", "running", "terminated"):
            if getattr(status.state, name) is not None:
                return name
    return None


if __name__ == "__main__":
    begin()
    hand_in(uvloop.run(follow(int(sys.argv[1]))))
