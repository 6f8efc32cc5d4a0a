"""Pods that paddock releases, and the logs of those whose deletion is announced. `tests/cluster` tests
both with a real API server and a real kubelet."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest

from paddock.domain.names import PodName
from paddock.fleet.kube.api import KubeApi
from paddock.fleet.kube.death_logs import DeathLogBuffer
from paddock.fleet.kube.fleet import KubeFleet
from paddock.fleet.kube.shapes import Placement
from paddock.ports import FleetUnavailable
from paddock.system import SystemClock

NAME, UID = PodName("linux-a"), "uid-a"
PLACEMENT = Placement(
    namespace="runners",
    service_account="paddock-runner",
    agent_image="paddock:1",
    agent_command=["agent"],
    server="http://paddock:8787",
)
DELETION: dict[str, Any] = {
    "deletionTimestamp": "2026-11-16T01:01:00Z",
    "deletionGracePeriodSeconds": 30,
}
SAID = b"2026-11-16T01:00:06Z Running job: build\n"


def pod(*, runs: bool = True, **metadata: Any) -> dict[str, Any]:
    state = {"running": {"startedAt": "2026-11-16T01:00:05Z"}} if runs else {"waiting": {}}
    return {
        "metadata": {
            "name": NAME,
            "uid": UID,
            "resourceVersion": "7",
            "labels": {"paddock.dev/pool": "linux"},
            "finalizers": ["paddock.dev/verdict"],
            **metadata,
        },
        "spec": {"nodeName": "node-1"},
        "status": {
            "phase": "Running" if runs else "Pending",
            "containerStatuses": [{"name": "runner", "state": state}],
        },
    }


def event(reason: str) -> dict[str, Any]:
    return {
        "metadata": {"resourceVersion": "8"},
        "involvedObject": {"kind": "Pod", "name": NAME, "uid": UID},
        "reason": reason,
    }


@dataclass
class Server:
    """As much of an API server as is asked here: one Pod, its log, and two watches."""

    pod: dict[str, Any] = field(default_factory=pod)
    log: bytes | None = SAID
    may_watch_events: bool = True
    requests: list[str] = field(default_factory=list)
    watches: dict[str, asyncio.Queue[bytes]] = field(default_factory=dict)

    async def answer(self, request: httpx2.Request) -> httpx2.Response:
        kind = request.url.path.rpartition("/")[2]
        if "watch" in request.url.params:
            return self._watch(kind)
        self.requests.append(f"{request.method} {kind}")
        if request.method != "GET":
            return self._change(request)
        match kind:
            case "pods":
                items = [self.pod]
                return httpx2.Response(
                    200, json={"items": items, "metadata": {"resourceVersion": "7"}}
                )
            case "log":
                return httpx2.Response(404 if self.log is None else 200, content=self.log or b"{}")
            case _:
                return httpx2.Response(200, json=self.pod)

    def _watch(self, kind: str) -> httpx2.Response:
        if kind == "events" and not self.may_watch_events:
            return httpx2.Response(403, json={"message": "no"})
        lines = self.watches[kind] = asyncio.Queue()

        async def content() -> AsyncIterator[bytes]:
            while True:
                yield await lines.get()

        return httpx2.Response(200, content=content())

    def _change(self, request: httpx2.Request) -> httpx2.Response:
        asked = json.loads(request.content)
        uid = (asked.get("preconditions") or asked.get("metadata"))["uid"]
        if uid != self.pod["metadata"]["uid"]:
            return httpx2.Response(409, json={"message": "the UID in the precondition differs"})
        return httpx2.Response(200, json=self.pod)

    async def tell(self, kind: str, made: dict[str, Any]) -> None:
        await until(lambda: kind in self.watches)
        line = json.dumps({"type": "MODIFIED", "object": made}).encode() + b"\n"
        self.watches[kind].put_nowait(line)


async def until(seen: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not seen():  # noqa: ASYNC110 -- another's doing
            await asyncio.sleep(0.005)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
async def fleet(server: Server) -> AsyncIterator[KubeFleet]:
    transport = httpx2.MockTransport(server.answer)
    api = KubeApi(httpx2.AsyncClient(base_url="http://kubernetes", transport=transport))
    fleet = KubeFleet(api, PLACEMENT, clock=SystemClock())
    yield fleet
    await fleet.aclose()
    await api.aclose()


@asynccontextmanager
async def watched(fleet: KubeFleet) -> AsyncIterator[list[Any]]:
    told: list[Any] = []

    async def watch() -> None:
        async with aclosing(fleet.watch()) as pods:  # type: ignore[type-var]
            async for each in pods:
                told.append(each)  # noqa: PERF401 -- each as it comes

    task = asyncio.create_task(watch())
    try:
        yield told
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def heard(server: Server, fleet: KubeFleet) -> str | None:
    """The log that is kept once its container, and so its own log, is deleted."""
    await until(lambda: "GET log" in server.requests)
    async with asyncio.timeout(60):
        words = await fleet.captured_log(uid=UID)
    server.log = None
    server.pod["metadata"] |= DELETION
    assert await fleet.log_tail(NAME, uid=UID, lines=9, most_bytes=999) is None
    return words


async def test_a_runner_that_is_deleted_is_heard_before_its_container_is_gone(
    server: Server, fleet: KubeFleet
) -> None:
    """S4: a captured log is no proof of anything, so a log that is gone stays unreadable."""
    async with watched(fleet):
        await server.tell("pods", pod(**DELETION))
        assert await heard(server, fleet) == "Running job: build\n"
        assert await fleet.captured_log(uid=UID) == "Running job: build\n"


@pytest.mark.parametrize("reason", ["Evicted", "Preempting"])
async def test_a_runner_that_its_kubelet_is_about_to_throw_out_is_heard(
    server: Server, fleet: KubeFleet, reason: str
) -> None:
    async with watched(fleet):
        await server.tell("events", event("FailedMount"))
        await server.tell("events", event(reason))
        assert await heard(server, fleet) == "Running job: build\n"
    # The second of them when it was gone.
    assert server.requests.count("GET log") == 2


async def test_a_runner_that_waits_for_work_has_no_log(server: Server, fleet: KubeFleet) -> None:
    server.pod = pod(runs=False)
    async with watched(fleet) as told:
        await server.tell("pods", pod(runs=False, **DELETION))
        await server.tell("events", event("FailedMount"))
        await until(lambda: len(told) == 2)
    assert server.requests == ["GET pods"]
    assert await fleet.captured_log(uid=UID) is None


async def test_a_role_without_that_right_costs_the_watch_of_pods_nothing(
    server: Server, fleet: KubeFleet
) -> None:
    server.may_watch_events = False
    async with watched(fleet) as told:
        await server.tell("pods", pod(**DELETION))
        assert await heard(server, fleet) == "Running job: build\n"
        assert len(told) == 2


async def test_a_server_that_denies_for_a_moment_after_its_start_is_asked_again(
    server: Server, fleet: KubeFleet
) -> None:
    server.may_watch_events = False
    async with watched(fleet) as told:
        await until(lambda: told)
        server.may_watch_events = True
        await server.tell("events", event("Evicted"))
        assert await heard(server, fleet) == "Running job: build\n"


LOST = b"unable to retrieve container logs for containerd://042cdab42"


@pytest.mark.parametrize("log", [None, LOST], ids=["404", "lost"])
async def test_a_log_that_a_node_does_not_find_may_be_found_later(
    server: Server, fleet: KubeFleet, log: bytes | None
) -> None:
    """I79: a kubelet that was just started, or that has no container runtime, says so of any log."""
    server.log = log
    with pytest.raises(FleetUnavailable):
        await fleet.log_tail(NAME, uid=UID, lines=9, most_bytes=999)


@pytest.mark.parametrize("log", [None, LOST], ids=["404", "lost"])
@pytest.mark.parametrize("end", ["deleted", "evicted"])
async def test_a_log_that_was_cleared_away_is_gone(
    server: Server, fleet: KubeFleet, log: bytes | None, end: str
) -> None:
    server.log = log
    if end == "deleted":
        server.pod["metadata"] |= DELETION
    else:
        server.pod["status"]["reason"] = "Evicted"
    assert await fleet.log_tail(NAME, uid=UID, lines=9, most_bytes=999) is None


async def test_what_was_not_heard_is_listened_for_again_and_what_was_is_kept() -> None:
    answers: list[str | None] = [None, "words", "fewer words"]

    async def tail(name: PodName, uid: str) -> str | None:
        if len(answers) == 3:
            answers.pop(0)
            raise FleetUnavailable("Kubernetes could not be reached.")
        return answers.pop(0)

    buffer = DeathLogBuffer(tail)
    assert await buffer.of(UID) is None
    for expected in (None, "words", "words"):
        buffer.listen(NAME, UID)
        assert await buffer.of(UID) == expected
    await buffer.aclose()


async def test_of_many_the_latest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.fleet.kube.death_logs._KEPT", 2)

    async def tail(name: PodName, uid: str) -> str | None:
        return f"words of {uid}"

    buffer = DeathLogBuffer(tail)
    for uid in ("1", "2", "3"):
        buffer.listen(NAME, uid)
        await buffer.of(uid)
    assert [await buffer.of(uid) for uid in ("1", "2", "3")] == [
        None,
        "words of 2",
        "words of 3",
    ]
    await buffer.aclose()


async def test_an_ended_pod_is_let_go_of_and_then_deleted(server: Server, fleet: KubeFleet) -> None:
    await fleet.reap(NAME, uid=UID)
    assert server.requests == [f"PATCH {NAME}", f"DELETE {NAME}"]


async def test_one_whose_deletion_had_come_to_its_end_waited_for_us_alone(
    server: Server, fleet: KubeFleet
) -> None:
    server.pod = pod(**DELETION | {"deletionGracePeriodSeconds": 0})
    await fleet.reap(NAME, uid=UID)
    assert server.requests == [f"PATCH {NAME}"]


async def test_another_of_the_same_name_is_left_alone(server: Server, fleet: KubeFleet) -> None:
    """I36"""
    await fleet.reap(NAME, uid="uid-of-another")
    assert server.requests == [f"PATCH {NAME}"]
