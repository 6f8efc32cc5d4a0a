"""RunnerPool objects of a cluster, mirrored into pools, and what became of them into their status.

A pool is what its row says. The object is where people write, and where they look; whatever is wrong
with it stands in its status, and the pool stays as it was. An object that is deleted keeps our
finalizer until its pool's last runner is gone (I42), also if it is older than the finalizer. No Pod is
its dependant, so no way of deleting it reaches one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

import msgspec
import structlog

from paddock.domain.ids import RunnerId
from paddock.domain.names import PodName
from paddock.domain.pods import PodOrder
from paddock.domain.pool_objects import DRAIN_FINALIZER, PoolCondition, PoolObject, PoolStatus
from paddock.domain.pools import PoolFacts, PoolSummary
from paddock.pools.spec import PoolSpec, facts
from paddock.ports import Clock, FleetUnavailable, Store, Topic, Wakeups
from paddock.ports.pool_objects import PodTrial, PoolApi
from paddock.store.errors import StoreError

_log = structlog.get_logger()

#: A status is for people, who do not look twice within this.
_LOOK_AGAIN: Final = 10.0
#: As long while objects and rows agree: the watch tells of objects, and wake-ups of rows.
_QUIET: Final = 300.0
#: Between two rounds, however much is changed at once.
_BREATH: Final = 0.5
#: After a watch that ended.
_PAUSE: Final = 1.0
#: Whatever a template was refused for may have been put right without a change to it: a runtime class,
#: a policy.
_TRY_AGAIN: Final = 60.0
#: An object that vanished without our finalizer was deleted by force; it has to be missing for longer
#: than a cache may lag.
_MISSING_READS: Final = 3

#: Stands in a row's description: of which object it is the mirror.
_MIRROR: Final = "mirrorOf"


@dataclass(frozen=True, slots=True)
class _Tried:
    generation: int
    at: float
    wrong: str | None


class PoolMirror:
    def __init__(
        self,
        *,
        store: Store,
        pools: PoolApi,
        trial: PodTrial | None,
        clock: Clock,
        wakeups: Wakeups,
    ) -> None:
        self._store = store
        self._pools = pools
        self._trial = trial
        self._clock = clock
        self._changed = asyncio.Event()
        self._woken = wakeups.subscribe(Topic.POOLS, Topic.RUNNERS, Topic.DEMAND)
        #: The last round found nothing to write, and nothing that is to be tried again.
        self._quiet = False
        self._tried: dict[str, _Tried] = {}
        self._missing: dict[str, int] = {}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            group.create_task(self._mirror_for_ever())

    async def _watch(self) -> None:
        while True:
            try:
                async for _ in self._pools.changes():
                    self._changed.set()
            except FleetUnavailable as error:
                _log.warning("pools cannot be watched", error=str(error))
            await self._clock.sleep(_PAUSE)

    async def _mirror_for_ever(self) -> None:
        while True:
            self._changed.clear()
            self._quiet = False
            try:
                await self.round()
            except FleetUnavailable as error:
                _log.warning("pools could not be read from the cluster", error=str(error))
            except StoreError as error:
                _log.warning("pools could not be mirrored", error=error.message)
            await self._clock.sleep(_BREATH)
            left = _QUIET if self._quiet else _LOOK_AGAIN
            while left > 0 and not self._changed.is_set():
                left -= _LOOK_AGAIN
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_AGAIN):
                        await self._changed.wait()
                if await self._woken.wait(0):
                    break

    async def round(self) -> None:
        self._quiet = True
        found = await self._pools.list()
        rows = {row.name: row for row in await self._store.list_pools()}
        for pool in found.pools:
            # One that cannot be mirrored holds up no other (I57).
            try:
                await self._mirror(pool, rows.get(pool.name))
            except FleetUnavailable as error:
                _log.warning("a pool could not be mirrored", pool=pool.name, error=str(error))
        if found.complete:
            await self._let_go_of_missing({pool.name for pool in found.pools}, rows)
        here = {pool.uid for pool in found.pools}
        self._tried = {uid: tried for uid, tried in self._tried.items() if uid in here}
        refused = any(tried.wrong is not None for tried in self._tried.values())
        self._quiet &= found.complete and not (self._missing or refused)

    async def _mirror(self, pool: PoolObject, row: PoolSummary | None) -> None:
        if pool.deleting:
            await self._drain(pool, row)
            return
        if DRAIN_FINALIZER not in pool.finalizers:
            # The next round goes on with it: the object is another one now.
            await self._pools.set_finalizers(pool, (*pool.finalizers, DRAIN_FINALIZER))
            self._changed.set()
            return
        wrong = await self._apply(pool, row)
        if wrong is None and row is None:
            row = {each.name: each for each in await self._store.list_pools()}.get(pool.name)
        reason, message = wrong or ("Mirrored", "")
        await self._tell(pool, row, "Accepted", not wrong, reason, message)

    async def _apply(self, pool: PoolObject, row: PoolSummary | None) -> tuple[str, str] | None:
        """Bring the row to what the object says; what is wrong with that, if anything is."""
        try:
            described = facts(pool.name, msgspec.json.decode(pool.spec, type=PoolSpec))
        except (msgspec.MsgspecError, ValueError) as error:
            return "Refused", f"{error}."
        described = replace(described, spec=_marked(described.spec, pool.uid))
        if row is not None and row.state == "active" and _same(row.spec, described.spec):
            return None
        if wrong := await self._try_out(pool, described):
            return "TemplateRefused", wrong
        try:
            await self._store.apply_pool(described)
        except StoreError as error:
            return "Refused", error.message
        _log.info("a pool was mirrored", pool=pool.name, generation=pool.generation)
        return None

    async def _try_out(self, pool: PoolObject, described: PoolFacts) -> str | None:
        if self._trial is None:
            return None
        now, tried = self._clock.monotonic(), self._tried.get(pool.uid)
        if tried and tried.generation == pool.generation and now - tried.at < _TRY_AGAIN:
            return tried.wrong
        wrong = await self._trial.try_out(
            PodOrder(
                runner=RunnerId(UUID(int=0)),
                name=PodName(f"{pool.name[:40]}-trial"),
                pool=pool.name,
                spec=described.spec,
                cost=described.cost,
            )
        )
        self._tried[pool.uid] = _Tried(pool.generation, now, wrong)
        return wrong

    async def _drain(self, pool: PoolObject, row: PoolSummary | None) -> None:
        if DRAIN_FINALIZER not in pool.finalizers:
            return  # somebody else's finalizer keeps it
        if row is not None and _mirrored(row) is not None:
            if row.state == "active":
                await self._store.delete_pool(row.id, why="its RunnerPool object was deleted")
            message = f"Its runners finish their jobs; {row.runners} are left."
            await self._tell(pool, row, "Draining", True, "Deleted", message)
            return
        rest = [each for each in pool.finalizers if each != DRAIN_FINALIZER]
        if await self._pools.set_finalizers(pool, rest):
            _log.info("a pool's object may go", pool=pool.name)

    async def _let_go_of_missing(self, here: set[str], rows: Mapping[str, PoolSummary]) -> None:
        """Draining ends no job, so it takes no more than a few looks to begin with it."""
        missing = {
            name
            for name, row in rows.items()
            if name not in here and row.state == "active" and _mirrored(row) is not None
        }
        self._missing = {name: self._missing.get(name, 0) + 1 for name in missing}
        for name in sorted(missing):
            if self._missing[name] >= _MISSING_READS:
                _log.warning("a pool's object vanished; its runners finish their jobs", pool=name)
                await self._store.delete_pool(rows[name].id, why="its RunnerPool object vanished")

    async def _tell(
        self,
        pool: PoolObject,
        row: PoolSummary | None,
        kind: str,
        holds: bool,
        reason: str,
        message: str,
    ) -> None:
        status = PoolStatus(
            observed_generation=pool.generation,
            runners=row.runners if row else 0,
            idle=row.idle if row else 0,
            queued=row.queued if row else 0,
            conditions=_conditions(
                pool,
                PoolCondition(
                    type=kind,
                    status=_word(holds),
                    reason=reason,
                    message=message,
                    last_transition_time=self._clock.now().replace(microsecond=0),
                    observed_generation=pool.generation,
                ),
            ),
        )
        if status != pool.status:
            self._quiet = False
            await self._pools.set_status(pool, status)


def _word(holds: bool) -> Literal["True", "False"]:
    return "True" if holds else "False"


def _conditions(pool: PoolObject, new: PoolCondition) -> list[PoolCondition]:
    """A condition's time is that of its last turn, not of its last look."""
    before: datetime | None = None
    rest: Sequence[PoolCondition] = [
        each for each in pool.status.conditions if each.type != new.type
    ]
    for each in pool.status.conditions:
        if each.type == new.type and each.status == new.status:
            before = each.last_transition_time
    kept = msgspec.structs.replace(new, last_transition_time=before) if before else new
    return sorted([*rest, kept], key=lambda each: each.type)


def _marked(spec: str, uid: str) -> str:
    described: dict[str, Any] = msgspec.json.decode(spec)
    return msgspec.json.encode({**described, _MIRROR: uid}, order="sorted").decode()


def _same(kept: str, described: str) -> bool:
    """PostgreSQL writes JSON in its own hand."""
    return bool(msgspec.json.decode(kept) == msgspec.json.decode(described))


def _mirrored(row: PoolSummary) -> str | None:
    """Of which object; `None` for a pool that a file described."""
    uid: str | None = msgspec.json.decode(row.spec).get(_MIRROR)
    return uid
