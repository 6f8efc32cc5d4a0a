"""kubernetes_asyncio: `python -m bench.watchers.with_kubernetes_asyncio PORT models|dicts`.

`models` is the way of all its examples: a list, in pages, then `Watch().stream(...)`, each Pod a
`V1Pod`. `dicts` is the fastest way found: the list's body as it comes, and the plain type `object` for
what is watched, so that no models are made.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Any

import uvloop
from kubernetes_asyncio.client import ApiClient, Configuration, CoreV1Api
from kubernetes_asyncio.watch import Watch

from bench.watchers.result import OWNER, Needed, begin, hand_in, needed
from bench.watchers.stream import LAST, NAMESPACE

PAGE = 1000


async def follow(port: int, way: str) -> dict[str, Needed]:
    configuration = Configuration(host=f"http://127.0.0.1:{port}")
    pods: dict[str, Needed] = {}
    async with ApiClient(configuration) as client:
        api = CoreV1Api(client)
        following = _models(api, pods) if way == "models" else _dicts(api, pods)
        async with aclosing(following) as changes:
            async for kind, name, pod in changes:
                if kind == "DELETED":
                    pods.pop(name, None)
                else:
                    pods[name] = pod
                if name == LAST:
                    break
    return pods


async def _models(
    api: Any, pods: dict[str, Needed]
) -> AsyncGenerator[tuple[str, str, Needed], None]:
    going_on = None
    while True:
        page = await api.list_namespaced_pod(NAMESPACE, limit=PAGE, _continue=going_on)
        for pod in page.items:
            pods[pod.metadata.name] = _needed(pod)
        going_on = page.metadata._continue  # noqa: SLF001 -- so it is called
        if not going_on:
            break
    version = page.metadata.resource_version
    async with Watch() as watch:
        async for event in watch.stream(
            api.list_namespaced_pod, NAMESPACE, resource_version=version
        ):
            pod = event["object"]
            yield event["type"], pod.metadata.name, _needed(pod)


async def _dicts(
    api: Any, pods: dict[str, Needed]
) -> AsyncGenerator[tuple[str, str, Needed], None]:
    going_on = None
    while True:
        answer = await api.list_namespaced_pod(
            NAMESPACE, limit=PAGE, _continue=going_on, _preload_content=False
        )
        page = json.loads(await answer.read())
        for pod in page["items"]:
            pods[pod["metadata"]["name"]] = needed(pod)
        going_on = page["metadata"].get("continue")
        if not going_on:
            break
    version = page["metadata"]["resourceVersion"]
    async with Watch("object") as watch:
        async for event in watch.stream(
            api.list_namespaced_pod, NAMESPACE, resource_version=version
        ):
            pod = event["object"]
            yield event["type"], pod["metadata"]["name"], needed(pod)


def _needed(pod: Any) -> Needed:
    poller = _state(pod.status.init_container_statuses or (), "poller")
    runner = _state(pod.status.container_statuses or (), "runner")
    ended = runner.terminated if runner else None
    return Needed(
        uid=pod.metadata.uid,
        phase=pod.status.phase,
        node=pod.spec.node_name,
        leaving=pod.metadata.deletion_timestamp is not None,
        owner=(pod.metadata.labels or {}).get(OWNER),
        poller=_word(poller),
        runner=_word(runner),
        exit_code=ended.exit_code if ended else None,
    )


def _state(statuses: Iterable[Any], name: str) -> Any:
    return next((each.state for each in statuses if each.name == name), None)


def _word(state: Any) -> str | None:
    words = ("waiting", "running", "terminated")
    return next((word for word in words if getattr(state, word, None) is not None), None)


if __name__ == "__main__":
    begin()
    hand_in(uvloop.run(follow(int(sys.argv[1]), sys.argv[2])))
