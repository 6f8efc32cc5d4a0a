"""The `Fleet` port on a real API server, with the rights of `deploy/roles.yaml`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from paddock.domain.names import PodName
from paddock.domain.pods.fingerprints import fingerprint
from paddock.domain.pods.pod import Audience, Phase, Pod
from paddock.domain.recovery.evidence import Container, container_seen, poller_seen
from paddock.fleet.kube.api import REQUESTS
from paddock.fleet.kube.setup import Kube
from paddock.fleet.kube.token_claims import AUDIENCES
from paddock.ports import FleetUnavailable
from tests.support.kube import Installed, order, template

#: Starts without a server to ask: it never gets past its poller.
IDLE = {"template": template("sleep", "1000")}
PATIENCE = 150.0
STARTED = Container.STARTED


async def until(kube: Kube, name: str, seen: Callable[[Pod], object]) -> Pod:
    last: Pod | None = None
    async with asyncio.timeout(PATIENCE):
        while True:
            found = await kube.fleet.list()
            for pod in found.pods:
                if pod.name == name:
                    last = pod
                    if seen(pod):
                        return pod
            await asyncio.sleep(0.2)
    raise AssertionError(last)


@asynccontextmanager
async def watching(kube: Kube) -> AsyncIterator[list[Pod]]:
    told: list[Pod] = []

    async def watch() -> None:
        async for pod in kube.fleet.watch():
            told.append(pod)  # noqa: PERF401 - it has no end

    task = asyncio.create_task(watch())
    try:
        yield told
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def eventually(seen: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not seen():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_a_pod_is_created_once_and_deleted_by_its_uid(kube: Kube, node: str) -> None:
    """I36"""
    asked = order("linux-a", IDLE)
    pod = await kube.fleet.create(asked)
    assert (await kube.fleet.create(asked)).uid == pod.uid
    assert pod.pool == "linux"
    await kube.fleet.delete_live_pod(pod.name, uid="0f6d1a52-8f0c-4bd5-9a3e-6f1c7c1f2f10")
    seen = await until(kube, "linux-a", lambda _: True)
    assert seen.deletion_requested_at is None
    await kube.fleet.delete_live_pod(pod.name, uid=pod.uid)
    ended = await until(kube, "linux-a", lambda pod: pod.phase.terminal)
    assert ended.deletion_requested_at is not None
    await kube.fleet.reap(pod.name, uid=pod.uid)
    assert (await kube.fleet.list()).pods == ()
    await kube.fleet.reap(pod.name, uid=pod.uid)  # one that is not there is no error


async def test_a_pod_of_another_with_the_name_is_not_ours(kube: Kube) -> None:
    await kube.fleet.create(order("linux-a", IDLE))
    with pytest.raises(FleetUnavailable, match="not paddock's"):
        await kube.fleet.create(order("linux-a", IDLE))


async def test_the_runners_image_is_there_before_the_pod_asks_for_work(
    kube: Kube, node: str
) -> None:
    """I67: the container that has it pulled has ended when the poller starts."""
    await kube.fleet.create(order("linux-a", IDLE))
    pod = await until(kube, "linux-a", lambda pod: poller_seen(pod.poller) is STARTED)
    assert pod.phase is Phase.PENDING  # I55
    assert container_seen(pod.containers) is Container.WAITING
    assert pod.node == node


async def test_an_image_that_cannot_be_pulled_is_told_apart(kube: Kube, node: str) -> None:
    described = {"template": template(image="paddock.test/nowhere:1")}
    await kube.fleet.create(order("linux-a", described))
    await until(kube, "linux-a", lambda pod: poller_seen(pod.poller) is Container.IMAGE_ERROR)


async def test_what_no_node_takes_says_why(kube: Kube, node: str) -> None:
    huge = {"requests": {"cpu": "1000"}}
    await kube.fleet.create(order("linux-a", {"template": template("true", resources=huge)}))
    pod = await until(kube, "linux-a", lambda pod: pod.unschedulable)
    assert "cpu" in (pod.unschedulable or "").lower()
    # No kubelet has this Pod, so only paddock can end it.
    await kube.fleet.delete_live_pod(pod.name, uid=pod.uid)
    await until(kube, "linux-a", lambda pod: pod.phase.terminal)
    await kube.fleet.reap(pod.name, uid=pod.uid)
    assert (await kube.fleet.list()).pods == ()


async def test_tokens_are_told_apart_by_what_they_are_for(place: Installed, kube: Kube) -> None:
    """I21"""
    await kube.fleet.create(order("linux-a", IDLE))
    pod = await place.api.get(f"{place.pods}/linux-a")
    for name, audience in AUDIENCES.items():
        token = await place.api.token(place.namespace, "paddock-runner", audiences=[name], pod=pod)
        who = await kube.reviewer.review(token, peer="10.0.0.7")
        assert who is not None
        assert (who.pod_name, who.pod_uid) == ("linux-a", pod["metadata"]["uid"])
        assert who.audience is audience
    for token in (
        await place.api.token(place.namespace, "paddock-runner", pod=pod),
        await place.api.token(place.namespace, "default", audiences=list(AUDIENCES)[:1]),
        "unknown",
    ):
        assert await kube.reviewer.review(token, peer="10.0.0.7") is None
    assert set(AUDIENCES.values()) == set(Audience)


async def test_a_forged_token_costs_no_review(place: Installed, kube: Kube) -> None:
    """Real tokens pass, by claims and keys as this API server writes them. A changed one does
    not reach it."""
    await kube.fleet.create(order("linux-a", IDLE))
    pod = await place.api.get(f"{place.pods}/linux-a")

    async def token(*audiences: str) -> str:
        given = list(audiences)
        return await place.api.token(place.namespace, "paddock-runner", audiences=given, pod=pod)

    dispatch, vitals = AUDIENCES
    reviews = REQUESTS.labels("create", "tokenreviews.authentication.k8s.io")
    before = reviews._value.get()
    real = [await token(dispatch), await token(vitals), await token(dispatch, "another")]
    for each in real:
        assert await kube.reviewer.review(each, peer="10.0.0.7") is not None
    assert reviews._value.get() - before == len(real)
    said = jwt.decode(real[0], options={"verify_signature": False})
    headers = jwt.get_unverified_header(real[0])
    own = ec.generate_private_key(ec.SECP256R1())
    head, payload, signature = real[0].split(".")
    for forged in (
        jwt.encode(said, own, algorithm="ES256", headers=headers),
        jwt.encode(said, own, algorithm="ES256", headers={"kid": "unknown"}),
        f"{head}.{payload}.{signature[::-1]}",
        f"{head}.{real[1].split('.')[1]}.{signature}",
        await token(dispatch, vitals),
        await token(),
    ):
        assert await kube.reviewer.review(forged, peer="10.0.0.7") is None
    assert reviews._value.get() - before == len(real)


async def test_the_watch_tells_of_every_change_and_of_the_end(kube: Kube, node: str) -> None:
    async with watching(kube) as told:
        pod = await kube.fleet.create(order("linux-a", IDLE))
        await eventually(
            lambda: any(poller_seen(each.poller) is Container.STARTED for each in told)
        )
        await kube.fleet.stamp(pod.name, uid=pod.uid, owner="acme")
        await eventually(lambda: told[-1].owner == "acme")
        await kube.fleet.delete_live_pod(pod.name, uid=pod.uid)
        await eventually(lambda: told[-1].phase.terminal)
        await kube.fleet.reap(pod.name, uid=pod.uid)
        await eventually(lambda: told[-1].reason == "deleted")
        assert told[-1].phase is Phase.UNKNOWN


async def test_the_watch_goes_on_when_the_api_server_is_back(
    place: Installed, kube: Kube, node: str
) -> None:
    """The watch reports afterwards what was created and deleted meanwhile."""
    gone = await kube.fleet.create(order("linux-gone", IDLE))
    async with watching(kube) as told:
        await eventually(lambda: told)
        await place.cluster.stop("apiserver")
        with pytest.raises(FleetUnavailable, match="could not be reached"):
            await kube.fleet.list()
        await place.cluster.start("apiserver")
        await place.api.patch(f"{place.pods}/{gone.name}", {"metadata": {"finalizers": None}})
        await place.api.delete(f"{place.pods}/{gone.name}", gracePeriodSeconds=0)
        await kube.fleet.create(order("linux-new", IDLE))
        await eventually(lambda: any(each.name == "linux-new" for each in told))
        await eventually(
            lambda: any(each.name == gone.name and each.reason == "deleted" for each in told)
        )


async def test_an_ended_runners_log_is_read_from_its_end(
    place: Installed, kube: Kube, node: str
) -> None:
    """A plain Pod made by the test: there is no server for a poller."""
    pod = await plain(
        place, "linux-a", "i=0; while [ $i -lt 500 ]; do echo line $i; i=$((i+1)); done; exit 3"
    )
    seen = await until(kube, "linux-a", lambda pod: pod.phase.terminal)
    mark = fingerprint(seen.containers)
    assert mark is not None
    assert (mark.exit_code, mark.reason) == (3, "Error")
    tail = await kube.fleet.log_tail(PodName("linux-a"), uid=pod, lines=3, most_bytes=4096)
    assert tail == "line 497\nline 498\nline 499\n"
    tail = await kube.fleet.log_tail(PodName("linux-a"), uid=pod, lines=200, most_bytes=18)
    assert tail == "line 498\nline 499\n"
    whole = await kube.fleet.log_tail(PodName("linux-a"), uid=pod, lines=1000, most_bytes=1 << 20)
    assert whole is not None
    assert whole.startswith("line 0\n")
    assert await kube.fleet.log_tail(PodName("linux-a"), uid="x", lines=3, most_bytes=99) is None
    assert await kube.fleet.log_tail(PodName("linux-b"), uid=pod, lines=3, most_bytes=99) is None


async def test_what_is_deleted_while_it_runs_is_heard_before_its_log_is_gone(
    place: Installed, kube: Kube, node: str
) -> None:
    """S4"""
    async with watching(kube) as told:
        uid = await plain(place, "linux-a", "echo Running job: build; while true; do sleep 1; done")
        await until(kube, "linux-a", lambda pod: container_seen(pod.containers) is STARTED)
        while "Running job" not in await place.api.log(place.namespace, "linux-a", "runner"):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        await place.api.delete(f"{place.pods}/linux-a")
        await eventually(lambda: any(pod.deletion_requested_at for pod in told))
        assert await kube.fleet.captured_log(uid=uid) == "Running job: build\n"
        await until(kube, "linux-a", lambda pod: pod.phase.terminal)
        assert await kube.fleet.captured_log(uid=uid) == "Running job: build\n"
        await kube.fleet.reap(PodName("linux-a"), uid=uid)
        await eventually(lambda: told[-1].reason == "deleted")


async def test_what_the_cluster_saw_of_an_end_is_told(
    place: Installed, kube: Kube, node: str
) -> None:
    uid = await plain(place, "linux-a", "exit 1")
    pod = await until(kube, "linux-a", lambda pod: pod.phase.terminal)
    told = await kube.fleet.circumstances(uid=uid, node=pod.node)
    assert told.complete
    assert any("Started" in each for each in told.sentences)
    told = await kube.fleet.circumstances(uid=uid, node="node-9")
    assert "its node node-9 is no more" in told.sentences


async def test_nodes_are_hosts(place: Installed, kube: Kube, node: str) -> None:
    [host] = [each for each in await kube.fleet.hosts() if each.name == node]
    assert host.ready
    assert not host.leaving
    assert host.capacity is not None
    assert host.capacity.runners > 1
    await place.cluster.kubectl("cordon", node)
    try:
        [host] = [each for each in await kube.fleet.hosts() if each.name == node]
        assert host.cordoned
    finally:
        await place.cluster.kubectl("uncordon", node)


async def test_a_list_of_many_pages_is_whole(monkeypatch: pytest.MonkeyPatch, kube: Kube) -> None:
    monkeypatch.setattr("paddock.fleet.kube.pod_lists.PAGE", 2)
    orders = [order(f"linux-{number}", IDLE) for number in range(5)]
    await asyncio.gather(*(kube.fleet.create(each) for each in orders))
    found = await kube.fleet.list()
    assert found.complete
    assert sorted(pod.name for pod in found.pods) == sorted(each.name for each in orders)


async def test_a_denied_call_says_what_to_grant(place: Installed, tmp_path: Path) -> None:
    kubeconfig = await place.cluster.kubeconfig_of(place.namespace, "default", tmp_path / "other")
    async with place.kube(kubeconfig=kubeconfig) as kube:
        with pytest.raises(FleetUnavailable, match="grant the verb `list` on `pods`"):
            await kube.fleet.list()
        with pytest.raises(FleetUnavailable, match="grant the verb `create` on `pods`"):
            await kube.fleet.create(order("linux-a", IDLE))
        token = await place.api.token(
            place.namespace, "paddock-runner", audiences=list(AUDIENCES)[:1]
        )
        with pytest.raises(FleetUnavailable, match="`create` on `tokenreviews"):
            await kube.reviewer.review(token, peer="10.0.0.7")
        with pytest.raises(FleetUnavailable, match="grant the verb `list` on `nodes`"):
            await kube.fleet.hosts()
        async with aclosing(kube.fleet.watch()) as watch:  # type: ignore[type-var]
            with pytest.raises(FleetUnavailable, match="on `pods`"):
                await anext(watch)


async def plain(place: Installed, name: str, script: str) -> str:
    """A Pod like ours but for its poller; its UID."""
    body = {
        "metadata": {
            "name": name,
            "labels": {"paddock.dev/pool": "linux"},
            "finalizers": ["paddock.dev/verdict"],
        },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 2,
            **template("/bin/sh", "-c", script)["spec"],
        },
    }
    made = await place.api.create(place.pods, body)
    return str(made["metadata"]["uid"])
