"""The owner's label on a claimed Pod.

The label takes the Pod out of the idle-only egress policy, so it must not come before the JIT: it is
set when the poller has ended (I56). The stamper tries three times, 100 ms apart, and then gives up: the
claim is valid without the label, and an apiserver that does not answer must not stop dispatch. No
decision is ever based on the label (I22).
"""

from __future__ import annotations

from typing import Final

import structlog
from prometheus_client import Counter

from paddock.domain.pods.pod import Pod
from paddock.ports import Clock, Fleet, FleetUnavailable

_log = structlog.get_logger()

ATTEMPTS: Final = 3
#: Just long enough to survive a leader election of the apiserver's store: the next Pod waits meanwhile.
PAUSE: Final = 0.1

STAMPS = Counter("paddock_stamps_total", "Owner labels put on Pods, by outcome.", ["outcome"])


class Stamper:
    def __init__(self, *, fleet: Fleet, clock: Clock) -> None:
        self._fleet = fleet
        self._clock = clock

    async def stamp(self, pod: Pod, *, owner: str) -> bool:
        """Whether the label is on. Never raises: a Pod without it works as well."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                await self._fleet.stamp(pod.name, uid=pod.uid, owner=owner)
            except FleetUnavailable as error:
                if attempt == ATTEMPTS:
                    STAMPS.labels("failed").inc()
                    _log.warning("stamp.failed", pod=pod.name, pool=pod.pool, error=str(error))
                    return False
                await self._clock.sleep(PAUSE)
            else:
                STAMPS.labels("stamped").inc()
                return True
        raise AssertionError("the last attempt returns")
