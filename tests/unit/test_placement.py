"""Which pools share which hosts."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from paddock.domain.ids import PoolId
from paddock.domain.limits import Resources
from paddock.domain.names import PodName
from paddock.domain.pods.placement import NodeConstraints, Toleration, sharing
from paddock.domain.pods.pod import Host, Phase, Pod, Taint
from paddock.domain.pools.sizing import Room
from paddock.domain.pools.surveys import SurveyedPool
from paddock.domain.pools.terms import Terms
from paddock.pools.hosts import rooms

NOON = datetime(2026, 6, 6, 12, tzinfo=UTC)
MAC = Taint("paddock.dev/mac", "true", "NoSchedule")
SELECTOR = {"kubernetes.io/os": "darwin"}
TOLERATION = {"key": "paddock.dev/mac", "operator": "Exists"}
WHOLE = Resources(runners=1, vcpu_milli=8000, memory_mib=16000)
LINUX, MACS, ARM = PoolId(1), PoolId(2), PoolId(3)


def linux(name: str = "linux-1", **labels: str) -> Host:
    roomy = Resources(runners=10, vcpu_milli=80_000, memory_mib=160_000)
    return Host(name=name, capacity=roomy, labels={"kubernetes.io/os": "linux", **labels})


def mac(name: str, fault: str | None = None) -> Host:
    return Host(name=name, capacity=WHOLE, labels=SELECTOR, taints=(MAC,), fault=fault)


def pool(number: PoolId, name: str, **spec: Any) -> SurveyedPool:
    return SurveyedPool(
        id=number,
        name=name,
        state="active",
        spec=json.dumps({"template": {"spec": spec}}),
        spec_hash="1",
        cost=Resources(runners=1, vcpu_milli=4000, memory_mib=8000),
        paused=False,
        live=0,
        present=0,
        occupied=0,
    )


POOLS = [
    pool(LINUX, "linux", nodeSelector={"kubernetes.io/os": "linux"}),
    pool(MACS, "macs", nodeSelector=SELECTOR, tolerations=[TOLERATION]),
]


def places(hosts: list[Host], pods: tuple[Pod, ...] = ()) -> dict[PoolId, int | None]:
    """How many runners the hosts have room for, by pool."""
    found: list[Room] = rooms(POOLS, {each.id: Terms() for each in POOLS}, hosts, pods)
    return {number: room.limits.runners for room in found for number in room.pools or ()}


def on(host: str, pool: str) -> Pod:
    return Pod(
        name=PodName(f"{pool}-{host}"),
        uid=host,
        pool=pool,
        phase=Phase.RUNNING,
        node=host,
        created_at=NOON,
    )


def test_a_pool_has_the_room_of_the_hosts_it_may_use_and_no_other() -> None:
    assert places([linux(), mac("mac-1"), mac("mac-2")]) == {LINUX: 10, MACS: 2}


def test_a_host_with_a_fault_is_out_of_its_pools_room_and_of_no_others() -> None:
    hosts = [linux(), mac("mac-1"), mac("mac-2", fault="LoadFailed: Resource busy")]
    assert places(hosts) == {LINUX: 10, MACS: 1}
    everywhere = [replace(host, fault="LoadFailed") for host in hosts]
    assert places(everywhere) == {LINUX: 0, MACS: 0}


def test_a_job_on_a_host_that_got_a_fault_takes_no_place_elsewhere() -> None:
    hosts = [mac("mac-1"), mac("mac-2", fault="LoadFailed")]
    assert places(hosts, (on("mac-2", "macs"),)) == {MACS: 2}


def test_pools_that_can_have_the_same_host_share_all_they_can_have() -> None:
    wanted = {
        LINUX: NodeConstraints(node_selector={"kubernetes.io/os": "linux"}),
        ARM: NodeConstraints(node_selector={"arch": "arm"}),
        MACS: NodeConstraints(node_selector=SELECTOR, tolerations=[Toleration(operator="Exists")]),
    }
    hosts = [linux("a"), linux("b", arch="arm"), mac("mac-1")]
    found = {pools: {host.name for host in theirs} for pools, theirs in sharing(wanted, hosts)}
    assert found == {frozenset({LINUX, ARM}): {"a", "b"}, frozenset({MACS}): {"mac-1"}}


def test_a_pool_without_hosts_is_held_to_nothing() -> None:
    """I29: perhaps they have not been read yet. The scheduler will say."""
    assert places([linux()]) == {LINUX: 10}


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        ({"key": "paddock.dev/mac", "operator": "Exists"}, True),
        ({"key": "paddock.dev/mac", "value": "true"}, True),
        ({"key": "paddock.dev/mac", "value": "false"}, False),
        ({"key": "paddock.dev/mac", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"operator": "Exists"}, True),
        ({"value": "true"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_a_taint_is_tolerated_as_the_scheduler_does(
    toleration: dict[str, str], tolerates: bool
) -> None:
    spec = json.dumps({"template": {"spec": {"tolerations": [toleration]}}})
    assert NodeConstraints.of(spec).admit(mac("mac-1")) is tolerates


def test_a_runtime_class_may_tolerate_what_the_template_does_not() -> None:
    """A pool that seems to have no room is worse than one that seems to have too much."""
    kata = json.dumps({"template": {"spec": {"runtimeClassName": "kata"}}})
    assert NodeConstraints.of(kata).admit(mac("mac-1"))
    chosen = {"runtimeClassName": "kata", "nodeSelector": {"kubernetes.io/os": "linux"}}
    assert not NodeConstraints.of(json.dumps({"template": {"spec": chosen}})).admit(mac("mac-1"))


def test_taints_of_a_state_say_not_for_whom_a_host_is() -> None:
    cordoned = Taint("node.kubernetes.io/unschedulable", effect="NoSchedule")
    assert NodeConstraints().admit(replace(linux(), taints=(cordoned,)))


@pytest.mark.parametrize("spec", ["", "{}", '{"template": null}', '{"template": {"spec": 3}}'])
def test_a_description_without_a_template_may_be_anywhere(spec: str) -> None:
    assert NodeConstraints.of(spec).admit(linux())
