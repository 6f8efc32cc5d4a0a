"""Leaving a cluster: delete every pool, wait for every job, remove every finalizer of ours (I75).

Our finalizers keep pools and Pods until paddock has recorded their ends. Without a running paddock they
would keep them, and their namespace, for ever. So the pools are deleted before paddock is uninstalled:
paddock sends idle runners away and waits for busy ones. Then the finalizers that paddock did not remove
are removed here. Nothing here ends a Pod, so no job is killed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from paddock.domain.pools.objects import DRAIN_FINALIZER, GROUP, PLURAL, VERSION
from paddock.domain.runners.endings import LOG_WANTED_FOR
from paddock.fleet.kube.api import (
    MERGE,
    STRATEGIC,
    KubeApi,
    KubeCall,
    RequestRefused,
    Resource,
    Unreached,
)
from paddock.fleet.kube.objects import VERDICT_FINALIZER, Listed, Metadata, PodObject
from paddock.fleet.kube.pods import is_ours
from paddock.ports import Clock

#: A running server records an end within a second or two, keeps the Pod until its log was read (I79),
#: and checks every object each half minute. It will not release what it still holds after this time.
PATIENCE: Final = LOG_WANTED_FOR.total_seconds() + 30.0
_EVERY: Final = 2.0
_ENDED: Final = ("Succeeded", "Failed")


class _Object(msgspec.Struct, frozen=True):
    metadata: Metadata = Metadata()


_POOLS: Final = msgspec.json.Decoder(Listed[_Object])
_PODS: Final = msgspec.json.Decoder(Listed[PodObject])


@dataclass(frozen=True, slots=True)
class RemainingObjects:
    """Our objects that still exist."""

    pools: Sequence[str]
    #: Pods whose containers may still run.
    alive: Sequence[str]
    #: Ended Pods that our finalizer keeps.
    kept: Sequence[str]

    @property
    def nothing(self) -> bool:
        return not (self.pools or self.alive or self.kept)

    def __str__(self) -> str:
        counted = (
            (len(self.pools), "pool"),
            (len(self.alive), "runner"),
            (len(self.kept), "ended Pod"),
        )
        words = [f"{count} {what}{'' if count == 1 else 's'}" for count, what in counted if count]
        return ", ".join(words) or "nothing"


class Uninstall:
    def __init__(
        self, api: KubeApi, *, namespace: str, clock: Clock, say: Callable[[str], None]
    ) -> None:
        self._api = api
        self._clock = clock
        self._say = say
        self._pools = Resource(PLURAL, group=GROUP, version=VERSION, namespace=namespace)
        self._pods = Resource("pods", namespace=namespace)

    async def drain(self) -> None:
        """Return once nothing of ours is left, however long jobs take."""
        last, since = "", self._clock.monotonic()
        while True:
            try:
                left = await self.left()
                if left.nothing:
                    return
                if str(left) != last:
                    last, since = str(left), self._clock.monotonic()
                    self._say(f"left: {left}")
                await self._delete_pools(left)
                if self._clock.monotonic() - since > PATIENCE and not left.alive:
                    self._say("paddock does not let go of them: it is done here instead")
                    await self._let_go(left)
            except Unreached as error:
                self._say(f"{error} Trying again.")
            await self._clock.sleep(_EVERY)

    async def abandon(self) -> RemainingObjects:
        """Delete the pools and remove our finalizers from everything, without waiting. Running Pods go
        on. Returns what existed before."""
        left = await self.left()
        await self._delete_pools(left)
        await self._let_go(left)
        for pod in left.alive:
            await self._release_pod(pod)
        return left

    async def left(self) -> RemainingObjects:
        pools = [pool.name for pool in await self._list_pools()]
        pods = (await self._api.get(KubeCall("list", self._pods), _PODS)).items
        ours = [pod for pod in pods if is_ours(pod)]
        return RemainingObjects(
            pools=pools,
            alive=[pod.metadata.name for pod in ours if not _has_ended(pod)],
            kept=[
                pod.metadata.name
                for pod in ours
                if _has_ended(pod) and VERDICT_FINALIZER in pod.metadata.finalizers
            ],
        )

    async def _list_pools(self) -> list[Metadata]:
        try:
            found = await self._api.get(KubeCall("list", self._pools), _POOLS)
        except RequestRefused as error:
            # Without the resource definition there are no pools.
            if error.absent:
                return []
            raise
        return [pool.metadata for pool in found.items]

    async def _delete_pools(self, left: RemainingObjects) -> None:
        for pool in left.pools:
            await self._tolerantly("DELETE", KubeCall("delete", self._pools, pool), {})

    async def _let_go(self, left: RemainingObjects) -> None:
        for pod in left.kept:
            await self._release_pod(pod)
        for pool in await self._list_pools():
            await self._release_pool(pool)

    async def _release_pod(self, name: str) -> None:
        change = {"metadata": {"$deleteFromPrimitiveList/finalizers": [VERDICT_FINALIZER]}}
        await self._tolerantly("PATCH", KubeCall("patch", self._pods, name), change, STRATEGIC)

    async def _release_pool(self, pool: Metadata) -> None:
        others = [each for each in pool.finalizers if each != DRAIN_FINALIZER]
        change = {"metadata": {"resourceVersion": pool.resource_version, "finalizers": others}}
        await self._tolerantly("PATCH", KubeCall("patch", self._pools, pool.name), change, MERGE)

    async def _tolerantly(
        self, method: str, call: KubeCall, body: object, content_type: str = "application/json"
    ) -> None:
        try:
            await self._api.send(method, call, body, msgspec.Raw, content_type=content_type)
        except RequestRefused as error:
            # Gone or changed in the meantime: the next read shows which.
            if not (error.absent or error.conflict):
                raise


def _has_ended(pod: PodObject) -> bool:
    """A deleted Pod that was never on a node counts as ended: it cannot run any more."""
    if pod.status.phase in _ENDED:
        return True
    return pod.metadata.deletion_timestamp is not None and not pod.spec.node_name
