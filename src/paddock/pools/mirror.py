"""RunnerPool objects of a cluster, mirrored into pools, and the results written into their status.

A pool is what its row says. Operators write the object and read its status. The status reports what is
wrong with it, and the pool keeps its last accepted description. Each object is processed by itself: one
that is malformed affects no other (I57). An object that is deleted keeps our finalizer until its pool's
last runner is gone (I42), also if it is older than the finalizer. No Pod is its dependant, so no way of
deleting the object deletes a Pod.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

import msgspec
import structlog

from paddock.domain.ids import RunnerId
from paddock.domain.limits import Resources
from paddock.domain.names import PodName
from paddock.domain.pods.pod import PodOrder
from paddock.domain.pools.objects import DRAIN_FINALIZER, PoolCondition, PoolObject, PoolStatus
from paddock.domain.pools.pool import PoolFacts, PoolSummary
from paddock.domain.reading.overview import PoolVersionLine
from paddock.pools.spec import described
from paddock.ports import Clock, FleetUnavailable, Topic, Wakeups
from paddock.ports.errors import DatabaseUnavailable, StoreError
from paddock.ports.pools import PodTrial, PoolApi, PoolMirrorStore, PoolRefused

_log = structlog.get_logger()

#: A status is for people, who do not look twice within this.
_LOOK_AGAIN: Final = 10.0
#: The interval while objects and rows agree: the watch reports changes of objects, and wake-ups those
#: of rows.
_QUIET: Final = 300.0
#: Between two rounds, however much is changed at once.
_BREATH: Final = 0.5
#: After a watch that ended.
_PAUSE: Final = 1.0
#: The reason for which a template was refused may go away without a change to it: a runtime class, a
#: policy.
_TRY_AGAIN: Final = 60.0
#: An object that vanished without our finalizer was deleted by force; it has to be missing for longer
#: than a cache may lag.
_MISSING_READS: Final = 3

#: The condition that tells whether GitHub accepts the runner version of the pool's newest Pods.
_VERSION: Final = "RunnerVersion"

#: How much of an error's text an object's status shows.
_LONGEST_MESSAGE: Final = 1000

#: Key in a row's description: the UID of the object that it mirrors.
_MIRROR: Final = "mirrorOf"
#: Key in a row's description, if it is https: the address at which the pool's Pods reach the server.
_SERVER: Final = "serverUrl"


@dataclass(frozen=True, slots=True)
class _Tried:
    generation: int
    at: float
    wrong: str | None


class PoolMirror:
    def __init__(
        self,
        *,
        store: PoolMirrorStore,
        pools: PoolApi,
        trial: PodTrial | None,
        clock: Clock,
        wakeups: Wakeups,
        server: str = "",
    ) -> None:
        """`server`: the address at which Pods reach paddock."""
        self._server = server if server.startswith("https:") else ""
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
        #: By pool: the runner version of its newest Pods, where it is known.
        self._versions: dict[str, PoolVersionLine] = {}

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
                _log.warning("pool.watch_failed", error=str(error))
            await self._clock.sleep(_PAUSE)

    async def _mirror_for_ever(self) -> None:
        while True:
            self._changed.clear()
            self._quiet = False
            try:
                await self.round()
            except FleetUnavailable as error:
                _log.warning("pool.list_failed", error=str(error))
            except StoreError as error:
                _log.warning("pool.apply_all_failed", error=error.message)
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
        self._versions = {each.pool: each for each in await self._store.pool_versions()}
        for pool in found.pools:
            await self._mirror_alone(pool, rows.get(pool.name))
        if found.complete:
            await self._let_go_of_missing({pool.name for pool in found.pools}, rows)
        here = {pool.uid for pool in found.pools}
        self._tried = {uid: tried for uid, tried in self._tried.items() if uid in here}
        refused = any(tried.wrong is not None for tried in self._tried.values())
        self._quiet &= found.complete and not (self._missing or refused)

    async def _mirror_alone(self, pool: PoolObject, row: PoolSummary | None) -> None:
        """An object that cannot be mirrored holds up no other (I57). Without the database none can
        be."""
        try:
            await self._mirror(pool, row)
        except DatabaseUnavailable:
            raise
        except (FleetUnavailable, StoreError) as error:
            self._quiet = False
            _log.warning("pool.mirror_failed", pool=pool.name, error=str(error))
        except Exception as error:
            self._quiet = False
            _log.exception("pool.mirror_failed", pool=pool.name)
            what = f"paddock failed to process it ({type(error).__name__}): see the server's log."
            with suppress(FleetUnavailable):
                await self._tell(pool, row, "Accepted", False, "InternalError", what)

    async def _mirror(self, pool: PoolObject, row: PoolSummary | None) -> None:
        if pool.deleting:
            await self._drain(pool, row)
            return
        if DRAIN_FINALIZER not in pool.finalizers:
            # The next round goes on with it: the object has another version now.
            await self._pools.set_finalizers(pool, (*pool.finalizers, DRAIN_FINALIZER))
            self._changed.set()
            return
        wrong = await self._apply(pool, row)
        if wrong is None and row is None:
            row = {each.name: each for each in await self._store.list_pools()}.get(pool.name)
        reason, message = wrong or ("Mirrored", "")
        if wrong:
            message = f"{message[:_LONGEST_MESSAGE].rstrip('.')}. {self._consequence(row)}"
        await self._tell(pool, row, "Accepted", not wrong, reason, message)

    async def _apply(self, pool: PoolObject, row: PoolSummary | None) -> tuple[str, str] | None:
        """Bring the row to what the object says; a reason and a message if that is not possible."""
        try:
            facts = described(pool.name, pool.spec)
        except ValueError as error:
            return "Refused", str(error)
        facts = self._marked(facts, pool.uid)
        # An unchanged template is checked too: the rules may have changed.
        if wrong := self._refusal(_trial_order(pool.name, facts.spec, facts.cost)):
            return "TemplateRefused", wrong
        if row is not None and row.state == "active" and _same(row.spec, facts.spec):
            return None
        if wrong := await self._try_out(pool, facts):
            return "TemplateRefused", wrong
        try:
            await self._store.apply_pool(facts)
        except PoolRefused as error:
            return "Refused", error.message
        _log.info("pool.applied", pool=pool.name, generation=pool.generation)
        return None

    def _marked(self, facts: PoolFacts, uid: str) -> PoolFacts:
        spec: dict[str, Any] = msgspec.json.decode(facts.spec) | {_MIRROR: uid}
        spec_hash = facts.spec_hash
        if self._server:
            # Pods that know another address, or this one without TLS, reach no server any more. Where
            # all Pods are silent, silence retires none of them (I29), so they are made stale. Without
            # TLS the hash is what it always was: an upgrade rolls nothing.
            spec[_SERVER] = self._server
            spec_hash = hashlib.sha256(f"{spec_hash} {self._server}".encode()).hexdigest()[:16]
        encoded = msgspec.json.encode(spec, order="sorted").decode()
        return replace(facts, spec=encoded, spec_hash=spec_hash)

    def _consequence(self, row: PoolSummary | None) -> str:
        """What a refusal means for the runners that the pool has, and will have."""
        if row is None:
            return "No runner is made for it."
        if self._refusal(_trial_order(row.name, row.spec, row.cost)):
            return "The pool makes no new Pods until this is corrected; the Pods it has stay."
        return "The pool keeps the description that was last accepted."

    def _refusal(self, order: PodOrder) -> str | None:
        return self._trial.template_refusal(order) if self._trial else None

    async def _try_out(self, pool: PoolObject, facts: PoolFacts) -> str | None:
        if self._trial is None:
            return None
        now, tried = self._clock.monotonic(), self._tried.get(pool.uid)
        if tried and tried.generation == pool.generation and now - tried.at < _TRY_AGAIN:
            return tried.wrong
        wrong = await self._trial.try_out(_trial_order(pool.name, facts.spec, facts.cost))
        self._tried[pool.uid] = _Tried(pool.generation, now, wrong)
        return wrong

    async def _drain(self, pool: PoolObject, row: PoolSummary | None) -> None:
        if DRAIN_FINALIZER not in pool.finalizers:
            return  # another controller's finalizer keeps it
        if row is not None and _mirrored(row) is not None:
            if row.state == "active":
                await self._store.delete_pool(row.id, why="its RunnerPool object was deleted")
            message = f"Its runners finish their jobs; {row.runners} are left."
            await self._tell(pool, row, "Draining", True, "Deleted", message)
            return
        rest = [each for each in pool.finalizers if each != DRAIN_FINALIZER]
        if await self._pools.set_finalizers(pool, rest):
            _log.info("pool.finalizer_removed", pool=pool.name)

    async def _let_go_of_missing(self, here: set[str], rows: Mapping[str, PoolSummary]) -> None:
        """Draining ends no job, so a few reads without the object are enough to begin it."""
        missing = {
            name
            for name, row in rows.items()
            if name not in here and row.state == "active" and _mirrored(row) is not None
        }
        self._missing = {name: self._missing.get(name, 0) + 1 for name in missing}
        for name in sorted(missing):
            if self._missing[name] >= _MISSING_READS:
                _log.warning("pool.object_missing", pool=name)
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
        now = self._clock.now()
        new = [_condition(pool, kind, holds, reason, message, now)]
        version = self._versions.get(pool.name)
        if version is not None:
            told = _told(version, now)
            new.append(
                _condition(pool, _VERSION, told != "Refused", told, version.sentence(now), now)
            )
        status = PoolStatus(
            observed_generation=pool.generation,
            runners=row.runners if row else 0,
            idle=row.idle if row else 0,
            queued=row.queued if row else 0,
            conditions=_conditions(pool, new),
        )
        if status != pool.status:
            self._quiet = False
            await self._pools.set_status(pool, status)


def _trial_order(name: str, spec: str, cost: Resources) -> PodOrder:
    return PodOrder(
        runner=RunnerId(UUID(int=0)),
        name=PodName(f"{name[:40]}-trial"),
        pool=name,
        spec=spec,
        cost=cost,
    )


def _word(holds: bool) -> Literal["True", "False"]:
    return "True" if holds else "False"


def _condition(
    pool: PoolObject, kind: str, holds: bool, reason: str, message: str, now: datetime
) -> PoolCondition:
    return PoolCondition(
        type=kind,
        status=_word(holds),
        reason=reason,
        message=message,
        last_transition_time=now.replace(microsecond=0),
        observed_generation=pool.generation,
    )


def _told(version: PoolVersionLine, now: datetime) -> str:
    if version.is_refused(now):
        return "Refused"
    return "EndsSoon" if version.ends_soon(now) else "Accepted"


def _conditions(pool: PoolObject, new: Sequence[PoolCondition]) -> list[PoolCondition]:
    """A condition's time is that of its last change, not of the last round. A version that is not known
    has no condition."""
    replaced = {_VERSION, *(each.type for each in new)}
    before = {
        (each.type, each.status): each.last_transition_time for each in pool.status.conditions
    }
    kept = [
        msgspec.structs.replace(
            each,
            last_transition_time=before.get((each.type, each.status), each.last_transition_time),
        )
        for each in new
    ]
    rest = [each for each in pool.status.conditions if each.type not in replaced]
    return sorted([*rest, *kept], key=lambda each: each.type)


def _same(kept: str, described: str) -> bool:
    """PostgreSQL formats JSON in its own way."""
    return bool(msgspec.json.decode(kept) == msgspec.json.decode(described))


def _mirrored(row: PoolSummary) -> str | None:
    """The UID of the object it mirrors; `None` for a pool that a file described."""
    uid: str | None = msgspec.json.decode(row.spec).get(_MIRROR)
    return uid
