"""The real cluster of this machine, and a namespace of the test's own in it.

`make cluster` starts it; `make test-cluster` runs these tests. Without a cluster they skip with the
reason; PADDOCK_REQUIRE_CLUSTER=1 makes that a failure. A cluster may lack a part, for example a node
that runs Pods: then only the tests of that part skip. PADDOCK_REQUIRE_WHOLE_CLUSTER=1 makes that a
failure too.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from paddock.fleet.kube.setup import Kube
from paddock.pools import crd
from tests.support.chart import helm
from tests.support.kube import Installed, installed
from tests.support.kube_site import KubeSite, kube_site
from tests.support.release import Release, import_images, released
from tools.cluster import kube_router
from tools.cluster.api import Api, Refused
from tools.cluster.binaries import module_of
from tools.cluster.cluster import Cluster
from tools.cluster.facts import NODE_NAME
from tools.cluster.fake_nodes import FakeNodes
from tools.cluster.images import import_if_changed
from tools.cluster.layout import default_layout
from tools.cluster.registry import Registry
from tools.cluster.say import say
from tools.image.building import CannotBuild

_IN_PARALLEL = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1

_numbers = itertools.count()


#: The default time-out: the test waits for a cluster, on a machine with other load.
_TIMEOUT = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _is_here(item) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_TIMEOUT))


def _is_here(item: pytest.Item) -> bool:
    return item.path.parent == Path(__file__).parent


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Iterator[None]:
    """Some of these tests stop the API server or the node, which would break other sessions. So one
    session at a time has the machine's cluster; another waits here, where no test's time-out
    counts."""
    if _IN_PARALLEL or not any(map(_is_here, session.items)):
        return (yield)
    with default_layout().turn.open("a") as turn:
        try:
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for other tests on this cluster to end")
            fcntl.flock(turn, fcntl.LOCK_EX)
        return (yield)


def _lacks(reason: str) -> NoReturn:
    if os.environ.get("PADDOCK_REQUIRE_WHOLE_CLUSTER") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def started_cluster() -> Cluster:
    if _IN_PARALLEL:
        pytest.skip("tests on the cluster run one at a time: make test-cluster")
    cluster = Cluster.running()
    if cluster is None:
        reason = "no cluster is running on this machine: make cluster starts one"
        if os.environ.get("PADDOCK_REQUIRE_CLUSTER") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return cluster


@pytest.fixture
async def cluster(started_cluster: Cluster) -> AsyncIterator[Cluster]:
    """Each test begins with all parts running, also after a test that stopped some."""
    await started_cluster.mend()
    yield started_cluster
    await started_cluster.mend()


@pytest.fixture
async def api(cluster: Cluster) -> AsyncIterator[Api]:
    """The administrator's client, to arrange and to read; tested code has its own."""
    async with cluster.api() as api:
        yield api


@pytest.fixture(scope="session")
def node(started_cluster: Cluster) -> str:
    """The name of the real node, with the images made from the source as it is now."""
    if not started_cluster.facts.node:
        _lacks("this cluster has no node that runs Pods; make cluster said why")
    import_if_changed(started_cluster.layout)
    return NODE_NAME


@pytest.fixture
async def enforced(cluster: Cluster, node: str) -> AsyncIterator[str]:
    """Enforces NetworkPolicies during the test; yields the enforcing program and its version."""
    if not cluster.has_kube_router:
        _lacks("this cluster enforces no NetworkPolicies; make cluster said why")
    await cluster.start(kube_router.NAME)
    yield f"kube-router {module_of(kube_router.NAME).version}"
    await cluster.stop(kube_router.NAME)


@pytest.fixture
async def make_namespace(
    cluster: Cluster, api: Api
) -> AsyncIterator[Callable[[str], Awaitable[str]]]:
    """Namespaces that are deleted after the test, with all their content."""
    made: list[str] = []

    async def make(prefix: str = "test") -> str:
        made.append(await _make(cluster, api, prefix))
        return made[-1]

    yield make
    for name in made:
        await _remove(api, name)


@pytest.fixture
async def namespace(make_namespace: Callable[[str], Awaitable[str]]) -> str:
    return await make_namespace("test")


@pytest.fixture(scope="module")
async def shared_place(
    started_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Installed]:
    """The objects of `deploy/`, installed once for a module's tests."""
    await started_cluster.mend()
    async with started_cluster.api() as api:
        name = await _make(started_cluster, api, "shared")
        directory = tmp_path_factory.mktemp("place")
        try:
            async with installed(started_cluster, api, name, directory) as place:
                yield place
        finally:
            await _remove(api, name)


@pytest.fixture
async def place(cluster: Cluster, shared_place: Installed) -> AsyncIterator[Installed]:
    """Empty when a test begins."""
    yield shared_place
    await cluster.mend()
    await _empty(shared_place)


@pytest.fixture
async def kube(place: Installed) -> AsyncIterator[Kube]:
    async with place.kube() as kube:
        yield kube


@pytest.fixture
async def fake_nodes(cluster: Cluster, api: Api) -> AsyncIterator[FakeNodes]:
    """Nodes whose Pods run at once and do nothing, for hundreds of Pods."""
    if not (cluster.has_kwok and cluster.has_controllers):
        _lacks("this cluster has no kwok, or no scheduler; make cluster said why")
    async with FakeNodes(api) as nodes:
        yield nodes


@pytest.fixture
def registry(node: str) -> Iterator[Registry]:
    """A registry of images that are not on the node yet and have to be pulled."""
    with Registry() as registry:
        yield registry


@pytest.fixture
async def site(
    cluster: Cluster, api: Api, namespace: str, node: str, tmp_path: Path, database_url: str
) -> AsyncIterator[KubeSite]:
    """All that jobs need: the objects of `deploy/`, real containers, a fake GitHub. The test starts
    servers and pools."""
    async with (
        installed(cluster, api, namespace, tmp_path) as place,
        kube_site(place, database_url) as site,
    ):
        yield site


@pytest.fixture(scope="session")
def images(started_cluster: Cluster, node: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """paddock's own image, made from the source as it is now, and one of a possible next release."""
    if helm() is None:
        _lacks("there is no helm: `python -m tools.cluster build helm` builds it")
    try:
        import_images(started_cluster, tmp_path_factory.mktemp("images"))
    except CannotBuild as error:
        _lacks(str(error))


@pytest.fixture
async def release(
    images: None, cluster: Cluster, api: Api, namespace: str, tmp_path: Path, database_url: str
) -> AsyncIterator[Release]:
    """All that the chart needs around it; the chart is not installed yet."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/runnerpools.paddock.dev"
    await api.apply(path, crd.definition())
    async with released(cluster, api, namespace, tmp_path, database_url) as release:
        yield release


async def _make(cluster: Cluster, api: Api, prefix: str) -> str:
    name = f"{prefix}-{int(time.time()):x}-{os.getpid()}-{next(_numbers)}"
    await api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    if cluster.has_controllers:
        # The API server refuses Pods until their service account exists.
        await api.until(f"/api/v1/namespaces/{name}/serviceaccounts/default", bool)
    return name


async def _remove(api: Api, namespace: str) -> None:
    """Requests the deletion without waiting for it."""
    await _force_away(api, f"/api/v1/namespaces/{namespace}/pods")
    await api.delete(f"/api/v1/namespaces/{namespace}")


async def _empty(place: Installed) -> None:
    for path in (place.pools, place.pods):
        await _force_away(place.api, path)
        await place.api.until(path, lambda found: not found["items"])


async def _force_away(api: Api, path: str) -> None:
    """paddock's finalizer would keep the Pod, and so its namespace, for ever."""
    found: list[Any] = (await api.get(path))["items"]
    for each in found:
        name = f"{path}/{each['metadata']['name']}"
        try:
            if each["metadata"].get("finalizers"):
                await api.patch(name, {"metadata": {"finalizers": None}})
            await api.delete(name, gracePeriodSeconds=0)
        except Refused as refused:
            if refused.status not in (404, 409):
                raise
