"""The watch of Pods: a list, the changes since, and a new watch each time one ends."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import structlog

from paddock.domain.pods.pod import Pod
from paddock.fleet.kube.api import SILENCE, KubeApi, KubeCall, RequestRefused, Resource, Unreached
from paddock.fleet.kube.pod_lists import PodLists
from paddock.fleet.kube.watch_state import Expired, Failed, Lines, WatchState
from paddock.ports import Clock

_log = structlog.get_logger()

#: An API server ends a watch by itself after half an hour to an hour, and all watches at once if it is
#: restarted. This is shorter, so that the replicas' watches end at different times.
_WATCH_SECONDS: Final = 600
#: Seconds after a watch that broke; doubled each time.
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 15.0


class PodWatch:
    def __init__(self, api: KubeApi, pods: Resource, lists: PodLists, *, clock: Clock) -> None:
        self._api = api
        self._pods = pods
        self._lists = lists
        self._clock = clock

    async def changes(self) -> AsyncGenerator[Pod, None]:
        """Yields all Pods, then each change. Ends only by an exception."""
        following = WatchState()
        failures = 0
        while True:
            try:
                if following.version is None:
                    read = await self._lists.read()
                    for pod in following.begin(
                        read.pods, whole=read.complete, version=read.version
                    ):
                        yield pod
                async with aclosing(self._since(following)) as changes:
                    async for pod in changes:
                        failures = 0
                        yield pod
                # An API server that shuts down ends each watch as soon as it begins.
                await self._clock.sleep(_FIRST_PAUSE)
            except Expired:
                _log.info("kubernetes.watch_expired")
            except (Failed, Unreached, RequestRefused) as error:
                if isinstance(error, RequestRefused) and error.expired:
                    following.version = None
                    continue
                # An API server that has just started denies everything for a moment. So a watch that
                # was allowed once is tried again.
                if isinstance(error, RequestRefused) and error.denied and not following.begun:
                    raise
                failures += 1
                _log.warning("kubernetes.watch_failed", error=str(error), failures=failures)
                await self._clock.sleep(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(failures, 6)))

    async def _since(self, following: WatchState) -> AsyncGenerator[Pod, None]:
        """Changes until the API server ends the watch, which it does normally every few minutes."""
        params = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        if following.version is None:
            raise Failed("there is no whole list to go on from")
        params["resourceVersion"] = following.version
        lines = Lines()
        async with self._api.stream(
            KubeCall("watch", self._pods), params, silence=SILENCE
        ) as received:
            async for some in received:
                for line in lines.feed(some):
                    if pod := following.line(line):
                        yield pod
