"""The hosts of a fleet, as pools need to know them: which there are, and which to keep away from."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import structlog

from paddock.domain.ids import PoolId
from paddock.domain.pods.placement import REMEMBERED, NodeConstraints, hosts_to_avoid, sharing
from paddock.domain.pods.pod import Host, Pod
from paddock.domain.pools.sizing import Room, usable
from paddock.domain.pools.surveys import SurveyedPool
from paddock.domain.pools.terms import Terms
from paddock.ports import Clock, Fleet, FleetUnavailable
from paddock.ports.errors import StoreError
from paddock.ports.pools import HostStore

_log = structlog.get_logger()

#: Hosts come and go in minutes.
_READ_EVERY: Final = 5.0
#: Failed starts are read before Pods are created, but not before each of them.
_FAILURES_EVERY: Final = 10.0
_TIMEOUT: Final = 5.0


class Hosts:
    def __init__(self, *, store: HostStore, fleet: Fleet, clock: Clock) -> None:
        self._store = store
        self._fleet = fleet
        self._clock = clock
        self._hosts: Sequence[Host] = ()
        #: Hosts that report themselves unfit. Until the fleet has answered: those that the leader
        #: before recorded.
        self._unfit: tuple[str, ...] | None = None
        self._read_at: float | None = None
        self._avoid: tuple[str, ...] = ()
        self._judged_at: float | None = None
        #: Last persisted faults; `None` until this leader has written them.
        self._noted: dict[str, str] | None = None

    async def read(self) -> Sequence[Host]:
        """The hosts; as they were last seen if the fleet does not answer, since that does not mean that
        there are none."""
        if self._is_due(self._read_at, _READ_EVERY):
            self._read_at = self._clock.monotonic()
            try:
                async with asyncio.timeout(_TIMEOUT):
                    self._hosts = await self._fleet.hosts()
            except (FleetUnavailable, TimeoutError) as error:
                _log.warning(
                    "hosts.unreadable",
                    error=str(error) or f"no answer within {_TIMEOUT:g} s",
                )
                if self._unfit is None:
                    self._unfit = tuple(known.host for known in await self._store.host_faults())
            else:
                self._unfit = tuple(host.name for host in self._hosts if host.fault is not None)
                await self._note_faults()
        return self._hosts

    async def have_changed(self) -> bool:
        """Whether the hosts are others than the last read showed."""
        before = self._hosts
        return await self.read() != before

    async def _note_faults(self) -> None:
        """For readers that do not ask the fleet: metrics, the dashboard, `paddock doctor`."""
        faults = {host.name: host.fault for host in self._hosts if host.fault is not None}
        if faults == self._noted:
            return
        try:
            await self._store.note_host_faults(faults)
        except StoreError as error:
            _log.warning("hosts.unwritable", error=error.message)
            return
        if faults or self._noted:
            _log.warning("hosts.unfit", hosts=faults)
        self._noted = faults

    async def avoided(self) -> tuple[str, ...]:
        """Hosts that keep failing to start Pods (I51)."""
        if self._is_due(self._judged_at, _FAILURES_EVERY):
            self._judged_at = self._clock.monotonic()
            failures = await self._store.failed_starts(since=self._clock.now() - REMEMBERED)
            before, self._avoid = self._avoid, hosts_to_avoid(failures, self._hosts)
            if self._avoid != before:
                _log.warning("hosts.avoided", hosts=self._avoid)
        return self._avoid

    def unfit(self) -> tuple[str, ...]:
        """Hosts that report themselves unfit for runners."""
        return self._unfit or ()

    def _is_due(self, last: float | None, every: float) -> bool:
        return last is None or self._clock.monotonic() - last >= every


def rooms(
    pools: Sequence[SurveyedPool],
    terms: Mapping[PoolId, Terms],
    hosts: Sequence[Host],
    pods: Iterable[Pod],
) -> list[Room]:
    """What the pools of fixed capacity have to share: one room for pools that can use the same hosts.
    Pods of other pools take room that cannot be given. Pods on hosts that take no new ones need no room
    on the others. Pods on their way out are not counted: their successors wait for them for seconds,
    while a size that shrank with each Pod that leaves would send away the next."""
    if not any(host.capacity for host in hosts):
        return []
    fixed = {
        pool.id: pool
        for pool in pools
        if pool.state == "active" and pool.id in terms and terms[pool.id].capacity == "fixed"
    }
    wanted = {pool.id: NodeConstraints.of(pool.spec) for pool in fixed.values()}
    placed = [pod for pod in pods if pod.node is not None and not pod.phase.terminal]
    costs = {pool.name: pool.cost for pool in pools}
    found = []
    for those, theirs in sharing(wanted, hosts):
        ours = {fixed[pool].name for pool in those}
        usable_hosts = {host.name for host in theirs if usable(host)}
        found.append(
            Room.of(
                theirs,
                pools=those,
                taken=[
                    costs[pod.pool]
                    for pod in placed
                    if pod.pool in costs and pod.pool not in ours and pod.node in usable_hosts
                ],
                elsewhere=[
                    costs[pod.pool]
                    for pod in placed
                    if pod.pool in ours and pod.node not in usable_hosts
                ],
            )
        )
    return [room for room in found if room is not None]
