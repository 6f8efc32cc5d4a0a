"""RunnerPool objects at a real API server: what it refuses, and what the mirror does with the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paddock.domain.pools.objects import DRAIN_FINALIZER
from paddock.fleet.kube.setup import Kube
from paddock.pools.mirror import PoolMirror
from paddock.store.database import Database
from paddock.store.store import PgStore
from paddock.system import SystemClock, SystemIds
from tests.support.github import NoWakeups
from tests.support.kube import Installed, template
from tools.cluster.api import Json, Refused

PRIVILEGED = template("true", securityContext={"privileged": True})


@pytest.fixture
def store(database: Database) -> PgStore:
    return PgStore(database, clock=SystemClock(), ids=SystemIds(), actor="test")


@pytest.fixture
def mirror(kube: Kube, store: PgStore) -> PoolMirror:
    return PoolMirror(
        store=store, pools=kube.pools, trial=kube.fleet, clock=SystemClock(), wakeups=NoWakeups()
    )


async def described(place: Installed, name: str = "linux", **spec: Any) -> Json:
    body = {
        "apiVersion": "paddock.dev/v1alpha1",
        "kind": "RunnerPool",
        "metadata": {"name": name},
        "spec": {"labels": ["linux"], "template": template("true"), **spec},
    }
    return await place.api.apply(f"{place.pools}/{name}", body)


async def accepted(place: Installed, name: str = "linux") -> tuple[str, str, str]:
    pool = await place.api.get(f"{place.pools}/{name}")
    [condition] = [each for each in pool["status"]["conditions"] if each["type"] == "Accepted"]
    return condition["status"], condition["reason"], condition.get("message", "")


@pytest.mark.parametrize(
    ("name", "spec", "words"),
    [
        ("a.b", {}, "at most 63 characters"),
        ("linux", {"labels": []}, "spec.labels"),
        ("linux", {"size": 3, "minIdle": 2}, "size is exact"),
        ("linux", {"maxRunners": -1}, "maxRunners"),
        ("linux", {"shape": "round"}, "spec.shape"),
        ("linux", {"nodes": 3}, "spec.nodes"),
        ("linux", {"template": {"spec": {"containers": [{"name": "x"}]}}}, "named `runner`"),
        ("linux", {"template": template("true", spec={"hostNetwork": True})}, "hostNetwork"),
        (
            "linux",
            {"template": template("true", spec={"volumes": [{"name": "x", "hostPath": {}}]})},
            "hostPath volumes are refused",
        ),
        (
            "linux",
            {"template": template("true", spec={"serviceAccountName": "default"})},
            "no account of the cluster",
        ),
        ("linux", {"template": PRIVILEGED}, "a privileged container controls its node"),
        (
            "linux",
            {"template": PRIVILEGED, "privileged": "inVirtualMachine"},
            "runtimeClassName",
        ),
    ],
)
async def test_a_mistake_is_refused_as_it_is_applied(
    place: Installed, name: str, spec: dict[str, Any], words: str
) -> None:
    with pytest.raises(Refused, match=words):
        await described(place, name, **spec)


async def test_a_pool_may_accept_the_risk(place: Installed) -> None:
    await described(place, template=PRIVILEGED, privileged="acceptRisk")


async def test_an_object_becomes_a_pool_and_says_so(
    place: Installed, mirror: PoolMirror, store: PgStore
) -> None:
    """I54: a deliberate zero is one on the way there, too."""
    await described(place, maxRunners=0)
    for _ in range(2):
        await mirror.round()
    assert (await accepted(place))[:2] == ("True", "Mirrored")
    [pool] = await store.list_pools()
    assert (pool.name, pool.max_runners) == ("linux", 0)
    shown = await place.cluster.kubectl("get", "rpool", "-n", place.namespace)
    assert "ACCEPTED" in shown
    assert "True" in shown


async def test_what_only_paddock_can_judge_stands_in_the_status_and_the_pool_stays_as_it_was(
    place: Installed, mirror: PoolMirror, store: PgStore
) -> None:
    await described(place, maxRunners=3)
    await described(place, "larger", labels=["linux", "large"])
    for _ in range(2):
        await mirror.round()
    told = {name: await accepted(place, name) for name in ("linux", "larger")}
    assert sorted(status for status, _, _ in told.values()) == ["False", "True"]
    assert len(await store.list_pools()) == 1
    [wrong] = [message for status, _, message in told.values() if status == "False"]
    assert "linux" in wrong


async def test_a_template_that_no_pod_can_be_made_of_is_tried_out_before_it_is_taken(
    place: Installed, mirror: PoolMirror, store: PgStore
) -> None:
    await described(place, template=template("true", imagePullPolicy="Sometimes"))
    for _ in range(2):
        await mirror.round()
    status, reason, message = await accepted(place)
    assert (status, reason) == ("False", "TemplateRefused")
    assert "imagePullPolicy" in message
    assert await store.list_pools() == []
    await described(place)
    await mirror.round()
    assert (await accepted(place))[0] == "True"


async def test_a_pod_that_the_namespaces_security_level_forbids_is_reported_and_holds_up_no_other(
    place: Installed, mirror: PoolMirror, store: PgStore
) -> None:
    """The pool permits it, and the namespace does not: admission's answer is about the template."""
    path, level = f"/api/v1/namespaces/{place.namespace}", "pod-security.kubernetes.io/enforce"
    await place.api.patch(path, {"metadata": {"labels": {level: "baseline"}}})
    try:
        await described(place, "bad", labels=["a"], template=PRIVILEGED, privileged="acceptRisk")
        await described(place, "good", labels=["b"])
        for _ in range(2):
            await mirror.round()
    finally:
        await place.api.patch(path, {"metadata": {"labels": {level: None}}})
    status, reason, message = await accepted(place, "bad")
    assert (status, reason) == ("False", "TemplateRefused")
    assert 'violates PodSecurity "baseline' in message
    assert (await accepted(place, "good"))[0] == "True"
    assert [pool.name for pool in await store.list_pools()] == ["good"]


async def test_an_object_that_no_author_meant_to_write_holds_up_no_other(
    place: Installed, mirror: PoolMirror, store: PgStore, tmp_path: Path
) -> None:
    """I57: the API server accepts both, and thousands of levels."""
    volumes = [{"name": "v", "projected": "x"}]
    await described(
        place, "bad", labels=["a"], template=template("true", spec={"volumes": volumes})
    )
    pool = {
        "apiVersion": "paddock.dev/v1alpha1",
        "kind": "RunnerPool",
        "metadata": {"name": "deep"},
        "spec": {"labels": ["b"], "template": template("true", spec={"nodeSelector": "DEEP"})},
    }
    levels = 9_000
    file = tmp_path / "deep.json"
    deep = '{"a":' * levels + "1" + "}" * levels
    file.write_text(json.dumps(pool).replace('"DEEP"', deep))
    await place.cluster.kubectl("create", "--raw", place.pools, "-f", str(file))
    await described(place, "good", labels=["c"])
    try:
        for _ in range(2):
            await mirror.round()
        assert [pool.name for pool in await store.list_pools()] == ["good"]
        shown = await place.cluster.kubectl("describe", "rpool", "deep", "-n", place.namespace)
        assert "more than 50 levels" in shown
        status, reason, message = await accepted(place, "bad")
        assert (status, reason) == ("False", "Refused")
        assert message == (
            "template.spec.volumes[v].projected should be an object. No runner is made for it."
        )
    finally:
        # Here, since the fixtures' own client cannot read it.
        path = f"{place.pools}/deep"
        gone = {"metadata": {"finalizers": None}}
        await place.api.request("PATCH", path, gone, content_type="application/merge-patch+json")
        await place.api.request("DELETE", path)


async def test_an_object_older_than_the_finalizer_gets_it_and_goes_when_its_pool_is_gone(
    place: Installed, mirror: PoolMirror, store: PgStore
) -> None:
    """I42, I75"""
    await described(place)
    await mirror.round()
    path = f"{place.pools}/linux"
    assert (await place.api.get(path))["metadata"]["finalizers"] == [DRAIN_FINALIZER]
    await mirror.round()
    await place.api.delete(path)
    await mirror.round()
    await mirror.round()
    assert await place.api.exists(path)
    assert await store.delete_drained_pools() == ["linux"]
    await mirror.round()
    await place.api.until_gone(path)


async def test_one_that_was_deleted_by_force_is_drained_all_the_same(
    place: Installed, mirror: PoolMirror, store: PgStore
) -> None:
    await described(place)
    for _ in range(2):
        await mirror.round()
    path = f"{place.pools}/linux"
    await place.api.patch(path, {"metadata": {"finalizers": None}})
    await place.api.delete(path)
    await place.api.until_gone(path)
    for _ in range(2):
        await mirror.round()
        [pool] = await store.list_pools()
        assert pool.state == "active"
    await mirror.round()
    assert [pool.state for pool in await store.list_pools()] != ["active"]
