"""The fleet of a cluster: runners as Pods of one namespace.

Nothing is remembered here that the API server does not know. A Pod is made under the name its row
fixed, so making it twice makes one; it is deleted by its UID; and our finalizer stays on it until its
end is on record (I30).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from paddock.domain.fingerprints import RUNNER_CONTAINER
from paddock.domain.names import PodName
from paddock.domain.pods import Host, Pod, PodList, PodOrder
from paddock.fleet.kube.api import MERGE, STRATEGIC, Call, KubeApi, Refused, Resource, Unreached
from paddock.fleet.kube.following import Expired, Failed, Following, Lines
from paddock.fleet.kube.logs import LogState, beginning_is_gone, is_lost, last_lines
from paddock.fleet.kube.nodes import host, troubles
from paddock.fleet.kube.objects import (
    OWNER_LABEL,
    VERDICT_FINALIZER,
    EventObject,
    Listed,
    ListMetadata,
    NodeObject,
    PodObject,
)
from paddock.fleet.kube.pods import is_ours, shown
from paddock.fleet.kube.shapes import Placement, TemplateRefused, label_value, manifest
from paddock.fleet.kube.telling import told
from paddock.ports import Clock, FleetUnavailable

_log = structlog.get_logger()

#: Some 2.5 MB at once: the server need not hold more of a large list in memory.
_PAGE: Final = 1000
#: A server ends a watch after half an hour to an hour by itself; all at the same moment if it is
#: restarted. Shorter, so that replicas drift apart.
_WATCH_SECONDS: Final = 600
#: After a watch that broke; then twice as long each time.
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 15.0
#: Each of the many things that may be said of one Pod.
_EVENTS: Final = 100
#: Lines have no longest length: this much is read to find the end of a log.
_LOG_READ: Final = 32 * 1024 * 1024

_PODS: Final = msgspec.json.Decoder(Listed[PodObject])


class _Pages(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw]
    metadata: ListMetadata = ListMetadata()


_RAW_PODS: Final = msgspec.json.Decoder(_Pages)
_NODES: Final = msgspec.json.Decoder(Listed[NodeObject])
_EVENT_LIST: Final = msgspec.json.Decoder(Listed[EventObject])


@dataclass(frozen=True, slots=True)
class _Read:
    """All Pods, whether these are all, and from which version a watch goes on."""

    pods: Sequence[Pod]
    complete: bool
    version: str


@dataclass(frozen=True, slots=True)
class _Page:
    pods: list[PodObject]
    readable: bool
    metadata: ListMetadata


class KubeFleet:
    def __init__(
        self, api: KubeApi, placement: Placement, *, clock: Clock, node_selector: str | None = None
    ) -> None:
        self._api = api
        self._placement = placement
        self._clock = clock
        self._node_selector = node_selector
        self._pods = Resource("pods", namespace=placement.namespace)
        self._nodes = Resource("nodes")
        self._events = Resource("events", namespace=placement.namespace)

    # Making and taking away.

    async def create(self, order: PodOrder) -> Pod:
        try:
            pod = manifest(order, self._placement)
        except TemplateRefused as error:
            raise FleetUnavailable(
                f"The Pod {order.name} cannot be made: the template of the pool {order.pool} is of no "
                f"use: {error}."
            ) from error
        call = Call("create", self._pods)
        try:
            return shown(await self._api.send("POST", call, pod, PodObject))
        except Refused as error:
            if not (error.conflict and error.reason == "AlreadyExists"):
                raise
        found = await self._api.get(Call("get", self._pods, order.name), PodObject)
        if found.metadata.annotations.runner != str(order.runner):
            raise FleetUnavailable(
                f"There is a Pod {order.name} in the namespace {self._placement.namespace} that is not "
                "paddock's: rename or delete it."
            )
        return shown(found)

    async def ask_to_go(self, name: PodName, *, uid: str) -> None:
        call = Call("delete", self._pods, name)
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        try:
            await self._api.send("DELETE", call, options, msgspec.Raw)
        except Refused as error:
            # Not there, or another of that name (I36).
            if not (error.absent or error.conflict):
                raise

    async def reap(self, name: PodName, *, uid: str) -> None:
        await self.ask_to_go(name, uid=uid)
        change = {
            "metadata": {"uid": uid, "$deleteFromPrimitiveList/finalizers": [VERDICT_FINALIZER]}
        }
        await self._patch(name, change, STRATEGIC)

    async def stamp(self, name: PodName, *, uid: str, owner: str) -> None:
        labels = {OWNER_LABEL: label_value(owner)}
        await self._patch(name, {"metadata": {"uid": uid, "labels": labels}}, MERGE)

    async def _patch(self, name: PodName, change: object, content_type: str) -> None:
        """A Pod of another UID is left alone."""
        call = Call("patch", self._pods, name)
        try:
            await self._api.send("PATCH", call, change, msgspec.Raw, content_type=content_type)
        except Refused as error:
            # The precondition of the UID; two who write at once are told apart by the words.
            if not (error.absent or (error.conflict and "uid" in str(error).lower())):
                raise

    # Looking.

    async def list(self) -> PodList:
        read = await self._read()
        return PodList(pods=tuple(read.pods), complete=read.complete)

    async def watch(self) -> AsyncIterator[Pod]:
        """Begins with all there are. Ends only by an exception."""
        following = Following()
        failures = 0
        while True:
            try:
                if following.version is None:
                    read = await self._read()
                    for pod in following.begin(
                        read.pods, whole=read.complete, version=read.version
                    ):
                        yield pod
                async with aclosing(self._changes(following)) as changes:
                    async for pod in changes:
                        failures = 0
                        yield pod
                # A server that is going down ends each watch as soon as it begins.
                await self._clock.sleep(_FIRST_PAUSE)
            except Expired:
                _log.info("the watch of Pods begins anew: the server has forgotten where it was")
            except (Failed, Unreached, Refused) as error:
                if isinstance(error, Refused) and error.expired:
                    following.version = None
                    continue
                # A server that has just started denies everything for a moment: what was allowed once
                # is tried again.
                if isinstance(error, Refused) and error.denied and not following.begun:
                    raise
                failures += 1
                _log.warning("the watch of Pods broke off", error=str(error), failures=failures)
                await self._clock.sleep(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(failures, 6)))

    async def _changes(self, following: Following) -> AsyncGenerator[Pod, None]:
        """Until the server ends it, which it does in good order every few minutes."""
        params = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        if following.version is None:
            raise Failed("there is no whole list to go on from")
        params["resourceVersion"] = following.version
        lines = Lines()
        async with self._api.stream(Call("watch", self._pods), params, patient=True) as received:
            async for some in received:
                for line in lines.feed(some):
                    if pod := following.line(line):
                        yield pod

    async def _read(self) -> _Read:
        pods: list[Pod] = []
        params = {"limit": str(_PAGE)}
        complete = True
        while True:
            try:
                page = await self._page(params)
            except Refused as error:
                if not (error.expired and pods):
                    raise
                # It took us so long that the rest is of another moment (I29).
                return _Read(pods, False, "")
            complete = complete and page.readable
            pods += [shown(found) for found in page.pods if is_ours(found)]
            if not page.metadata.continue_:
                return _Read(pods, complete, page.metadata.resource_version)
            params["continue"] = page.metadata.continue_

    async def _page(self, params: dict[str, str]) -> _Page:
        content = await self._api.read(Call("list", self._pods), params)
        try:
            listed = _PODS.decode(content)
        except msgspec.MsgspecError as error:
            return _one_by_one(content, error)
        return _Page(listed.items, True, listed.metadata)

    async def hosts(self) -> Sequence[Host]:
        params = {"labelSelector": self._node_selector} if self._node_selector else {}
        listed = await self._api.get(Call("list", self._nodes), _NODES, params)
        return [host(node) for node in listed.items]

    # What is left to tell of an end.

    async def log_tail(self, name: PodName, *, uid: str, lines: int, most_bytes: int) -> str | None:
        try:
            found = await self._api.get(Call("get", self._pods, name), LogState)
            if found.uid != uid or not found.has_log:
                return None
            text, whole = await self._log(name, lines=lines, most_bytes=most_bytes)
        except Refused as error:
            # 400: its container has not started, or its log is gone from the node.
            if error.code in (400, 404):
                return None
            raise
        if is_lost(text):
            return None
        return last_lines(
            text,
            lines=lines,
            most_bytes=most_bytes,
            cut=whole and beginning_is_gone(text, found.started_at),
        )

    async def _log(self, name: PodName, *, lines: int, most_bytes: int) -> tuple[bytes, bool]:
        """The end of it, with the kubelet's timestamps, and whether there was no more."""
        params = {
            "container": RUNNER_CONTAINER,
            "tailLines": str(lines),
            "timestamps": "true",
            # A limit cuts off the end, which is what is asked for. This one is only for those who
            # would fill our memory.
            "limitBytes": str(_LOG_READ),
        }
        kept: deque[bytes] = deque()
        size = dropped = 0
        async with self._api.stream(Call("get", self._pods, name, "log"), params) as received:
            async for some in received:
                kept.append(some)
                size += len(some)
                # Timestamps are 31 characters a line, and are taken off later.
                while size - len(kept[0]) >= 2 * most_bytes + 32 * lines:
                    size -= len(kept[0])
                    dropped += len(kept.popleft())
        text = b"".join(kept)
        return text, not dropped and text.count(b"\n") < lines

    async def circumstances(self, *, uid: str, node: str | None) -> Sequence[str]:
        """What the cluster has to say of it, a sentence each; as much as can be had."""
        answers = await asyncio.gather(
            self._said_of(uid), self._troubles_of(node), return_exceptions=True
        )
        found: list[str] = []
        for answer in answers:
            if isinstance(answer, FleetUnavailable):
                found.append(f"not known: {answer}")
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found += answer
        return found

    async def _said_of(self, uid: str) -> Iterable[str]:
        params = {"fieldSelector": f"involvedObject.uid={uid}", "limit": str(_EVENTS)}
        listed = await self._api.get(Call("list", self._events), _EVENT_LIST, params)
        return told(listed.items)

    async def _troubles_of(self, node: str | None) -> Iterable[str]:
        if node is None:
            return []
        try:
            found = await self._api.get(Call("get", self._nodes, node), NodeObject)
        except Refused as error:
            if error.absent:
                return [f"its node {node} is no more"]
            raise
        return troubles(found)

    async def try_out(self, order: PodOrder) -> str | None:
        """What the API server would say to such a Pod; `None` if nothing is wrong with it."""
        try:
            pod = manifest(order, self._placement)
        except TemplateRefused as error:
            return str(error)
        try:
            await self._api.send(
                "POST", Call("create", self._pods), pod, msgspec.Raw, params={"dryRun": "All"}
            )
        except Refused as error:
            if error.code in (400, 422):
                return str(error)
            raise
        return None


def _one_by_one(content: bytes, error: msgspec.MsgspecError) -> _Page:
    """One Pod that cannot be read hides no other, but the list is not complete (I29)."""
    try:
        page = _RAW_PODS.decode(content)
    except msgspec.MsgspecError:
        raise Unreached(f"Kubernetes' list of Pods cannot be read: {error}.") from error
    pods = []
    for item in page.items:
        try:
            pods.append(msgspec.json.decode(item, type=PodObject))
        except msgspec.MsgspecError as mistake:
            _log.warning("a Pod cannot be read", error=str(mistake))
    return _Page(pods, False, page.metadata)
