"""Decoding Kubernetes' Pods, nodes and watches. The JSON is written by hand after the API's reference;
`tests/cluster` decodes what a real kubelet writes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from paddock.domain.pods.pod import Phase, Pod
from paddock.domain.recovery.evidence import Container, container_seen, poller_seen
from paddock.fleet.kube.logs import beginning_is_gone, is_lost, last_lines
from paddock.fleet.kube.nodes import host, troubles
from paddock.fleet.kube.objects import EventObject, NodeObject, PodObject, event_lines
from paddock.fleet.kube.pod_lists import page
from paddock.fleet.kube.pods import is_ours, shown
from paddock.fleet.kube.watch_state import Expired, Failed, Lines, WatchState
from paddock.host.reports import CONDITION
from paddock.ports.fleet import LOG_IS_CUT

WAITS = {"waiting": {"reason": "PodInitializing"}}
RUNS = {"running": {"startedAt": "2026-11-16T01:00:05Z"}}
READY_TO_START = {"type": "PodReadyToStartContainers", "status": "True"}


def ended(code: int = 0, reason: str = "Completed") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason}}


def body(name: str = "linux-a", *, version: str = "7", **more: Any) -> dict[str, Any]:
    metadata = {
        "name": name,
        "uid": f"uid-of-{name}",
        "resourceVersion": version,
        "labels": {"paddock.dev/pool": "linux", "team": "x"},
        "creationTimestamp": "2026-11-16T01:00:00Z",
        **more.pop("metadata", {}),
    }
    return {
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"nodeName": "node-1", "containers": [{"name": "runner"}], **more.pop("spec", {})},
        "status": {"phase": "Pending", **more},
    }


def read(made: dict[str, Any]) -> Pod:
    return shown(msgspec.convert(made, PodObject))


def gated(pull: Any, poller: Any, vitals: Any, runner: Any, *conditions: Any) -> Pod:
    names = ("pull", "poller", "vitals")
    return read(
        body(
            initContainerStatuses=[
                {"name": name, "state": state}
                for name, state in zip(names, (pull, poller, vitals), strict=True)
            ],
            containerStatuses=[{"name": "runner", "state": runner, "started": False}],
            conditions=list(conditions),
        )
    )


def seen(pod: Pod) -> tuple[Container, Container]:
    return poller_seen(pod.poller), container_seen(pod.containers)


def test_a_pod_whose_image_is_pulled_is_told_from_one_whose_sandbox_does_not_come_up() -> None:
    assert seen(gated(WAITS, WAITS, WAITS, WAITS, READY_TO_START))[0] is Container.PULLING
    assert seen(gated(WAITS, WAITS, WAITS, WAITS))[0] is Container.WAITING
    refused = {"waiting": {"reason": "ImagePullBackOff"}}
    assert seen(gated(refused, WAITS, WAITS, WAITS, READY_TO_START))[0] is Container.IMAGE_ERROR
    broken = {"waiting": {"reason": "CreateContainerConfigError"}}
    assert seen(gated(broken, WAITS, WAITS, WAITS))[0] is Container.BROKEN


def test_an_idle_pod_waits_for_its_poller() -> None:
    """I55"""
    assert seen(gated(ended(), RUNS, WAITS, WAITS, READY_TO_START)) == (
        Container.STARTED,
        Container.WAITING,
    )


@pytest.mark.parametrize(
    ("message", "version"),
    [("2.336.0", "2.336.0"), ("", None), ("2.336.0 <script>", None), ("9" * 4096, None)],
)
def test_the_first_init_container_tells_the_runners_version(
    message: str, version: str | None
) -> None:
    """Before the Pod asks for work."""
    told = {"terminated": {"exitCode": 0, "message": message}}
    assert gated(told, RUNS, WAITS, WAITS).runner_version == version


def test_no_other_container_tells_the_runners_version() -> None:
    """A job writes to its own container's termination log."""
    told = {"terminated": {"exitCode": 0, "message": "2.336.0"}}
    assert gated(RUNS, told, told, told).runner_version is None


def test_a_runner_whose_sidecar_does_not_start_says_so() -> None:
    broken = {"waiting": {"reason": "CreateContainerError"}}
    assert seen(gated(ended(), ended(), broken, WAITS)) == (Container.TERMINATED, Container.BROKEN)


def test_where_one_container_polls_and_runs_it_is_the_poller_too() -> None:
    pod = read(body(containerStatuses=[{"name": "runner", "state": RUNS, "started": True}]))
    assert seen(pod) == (Container.STARTED, Container.STARTED)


def test_a_deletion_was_asked_for_before_its_grace_period() -> None:
    metadata = {"deletionTimestamp": "2026-11-16T01:01:00Z", "deletionGracePeriodSeconds": 60}
    pod = read(body(metadata=metadata))
    assert pod.deletion_requested_at == datetime(2026, 11, 16, 1, 0, tzinfo=UTC)
    assert not pod.phase.terminal


@pytest.mark.parametrize(("observed", "asked_at"), [(2, 2), (1, 5)])
def test_the_kubelets_own_deletion_is_not_taken_for_the_request(
    observed: int, asked_at: int
) -> None:
    """I58: its runner ended at second 2, upon a request; or a deletion came after its end."""
    finished = {"exitCode": 137, "reason": "Error", "finishedAt": "2026-11-16T01:00:02Z"}
    pod = read(
        body(
            phase="Failed",
            metadata={
                "deletionTimestamp": "2026-11-16T01:00:05Z",
                "deletionGracePeriodSeconds": 0,
                "generation": 2,
            },
            observedGeneration=observed,
            containerStatuses=[{"name": "runner", "state": {"terminated": finished}}],
        )
    )
    assert pod.deletion_requested_at == datetime(2026, 11, 16, 1, 0, asked_at, tzinfo=UTC)


def test_a_pod_deleted_before_any_node_had_it_has_ended() -> None:
    metadata = {"deletionTimestamp": "2026-11-16T01:01:00Z", "deletionGracePeriodSeconds": 0}
    assert read(body(metadata=metadata, spec={"nodeName": ""})).phase is Phase.FAILED


def test_a_pod_whose_node_is_no_more_says_so() -> None:
    gone = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
    assert read(body(phase="Failed", conditions=[gone])).reason == "NodeLost"
    drained = {**gone, "reason": "EvictionByEvictionAPI"}
    assert read(body(phase="Failed", conditions=[drained])).reason is None
    assert read(body(phase="Failed", reason="Evicted", conditions=[drained])).reason == "Evicted"


def test_the_schedulers_words_are_kept() -> None:
    refused = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "no",
    }
    assert read(body(conditions=[refused])).unschedulable == "no"
    assert read(body(conditions=[{"type": "PodScheduled", "status": "True"}])).unschedulable is None


def test_a_pod_without_its_label_is_still_ours() -> None:
    """paddock takes a Pod that a list lacks for deleted."""
    stripped = body(metadata={"labels": {}, "finalizers": ["paddock.dev/verdict"]})
    stripped["metadata"]["annotations"] = {"paddock.dev/pool": "linux"}
    assert is_ours(msgspec.convert(stripped, PodObject))
    assert read(stripped).pool == "linux"
    assert not is_ours(msgspec.convert(body(metadata={"labels": {}}), PodObject))


def test_a_list_with_a_pod_that_cannot_be_read_is_not_complete() -> None:
    """I29"""
    content = json.dumps({"items": [body(), {"metadata": {"name": 7}}], "metadata": {}}).encode()
    found = page(content)
    assert [pod.metadata.name for pod in found.pods] == ["linux-a"]
    assert not found.readable


# Watching.


def line(kind: str, made: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": made}).encode()


def begun(*names: str) -> WatchState:
    following = WatchState()
    list(following.begin([read(body(name)) for name in names], whole=True, version="5"))
    return following


def test_a_watch_goes_on_after_the_last_thing_it_was_told() -> None:
    following = begun()
    pod = following.line(line("ADDED", body(version="9")))
    assert pod is not None
    assert following.version == "9"
    bookmark = {"kind": "Pod", "metadata": {"resourceVersion": "12", "creationTimestamp": None}}
    assert following.line(line("BOOKMARK", bookmark)) is None
    assert following.version == "12"


def test_what_changed_nothing_is_not_told() -> None:
    assert begun("linux-a").line(line("MODIFIED", body(version="9"))) is None


def test_a_deleted_pod_is_told_once_more() -> None:
    gone = begun("linux-a").line(line("DELETED", body(version="9")))
    assert gone is not None
    assert (gone.phase, gone.reason) == (Phase.UNKNOWN, "deleted")


def test_a_watch_that_begins_anew_tells_who_went_meanwhile() -> None:
    following = begun("linux-a", "linux-b")
    with pytest.raises(Expired):
        following.line(line("ERROR", {"kind": "Status", "status": "Failure", "code": 410}))
    assert following.version is None
    again = list(following.begin([read(body("linux-b"))], whole=True, version="20"))
    assert [(pod.name, pod.reason) for pod in again] == [("linux-a", "deleted")]


def test_a_pod_of_the_same_name_is_another() -> None:
    following = begun("linux-a")
    other = read(body("linux-a", metadata={"uid": "another"}))
    shown_pods = list(following.begin([other], whole=True, version="20"))
    assert [(pod.uid, pod.reason) for pod in shown_pods] == [
        ("uid-of-linux-a", "deleted"),
        ("another", None),
    ]


def test_who_is_missing_in_part_of_a_list_has_not_gone() -> None:
    """I29"""
    following = begun("linux-a", "linux-b")
    assert list(following.begin([read(body("linux-b"))], whole=False, version="20")) == []
    assert [
        pod.name for pod in following.begin([read(body("linux-b"))], whole=True, version="30")
    ] == ["linux-a"]


def test_one_pod_that_cannot_be_read_does_not_stop_the_watch() -> None:
    """I13"""
    following = begun()
    assert following.line(line("ADDED", body(version="9", phase=7))) is None
    assert following.version == "9"


def test_other_troubles_of_the_server_end_the_watch() -> None:
    with pytest.raises(Failed, match="too busy"):
        begun().line(line("ERROR", {"status": "Failure", "code": 500, "message": "too busy"}))
    with pytest.raises(Failed):
        begun().line(b"<html>")


def test_lines_come_in_pieces() -> None:
    lines = Lines()
    assert lines.feed(b'{"a"') == []
    assert lines.feed(b': 1}\n{"b": 2}\n{') == [b'{"a": 1}', b'{"b": 2}']


# Nodes.


def node(**more: Any) -> NodeObject:
    made = {
        "metadata": {"name": "node-1", **more.pop("metadata", {})},
        "spec": more.pop("spec", {}),
        "status": {
            "allocatable": {"cpu": "3920m", "memory": "8145528Ki", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
            **more,
        },
    }
    return msgspec.convert(made, NodeObject)


def test_a_node_has_room_for_so_many_pods() -> None:
    capacity = host(node()).capacity
    assert capacity is not None
    assert (capacity.runners, capacity.vcpu_milli, capacity.memory_mib) == (110, 3920, 7955)


@pytest.mark.parametrize(
    ("more", "attribute"),
    [
        ({"spec": {"unschedulable": True}}, "cordoned"),
        ({"metadata": {"deletionTimestamp": "2026-11-16T01:00:00Z"}}, "deleting"),
        (
            {"spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}},
            "deleting",
        ),
    ],
)
def test_a_node_that_is_leaving(more: Any, attribute: str) -> None:
    """I43"""
    assert getattr(host(node(**more)), attribute)
    assert host(node(**more)).leaving
    assert not host(node()).leaving


def test_a_node_that_is_not_ready_says_why() -> None:
    lost = node(
        conditions=[
            {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"},
            {"type": "MemoryPressure", "status": "True", "message": "little is left"},
        ]
    )
    assert not host(lost).ready
    assert troubles(lost) == [
        "its node is not ready (NodeStatusUnknown)",
        "its node reports MemoryPressure (little is left)",
    ]


def _condition(status: str, **more: str) -> list[dict[str, str]]:
    return [
        {"type": "Ready", "status": "True"},
        {"type": CONDITION, "status": status, **more},
    ]


def test_a_host_whose_bootstrap_fails_is_fit_for_no_pod_and_says_why() -> None:
    busy = node(conditions=_condition("False", reason="LoadFailed", message="Resource busy"))
    assert host(busy).fault == "LoadFailed: Resource busy"
    assert host(busy).leaving
    assert "its node is not fit for runners (LoadFailed: Resource busy)" in troubles(busy)
    assert host(node(conditions=_condition("True"))).fault is None


def test_a_mac_of_which_nothing_is_said_is_no_host_for_runners() -> None:
    """Without a report paddock cannot know that its virtual machines are filtered."""
    mac = {"labels": {"kubernetes.io/os": "darwin"}}
    assert host(node(metadata=mac)).leaving
    assert not host(node(metadata=mac, conditions=_condition("True"))).leaving
    assert not host(node(metadata={"labels": {"kubernetes.io/os": "linux"}})).leaving


def test_runners_do_not_share_the_control_planes_nodes() -> None:
    taint = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
    assert host(node(spec={"taints": [taint]})).capacity is None


# Logs and events.

STARTED = datetime(2026, 11, 16, 1, 0, 5, tzinfo=UTC)
FIRST = b"2026-11-16T01:00:05.123456789Z paddock: starting the runner\n"
LATE = b"2026-11-16T01:30:00.000000001Z step 9000\n"


def test_a_log_that_the_kubelet_renewed_is_not_the_whole() -> None:
    """I24: a job that prints much hides the line that says it is one."""
    assert not beginning_is_gone(FIRST + LATE, STARTED)
    assert beginning_is_gone(LATE, STARTED)
    assert beginning_is_gone(b"", STARTED)
    assert beginning_is_gone(b"no time at all\n", STARTED)


def test_a_kubelets_message_about_a_lost_log_is_no_log() -> None:
    assert is_lost(b"unable to retrieve container logs for containerd://1926b5")
    assert is_lost(b'failed to try resolving symlinks in path "/var/log/pods/x": no such file')
    assert not is_lost(b"")
    assert not is_lost(b"2026-11-16T01:00:00.1Z unable to retrieve container logs for x\n")


def test_the_end_of_a_log_comes_without_times() -> None:
    assert last_lines(FIRST + LATE, lines=1, most_bytes=99, cut=False) == "step 9000\n"
    assert last_lines(LATE, lines=9, most_bytes=99, cut=True) == f"{LOG_IS_CUT}\nstep 9000\n"


def test_events_are_told_in_order() -> None:
    events = [
        EventObject(reason="Killing", message="bye", event_time=STARTED),
        EventObject(
            reason="BackOff",
            message="again\nand again",
            count=7,
            last_timestamp=datetime(2026, 11, 16, 1, 0, 1, tzinfo=UTC),
        ),
    ]
    assert event_lines(events) == [
        "2026-11-16T01:00:01+00:00 BackOff, 7 times: again and again",
        "2026-11-16T01:00:05+00:00 Killing: bye",
    ]
