"""What can still be read of a runner that ended: its log, and the circumstances of its end (S4, I79).

The verdict is written and the capacity is free before this begins (`concluding`). The verdict's row
says until when its log is wanted; until then its Pod is kept and both are asked for again. What was
read is added to the verdict, once. Then, or when the time is up, the row says that nothing more is
wanted, and only after that the Pod is deleted. After a crash or a change of leader at any point, the
next look at the rows goes on. Recovery's rule `concluded` finds a Pod that was not deleted.

The logs of one node are requested one after the other. In one pass a node that does not answer is
requested once more at most, for a log whose time is up: a thousand Pods of one dead node delay the
logs of no other node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import structlog
from prometheus_client import Counter

from paddock.concurrent_tasks import ConcurrentTasks
from paddock.domain.ids import RunnerId
from paddock.domain.plain_text import without_sequences
from paddock.domain.recovery.records import WantedLog
from paddock.domain.runners.dialects import shows_a_job
from paddock.domain.runners.versions import says_it_was_refused
from paddock.forensics.conclusion import note_refusal, reap
from paddock.forensics.masking import mask
from paddock.log_events import RunnerFields
from paddock.ports import Circumstances, Clock, EndRecords, Fleet, FleetUnavailable
from paddock.ports.endings import PostMortemStore
from paddock.services import tolerating_outages

_log = structlog.get_logger()

TAIL_LINES: Final = 200
TAIL_BYTES: Final = 64 * 1024
#: Read before what is kept: a secret is known by what stands before it in its line.
_BEFORE: Final = 16 * 1024
READ_BYTES: Final = TAIL_BYTES + _BEFORE
#: A node that answers does so in milliseconds.
TIMEOUT: Final = 5.0
#: Between two requests to a node that did not answer: some twenty until the time is up.
RETRY: Final = 5.0
#: No log is given up before the fleet has answered for this long. Nodes are reached through the same
#: API server, and right after its return they may not answer yet. Some ten requests.
ANSWERED_FOR: Final = timedelta(minutes=1)
#: Between two looks while no log is wanted: the conclusion that wants one wakes this loop.
_QUIET: Final = 30.0
#: Nodes asked at the same time. A dead one takes the whole time-out, so a hundred dead nodes delay the
#: first request to another node by about a minute. Half of the API client's connections stay free.
_NODES_AT_ONCE: Final = 8

LOG_CAPTURED: Final = "log.captured"
LOGS = Counter(
    "paddock_death_logs_total",
    "Logs of runners that ended abnormally, by what became of the request: kept, none, given-up.",
    ["outcome"],
)


@dataclass(slots=True)
class _Pass:
    """One pass over the Pods of a node: what did not answer is not asked again in it."""

    #: Logs that could not be read.
    unread: int = 0
    witness_answers: bool = True

    def may_ask(self, *, is_over: bool) -> bool:
        """After one log that could not be read the node may be dead. A log whose time is up is
        requested a last time all the same: only after two is the node taken for dead."""
        return self.unread < (2 if is_over else 1)


@dataclass(frozen=True, slots=True)
class _Tail:
    """`text` is `None` if there is no log; `known` is false if it could not be read."""

    text: str | None = None
    known: bool = True


class PostMortem:
    def __init__(
        self,
        *,
        store: PostMortemStore,
        fleet: Fleet,
        clock: Clock,
        readable_since: Callable[[], datetime | None],
        end_records: EndRecords | None = None,
    ) -> None:
        """`readable_since` says since when the fleet has answered without a pause."""
        self._store = store
        self._readable_since = readable_since
        self._fleet = fleet
        self._clock = clock
        self._end_records = end_records
        self._woken = asyncio.Event()
        self._is_wanted = True
        self._nodes = ConcurrentTasks(_NODES_AT_ONCE)
        #: When a node that did not answer may be asked again, by the monotonic clock.
        self._retry_at: dict[str | None, float] = {}
        self._tries: dict[RunnerId, int] = {}
        #: As far as they were read; written when the post-mortem ends.
        self._circumstances: dict[RunnerId, Circumstances] = {}

    def wake(self) -> None:
        """A log is wanted: look now."""
        self._woken.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                self._woken.clear()
                self._is_wanted = True
                await _tolerating(partial(self._begin, group))
                with suppress(TimeoutError):
                    async with asyncio.timeout(RETRY if self._is_wanted else _QUIET):
                        await self._woken.wait()

    async def look(self) -> None:
        """One look at all that is wanted, until it is done."""
        async with asyncio.TaskGroup() as group:
            await self._begin(group)

    async def _begin(self, group: asyncio.TaskGroup) -> None:
        before = self._nodes.under_way()
        wanted = await self._store.logs_wanted()
        self._is_wanted = bool(wanted)
        self._forget_all_but(wanted)
        of_node: dict[str | None, list[WantedLog]] = {}
        for each in wanted:
            of_node.setdefault(each.node, []).append(each)
        now = self._clock.monotonic()
        for node, those in of_node.items():
            if node not in before and self._retry_at.get(node, now) <= now:
                self._nodes.begin(group, node, partial(self._ask_node, node, those))

    def _forget_all_but(self, wanted: Sequence[WantedLog]) -> None:
        runners = {each.runner for each in wanted}
        nodes = {each.node for each in wanted}
        self._tries = {id_: tries for id_, tries in self._tries.items() if id_ in runners}
        self._circumstances = {k: v for k, v in self._circumstances.items() if k in runners}
        self._retry_at = {node: at for node, at in self._retry_at.items() if node in nodes}

    async def _ask_node(self, node: str | None, wanted: Sequence[WantedLog]) -> None:
        """A request that fails ends the pass, because the node may be dead. The logs that were
        requested least often come first: a log that cannot be read delays the others by one pass."""
        this = _Pass()
        for each in sorted(wanted, key=lambda each: self._tries.get(each.runner, 0)):
            await _tolerating(partial(self._ask, each, this))
        if this.unread or not this.witness_answers:
            self._retry_at[node] = self._clock.monotonic() + RETRY
        else:
            self._retry_at.pop(node, None)

    async def _ask(self, wanted: WantedLog, this: _Pass) -> None:
        is_over = self._is_over(wanted)
        tail = _Tail(known=False)
        if wanted.has_log or this.may_ask(is_over=is_over):
            tail = await self._tail(wanted)
            this.unread += not tail.known
        told = await self._told(wanted, this)
        this.witness_answers &= told.complete
        if not ((tail.known and told.complete) or is_over):
            return
        await self._end(wanted, tail, told)

    def _is_over(self, wanted: WantedLog) -> bool:
        """Time counts only while the fleet answers: after an absence of the API server, or of all
        replicas, a log that is still on its node is requested as often as any other."""
        since, now = self._readable_since(), self._clock.now()
        return now >= wanted.until and since is not None and now - since >= ANSWERED_FOR

    async def _tail(self, wanted: WantedLog) -> _Tail:
        """The log is stored as soon as it is read."""
        if wanted.has_log:
            return _Tail()
        self._tries[wanted.runner] = self._tries.get(wanted.runner, 0) + 1
        try:
            async with asyncio.timeout(TIMEOUT):
                text = await self._fleet.log_tail(
                    wanted.pod_name, uid=wanted.pod_uid, lines=TAIL_LINES, most_bytes=READ_BYTES
                )
        except (TimeoutError, FleetUnavailable) as error:
            _log.info("log.unreadable", **_fields(wanted), error=str(error) or "no answer in time")
            return _Tail(known=False)
        if text:
            await self._keep(wanted, text)
        return _Tail(text)

    async def _told(self, wanted: WantedLog, this: _Pass) -> Circumstances:
        before = self._circumstances.get(wanted.runner, Circumstances(complete=False))
        if self._end_records is None:
            return Circumstances()
        if before.complete or not this.witness_answers:
            return before
        try:
            async with asyncio.timeout(TIMEOUT):
                told = await self._end_records.circumstances(uid=wanted.pod_uid, node=wanted.node)
        except (TimeoutError, FleetUnavailable) as error:
            told = Circumstances((f"not known: {str(error) or 'no answer in time'}",), False)
        self._circumstances[wanted.runner] = told
        return told

    async def _end(self, wanted: WantedLog, tail: _Tail, told: Circumstances) -> None:
        """Ask for nothing more. A log that was captured when the end was announced replaces one that is
        gone."""
        outcome = "kept" if wanted.has_log or tail.text else "none" if tail.known else "given-up"
        if outcome != "kept" and (heard := await self._captured_log(wanted.pod_uid)):
            await self._keep(wanted, heard)
            outcome = "kept"
        ended = await self._store.end_post_mortem(wanted.runner, circumstances=told.sentences)
        if ended:
            LOGS.labels(outcome).inc()
            if outcome == "given-up":
                _log.warning("log.given_up", **_fields(wanted), node=wanted.node)
        if not wanted.vanished:
            await reap(self._fleet, wanted.pod_name, uid=wanted.pod_uid)

    async def _captured_log(self, uid: str) -> str | None:
        if self._end_records is None:
            return None
        try:
            async with asyncio.timeout(TIMEOUT):
                return await self._end_records.captured_log(uid=uid)
        except (TimeoutError, FleetUnavailable):
            return None

    async def _keep(self, wanted: WantedLog, text: str) -> None:
        """Only the writer of the row logs it: once for each Pod, also with two leaders."""
        words = fit_to_keep(text)
        if await self._store.keep_log(wanted.runner, words):
            _log.warning(
                LOG_CAPTURED,
                **_fields(wanted),
                ended_at=wanted.ended_at.isoformat(),
                log=words,
            )
            # A runner that had a job was not refused: the author of a job chooses its name, which is in
            # the log.
            if says_it_was_refused(words) and not shows_a_job(words):
                await note_refusal(self._store, wanted.runner, _fields(wanted))


def _fields(wanted: WantedLog) -> RunnerFields:
    return RunnerFields(
        job=wanted.job,
        runner=wanted.name,
        pod=wanted.pod_name,
        account=wanted.account,
        pool=wanted.pool,
    )


_tolerating = partial(tolerating_outages, loop="post-mortem")


def fit_to_keep(text: str) -> str:
    # Colours would hide a secret's name from what masks it. PostgreSQL keeps any text without a NUL.
    # A fleet reads no more than a tail; a character has up to four bytes.
    text = text[-4 * TAIL_BYTES :]
    words = mask(without_sequences(text.replace("\0", "")))
    if len(text.encode()) > TAIL_BYTES:
        words = _without_first_line(words)
    lines = words.splitlines(keepends=True)[-TAIL_LINES:]
    return "".join(lines).encode()[-TAIL_BYTES:].decode(errors="ignore")


def _without_first_line(words: str) -> str:
    """The text was cut, perhaps between a secret's name and the secret. Of a first line that is longer
    than what is read before, the end is kept: no other line may be there."""
    first, end, rest = words.partition("\n")
    return rest if end and len(first) <= _BEFORE else words
