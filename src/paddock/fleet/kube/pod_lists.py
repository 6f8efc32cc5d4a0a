"""All Pods of the namespace, read page by page, and whether the list is complete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from paddock.domain.pods.pod import Pod
from paddock.fleet.kube.api import KubeApi, KubeCall, RequestRefused, Resource, Unreached
from paddock.fleet.kube.objects import Listed, ListMetadata, PodObject
from paddock.fleet.kube.pods import is_ours, shown

_log = structlog.get_logger()

#: Some 2.5 MB per page: the API server need not hold more of a large list in memory.
PAGE: Final = 1000

_PODS: Final = msgspec.json.Decoder(Listed[PodObject])


class _Raw(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw]
    metadata: ListMetadata = ListMetadata()


_RAW_PODS: Final = msgspec.json.Decoder(_Raw)


@dataclass(frozen=True, slots=True)
class CompleteRead:
    """The Pods, whether the list is complete, and the version that a watch resumes from."""

    pods: Sequence[Pod]
    complete: bool
    version: str


@dataclass(frozen=True, slots=True)
class PodListPage:
    pods: list[PodObject]
    readable: bool
    metadata: ListMetadata


class PodLists:
    def __init__(self, api: KubeApi, pods: Resource) -> None:
        self._api = api
        self._pods = pods

    async def read(self) -> CompleteRead:
        pods: list[Pod] = []
        params = {"limit": str(PAGE)}
        complete = True
        while True:
            try:
                found = page(await self._api.read(KubeCall("list", self._pods), params))
            except RequestRefused as error:
                if not (error.expired and pods):
                    raise
                # Reading took so long that the API server no longer has this version's rest (I29).
                return CompleteRead(pods, False, "")
            complete = complete and found.readable
            pods += [shown(each) for each in found.pods if is_ours(each)]
            if not found.metadata.continue_:
                return CompleteRead(pods, complete, found.metadata.resource_version)
            params["continue"] = found.metadata.continue_


def page(content: bytes) -> PodListPage:
    """One Pod that cannot be read hides no other, but the list is not complete (I29)."""
    try:
        listed = _PODS.decode(content)
    except msgspec.MsgspecError as error:
        return _one_by_one(content, error)
    return PodListPage(listed.items, True, listed.metadata)


def _one_by_one(content: bytes, error: msgspec.MsgspecError) -> PodListPage:
    try:
        raw = _RAW_PODS.decode(content)
    except msgspec.MsgspecError:
        raise Unreached(f"Kubernetes' list of Pods cannot be read: {error}.") from error
    pods = []
    for item in raw.items:
        try:
            pods.append(msgspec.json.decode(item, type=PodObject))
        except msgspec.MsgspecError as mistake:
            _log.warning("kubernetes.pod_unreadable", error=str(mistake))
    return PodListPage(pods, False, raw.metadata)
