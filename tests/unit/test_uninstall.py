"""Leaving a cluster, with a server that still runs and with one that does not."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest

from paddock.fleet.kube.api import KubeApi
from paddock.fleet.kube.uninstall import PATIENCE, Uninstall
from tests.support.time import ManualClock

VERDICT, DRAIN = "paddock.dev/verdict", "paddock.dev/drain"


@dataclass
class Cluster:
    """As much of an API server as is asked here. `works`: paddock runs, and ends what it should."""

    works: bool = False
    pools: dict[str, Any] = field(default_factory=dict)
    pods: dict[str, Any] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    away: int = 0

    def pool(self, name: str, *others: str) -> None:
        self.pools[name] = {"name": name, "resourceVersion": "1", "finalizers": [DRAIN, *others]}

    def pod(self, name: str, phase: str) -> None:
        metadata = {"name": name, "labels": {"paddock.dev/pool": "linux"}, "finalizers": [VERDICT]}
        self.pods[name] = {
            "metadata": metadata,
            "spec": {"nodeName": "node-1"},
            "status": {"phase": phase},
        }

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        if self.away:
            self.away -= 1
            raise httpx2.ConnectError("refused")
        *_, kind, name = ["", *request.url.path.split("/")]
        if request.method == "GET":
            kind = name
            items = (
                [{"metadata": each} for each in self.pools.values()]
                if kind == "runnerpools"
                else list(self.pods.values())
            )
            return httpx2.Response(200, json={"items": items, "metadata": {}})
        return self._change(request, kind, name)

    def _change(self, request: httpx2.Request, kind: str, name: str) -> httpx2.Response:
        if request.method == "DELETE":
            assert kind == "runnerpools", "nothing but pools may be deleted"
            self.deleted.append(name)
            if self.works:
                self.pools.pop(name, None)
                self.pods.clear()
            return httpx2.Response(200, json={})
        change = json.loads(request.content)["metadata"]
        if kind == "pods":
            for each in change["$deleteFromPrimitiveList/finalizers"]:
                self.pods[name]["metadata"]["finalizers"].remove(each)
        else:
            self.pools[name]["finalizers"] = change["finalizers"]
            if not change["finalizers"] and name in self.deleted:
                del self.pools[name]
        return httpx2.Response(200, json={})


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def leaving(cluster: Cluster, clock: ManualClock, said: list[str]) -> Uninstall:
    client = httpx2.AsyncClient(
        base_url="http://kubernetes", transport=httpx2.MockTransport(cluster.answer)
    )
    return Uninstall(KubeApi(client), namespace="runners", clock=clock, say=said.append)


async def test_what_paddock_sees_to_is_only_waited_for(
    cluster: Cluster, leaving: Uninstall, said: list[str]
) -> None:
    cluster.works = True
    cluster.pool("linux")
    cluster.pod("linux-a", "Running")
    await leaving.drain()
    assert said == ["left: 1 pool, 1 runner"]


async def test_what_has_ended_is_let_go_if_no_leader_does(
    cluster: Cluster, leaving: Uninstall, clock: ManualClock
) -> None:
    """I75"""
    cluster.pool("linux")
    cluster.pod("linux-a", "Failed")
    began = clock.monotonic()
    await leaving.drain()
    assert clock.monotonic() - began > PATIENCE
    assert cluster.pools == {}
    assert cluster.pods["linux-a"]["metadata"]["finalizers"] == []


async def test_a_runner_that_lives_is_waited_for_however_long(
    cluster: Cluster, leaving: Uninstall, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.pool("linux")
    cluster.pod("linux-a", "Running")
    looks = 0

    async def sleep(_: float) -> None:
        nonlocal looks
        looks += 1
        clock.advance(10 * PATIENCE)
        if looks < 5:
            assert cluster.pods["linux-a"]["metadata"]["finalizers"] == [VERDICT]
        else:
            cluster.pods["linux-a"]["status"]["phase"] = "Succeeded"

    monkeypatch.setattr(clock, "sleep", sleep)
    await leaving.drain()
    assert cluster.pods["linux-a"]["metadata"]["finalizers"] == []


async def test_an_api_server_that_is_away_ends_nothing(
    cluster: Cluster, leaving: Uninstall, said: list[str]
) -> None:
    cluster.works, cluster.away = True, 4
    cluster.pool("linux")
    await leaving.drain()
    assert "could not be reached" in said[0]
    assert cluster.pools == {}


async def test_abandoning_waits_for_no_pod_and_kills_none(
    cluster: Cluster, leaving: Uninstall
) -> None:
    cluster.pool("linux")
    cluster.pod("linux-a", "Running")
    cluster.pod("linux-b", "Failed")
    left = await leaving.abandon()
    assert str(left) == "1 pool, 1 runner, 1 ended Pod"
    assert cluster.pools == {}
    assert [pod["metadata"]["finalizers"] for pod in cluster.pods.values()] == [[], []]


async def test_a_pool_that_another_keeps_is_theirs(cluster: Cluster, leaving: Uninstall) -> None:
    cluster.pool("linux", "example.org/theirs")
    await leaving.abandon()
    assert cluster.pools["linux"]["finalizers"] == ["example.org/theirs"]
