"""The fleet of a cluster: runners as Pods of one namespace.

The only state kept here is the log tail of Pods that are about to end: the API server soon loses it.
A Pod is created under the name that its row fixed, so creating it twice makes one Pod. It is deleted by
its UID. Our finalizer stays on it until its end is recorded (I30).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from typing import Final

import msgspec

from paddock.domain.names import PodName
from paddock.domain.pods.pod import Host, Pod, PodList, PodOrder
from paddock.fleet.kube.announced_ends import AnnouncedEnds
from paddock.fleet.kube.api import MERGE, STRATEGIC, KubeApi, KubeCall, RequestRefused, Resource
from paddock.fleet.kube.death_logs import DeathLogBuffer, DeathLogs, end_is_announced
from paddock.fleet.kube.node_lists import NodeLists
from paddock.fleet.kube.nodes import troubles
from paddock.fleet.kube.objects import (
    OWNER_LABEL,
    VERDICT_FINALIZER,
    EventObject,
    Listed,
    NodeObject,
    PodObject,
    event_lines,
)
from paddock.fleet.kube.pod_lists import PodLists
from paddock.fleet.kube.pod_watch import PodWatch
from paddock.fleet.kube.pods import shown
from paddock.fleet.kube.shapes import Placement, TemplateRefused, label_value, manifest
from paddock.ports import Circumstances, Clock, FleetUnavailable

#: The most events of one Pod that are read.
_EVENTS: Final = 100

_EVENT_LIST: Final = msgspec.json.Decoder(Listed[EventObject])


class KubeFleet:
    def __init__(
        self, api: KubeApi, placement: Placement, *, clock: Clock, node_selector: str | None = None
    ) -> None:
        self._api = api
        self._placement = placement
        self._clock = clock
        self._pods = Resource("pods", namespace=placement.namespace)
        self._nodes = Resource("nodes")
        self._events = Resource("events", namespace=placement.namespace)
        self._node_lists = NodeLists(api, self._nodes, selector=node_selector)
        self._lists = PodLists(api, self._pods)
        self._watch = PodWatch(api, self._pods, self._lists, clock=clock)
        self._words = DeathLogs(api, self._pods)
        self._death_logs = DeathLogBuffer(self._words.last)

    async def aclose(self) -> None:
        await self._node_lists.aclose()
        await self._death_logs.aclose()

    # Creating and deleting Pods.

    async def create(self, order: PodOrder) -> Pod:
        try:
            pod = manifest(order, self._placement)
        except TemplateRefused as error:
            raise FleetUnavailable(
                f"The Pod {order.name} cannot be made: the template of the pool {order.pool} is of no "
                f"use: {error}."
            ) from error
        call = KubeCall("create", self._pods)
        try:
            return shown(await self._api.send("POST", call, pod, PodObject))
        except RequestRefused as error:
            if not (error.conflict and error.reason == "AlreadyExists"):
                raise
        found = await self._api.get(KubeCall("get", self._pods, order.name), PodObject)
        if found.metadata.annotations.runner != str(order.runner):
            raise FleetUnavailable(
                f"There is a Pod {order.name} in the namespace {self._placement.namespace} that is not "
                "paddock's: rename or delete it."
            )
        return shown(found)

    async def delete_live_pod(self, name: PodName, *, uid: str) -> None:
        call = KubeCall("delete", self._pods, name)
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        try:
            await self._api.send("DELETE", call, options, msgspec.Raw)
        except RequestRefused as error:
            # Absent, or another Pod has that name (I36).
            if not (error.absent or error.conflict):
                raise

    async def reap(self, name: PodName, *, uid: str) -> None:
        """Remove our finalizer, then delete the Pod: an ended Pod without finalizers is gone at once.
        In the reverse order its kubelet would see the deletion first and delete the Pod once more."""
        change = {
            "metadata": {"uid": uid, "$deleteFromPrimitiveList/finalizers": [VERDICT_FINALIZER]}
        }
        left = await self._patch(name, change, STRATEGIC)
        # A grace period of 0: the Pod was already deleted and waited only for our finalizer.
        if left is not None and left.metadata.deletion_grace_period_seconds != 0:
            await self.delete_live_pod(name, uid=uid)

    async def stamp(self, name: PodName, *, uid: str, owner: str) -> None:
        labels = {OWNER_LABEL: label_value(owner)}
        await self._patch(name, {"metadata": {"uid": uid, "labels": labels}}, MERGE)

    async def _patch(self, name: PodName, change: object, content_type: str) -> PodObject | None:
        """The patched Pod; `None` if no Pod has that UID. A Pod of another UID is not changed (I36)."""
        call = KubeCall("patch", self._pods, name)
        try:
            return await self._api.send("PATCH", call, change, PodObject, content_type=content_type)
        except RequestRefused as error:
            # A conflict over the UID's precondition; the message tells it from a concurrent write.
            if not (error.absent or (error.conflict and "uid" in str(error).lower())):
                raise
        return None

    # Reading Pods and nodes.

    async def list(self) -> PodList:
        read = await self._lists.read()
        return PodList(pods=tuple(read.pods), complete=read.complete)

    async def watch(self) -> AsyncIterator[Pod]:
        """Yields all Pods, then each change. Ends only by an exception. Meanwhile the log of each Pod
        whose end is announced is read."""
        announcements = AnnouncedEnds(
            self._api, self._events, clock=self._clock, tell=self._death_logs.listen
        )
        announcing = asyncio.create_task(announcements.run())
        try:
            async with aclosing(self._watch.changes()) as changes:
                async for pod in changes:
                    if end_is_announced(pod):
                        self._death_logs.listen(pod.name, pod.uid)
                    yield pod
        finally:
            announcing.cancel()
            await asyncio.gather(announcing, return_exceptions=True)

    async def hosts(self) -> Sequence[Host]:
        return await self._node_lists.read()

    # Evidence about a Pod's end.

    async def log_tail(self, name: PodName, *, uid: str, lines: int, most_bytes: int) -> str | None:
        return await self._words.tail(name, uid=uid, lines=lines, most_bytes=most_bytes)

    async def captured_log(self, *, uid: str) -> str | None:
        return await self._death_logs.of(uid)

    async def circumstances(self, *, uid: str, node: str | None) -> Circumstances:
        """What can be read of the Pod's events and its node's troubles; a failed read is left out."""
        answers = await asyncio.gather(
            self._said_of(uid), self._troubles_of(node), return_exceptions=True
        )
        found: list[str] = []
        complete = True
        for answer in answers:
            if isinstance(answer, FleetUnavailable):
                found.append(f"not known: {answer}")
                complete = False
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found += answer
        return Circumstances(found, complete)

    async def _said_of(self, uid: str) -> Iterable[str]:
        params = {"fieldSelector": f"involvedObject.uid={uid}", "limit": str(_EVENTS)}
        listed = await self._api.get(KubeCall("list", self._events), _EVENT_LIST, params)
        return event_lines(listed.items)

    async def _troubles_of(self, node: str | None) -> Iterable[str]:
        if node is None:
            return []
        try:
            found = await self._api.get(KubeCall("get", self._nodes, node), NodeObject)
        except RequestRefused as error:
            if error.absent:
                return [f"its node {node} is no more"]
            raise
        return troubles(found)

    def template_refusal(self, order: PodOrder) -> str | None:
        try:
            manifest(order, self._placement)
        except TemplateRefused as refused:
            return str(refused)
        return None

    async def try_out(self, order: PodOrder) -> str | None:
        """Why the API server would refuse such a Pod; `None` if it would accept it."""
        try:
            pod = manifest(order, self._placement)
        except TemplateRefused as error:
            return str(error)
        try:
            await self._api.send(
                "POST", KubeCall("create", self._pods), pod, msgspec.Raw, params={"dryRun": "All"}
            )
        except RequestRefused as error:
            if error.code in (400, 422) or error.by_admission:
                return str(error)
            raise
        return None
