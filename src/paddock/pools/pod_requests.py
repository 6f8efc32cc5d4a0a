"""Asking the fleet for Pods whose rows exist.

A row fixes its Pod's name, so asking twice makes one Pod. A request without an answer may have
succeeded. It is repeated if the fleet does not show the Pod after a while, also if another leader made
the first request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Final

import structlog
from prometheus_client import Counter

from paddock.domain.ids import RunnerId
from paddock.domain.pods.pod import PodOrder
from paddock.domain.runners.runner import Runner
from paddock.domain.states import RunnerState
from paddock.ports import Clock, Fleet, FleetUnavailable

_log = structlog.get_logger()

#: A create is answered within a second; what takes longer is asked for again.
TIMEOUT: Final = 20.0
#: A Pod that was asked for but is not seen for this long is asked for again: the request may have been
#: lost. Longer than a create may take, and then a complete read of the fleet.
LOST: Final = 35.0

ORDERS = Counter("paddock_pod_orders_total", "Pods asked for, by outcome.", ["outcome"])


class PodRequests:
    def __init__(self, *, fleet: Fleet, clock: Clock) -> None:
        self._fleet = fleet
        self._clock = clock
        #: When we last asked for a Pod whose runner has not been heard yet.
        self._asked: dict[RunnerId, float] = {}
        self._under_way: set[RunnerId] = set()

    def note(self, runner: Runner) -> None:
        """The runner's Pod is about to be asked for."""
        self._asked[runner.id] = self._clock.monotonic()

    def lost(self, runner: Runner, seen: Collection[str]) -> bool:
        """Whether its Pod has to be asked for again. Only a Pod that was never seen: one that vanished
        is not made again. `seen` are the names of all Pods there are."""
        if runner.state is not RunnerState.BOOTING or runner.pod_uid is not None:
            return False
        if runner.pod_name in seen or runner.id in self._under_way:
            return False
        asked = self._asked.get(runner.id)
        if asked is None:
            return (self._clock.now() - runner.since).total_seconds() > LOST
        return self._clock.monotonic() - asked > LOST

    def forget(self, waiting: Iterable[Runner]) -> None:
        """Forget runners that are no longer booting. The newest are not among `waiting` yet, and are
        kept."""
        booting = {runner.id for runner in waiting if runner.state is RunnerState.BOOTING}
        now = self._clock.monotonic()
        self._asked = {
            runner: at for runner, at in self._asked.items() if runner in booting or now - at < LOST
        }

    async def place(self, order: PodOrder) -> None:
        """Never raises for a fleet that does not answer: one Pod holds up no other (I57)."""
        self._under_way.add(order.runner)
        try:
            async with asyncio.timeout(TIMEOUT):
                await self._fleet.create(order)
        except (FleetUnavailable, TimeoutError) as error:
            ORDERS.labels("failed").inc()
            _log.warning(
                "pod.create_failed",
                pod=order.name,
                pool=order.pool,
                error=str(error) or f"no answer within {TIMEOUT:g} s",
            )
        else:
            ORDERS.labels("created").inc()
        finally:
            self._under_way.discard(order.runner)
