"""The nodes of a cluster: listed once, then kept current by a watch while it lasts.

Pools ask for the nodes every few seconds; nodes change every few minutes. A watch ends after ten
minutes at the latest, and at the first line it does not understand. The next read then lists the nodes
again. So a missed change is wrong for minutes at most, and a role that may only list is enough.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
import structlog

from paddock.domain.pods.pod import Host
from paddock.fleet.kube.api import SILENCE, KubeApi, KubeCall, RequestRefused, Resource, Unreached
from paddock.fleet.kube.nodes import host
from paddock.fleet.kube.objects import Listed, NodeObject, WatchEvent
from paddock.fleet.kube.watch_state import Lines

_log = structlog.get_logger()

_WATCH_SECONDS: Final = 600

_LISTED: Final = msgspec.json.Decoder(Listed[NodeObject])
_CHANGED: Final = msgspec.json.Decoder(WatchEvent[NodeObject])
_CHANGES: Final = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})


class NodeLists:
    def __init__(self, api: KubeApi, nodes: Resource, *, selector: str | None) -> None:
        self._api = api
        self._nodes = nodes
        self._params = {"labelSelector": selector} if selector else {}
        self._hosts: dict[str, Host] = {}
        self._watch: asyncio.Task[None] | None = None
        self._may_watch = True

    async def read(self) -> Sequence[Host]:
        if self._watch is None or self._watch.done():
            listed = await self._api.get(KubeCall("list", self._nodes), _LISTED, self._params)
            self._hosts = {node.metadata.name: host(node) for node in listed.items}
            if self._may_watch:
                version = listed.metadata.resource_version
                self._watch = asyncio.create_task(self._follow(version), name="watch of nodes")
        return [self._hosts[name] for name in sorted(self._hosts)]

    async def aclose(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)

    async def _follow(self, version: str) -> None:
        """Watch from this version until the watch ends, for any reason."""
        params = {
            **self._params,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_SECONDS),
            "resourceVersion": version,
        }
        lines = Lines()
        call = KubeCall("watch", self._nodes)
        try:
            async with self._api.stream(call, params, silence=SILENCE) as received:
                async for some in received:
                    for line in lines.feed(some):
                        self._apply(line)
        except RequestRefused as error:
            self._may_watch = not error.denied
            _log.info("kubernetes.node_watch_denied", error=str(error))
        except (Unreached, msgspec.MsgspecError, _NotUnderstood) as error:
            _log.info("kubernetes.node_watch_ended", error=str(error))

    def _apply(self, line: bytes) -> None:
        change = _CHANGED.decode(line)
        if change.type not in _CHANGES:
            raise _NotUnderstood(change.type)
        name = change.object.metadata.name
        if change.type == "DELETED":
            self._hosts.pop(name, None)
        elif change.type != "BOOKMARK":
            self._hosts[name] = host(change.object)


class _NotUnderstood(Exception):
    """A change of unknown type: an error of the API server's, mostly that it no longer has the version
    to resume from."""
