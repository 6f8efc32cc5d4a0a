"""RunnerPool objects, at the API server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec
import structlog

from paddock.domain.pools.objects import (
    API_VERSION,
    GROUP,
    KIND,
    PLURAL,
    VERSION,
    PoolObject,
    PoolObjects,
    PoolStatus,
)
from paddock.fleet.kube.api import MERGE, SILENCE, KubeApi, KubeCall, RequestRefused, Resource
from paddock.fleet.kube.objects import Listed, Metadata
from paddock.fleet.kube.watch_state import Lines

_log = structlog.get_logger()

_PAGE: Final = 500
_WATCH_SECONDS: Final = 600


class _Object(msgspec.Struct, frozen=True):
    metadata: Metadata = Metadata()
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")


class _Kind(msgspec.Struct, frozen=True):
    type: str


_LISTED: Final = msgspec.json.Decoder(Listed[_Object])
_KIND: Final = msgspec.json.Decoder(_Kind)


class KubePools:
    def __init__(self, api: KubeApi, *, namespace: str) -> None:
        self._api = api
        self._pools = Resource(PLURAL, group=GROUP, version=VERSION, namespace=namespace)
        self._version = ""

    async def list(self) -> PoolObjects:
        pools: list[PoolObject] = []
        params = {"limit": str(_PAGE)}
        while True:
            listed = await self._api.get(KubeCall("list", self._pools), _LISTED, params)
            pools += [_shown(each) for each in listed.items]
            if not listed.metadata.continue_:
                self._version = listed.metadata.resource_version
                return PoolObjects(pools=pools, complete=True)
            params["continue"] = listed.metadata.continue_

    async def changes(self) -> AsyncIterator[None]:
        """Yields on each change since the last list. The next list shows what has changed."""
        params = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_SECONDS),
            "resourceVersion": self._version,
        }
        lines = Lines()
        async with self._api.stream(
            KubeCall("watch", self._pools), params, silence=SILENCE
        ) as received:
            async for some in received:
                if any(not _is_bookmark(line) for line in lines.feed(some)):
                    yield

    async def set_finalizers(self, pool: PoolObject, finalizers: Sequence[str]) -> bool:
        metadata = {"resourceVersion": pool.version, "finalizers": list(finalizers)}
        try:
            await self._patch(pool, None, {"metadata": metadata})
        except RequestRefused as error:
            if error.absent or error.conflict:
                return False
            raise
        return True

    async def set_status(self, pool: PoolObject, status: PoolStatus) -> None:
        try:
            await self._patch(pool, "status", {"metadata": {"uid": pool.uid}, "status": status})
        except RequestRefused as error:
            if not (error.absent or error.conflict):
                raise

    async def _patch(self, pool: PoolObject, sub: str | None, change: dict[str, object]) -> None:
        body = {"apiVersion": API_VERSION, "kind": KIND, **change}
        call = KubeCall("patch", self._pools, pool.name, sub)
        await self._api.send("PATCH", call, body, msgspec.Raw, content_type=MERGE)


def _is_bookmark(line: bytes) -> bool:
    """The API server sends a bookmark about every minute, to show that the watch is alive."""
    try:
        return _KIND.decode(line).type == "BOOKMARK"
    except (msgspec.MsgspecError, RecursionError):
        return False


def _shown(found: _Object) -> PoolObject:
    metadata = found.metadata
    try:
        status = msgspec.json.decode(found.status, type=PoolStatus)
    except (msgspec.MsgspecError, RecursionError):
        status = PoolStatus()  # of another version of paddock; ours overwrites it
    return PoolObject(
        name=metadata.name,
        uid=metadata.uid,
        version=metadata.resource_version,
        generation=metadata.generation,
        spec=bytes(found.spec),
        status=status,
        finalizers=tuple(metadata.finalizers),
        deleting=metadata.deletion_timestamp is not None,
    )
