"""The heartbeat notices when sessions with the database are dead, and when the database is back.

A primary that loses its power, or a network that drops packets, ends no connection. A statement that
was sent would wait for minutes, until the kernel gives up; a new connection would wait for ten seconds.
So the heartbeat sends a query every second in a session of its own. When that session is silent, it
tries new sessions until one answers. If the old session is still silent then, all sessions of the pool
count as dead: the heartbeat ends them, and the calls that wait for their answers fail and try again.

While no session answers, none is ended: a database that is merely slow keeps its sessions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import structlog

from paddock.ports import Clock
from paddock.store.database import Database, RawSession

_log = structlog.get_logger()

#: With the values below, dispatch resumes within two seconds of the database's return.
_EVERY: Final = 1.0
#: A session that answers within this is alive. Under load a session may be slower, so exceeding this
#: alone ends no session.
_ANSWERS_WITHIN: Final = 1.0
#: How often a new attempt is begun, beside those under way. An attempt begun while packets were dropped
#: may take long to notice that packets pass again.
_TRY_EVERY: Final = 0.5
#: How much longer the old session may answer after a new one has answered.
_GRACE: Final = 0.25
#: As in the pool; a TLS handshake over a bad network takes two seconds.
_AT_ONCE: Final = 20

_ASK: Final = "SELECT 1"


class Heartbeat:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    @classmethod
    @asynccontextmanager
    async def running(cls, database: Database, clock: Clock) -> AsyncIterator[None]:
        task = asyncio.create_task(cls(database, clock)._run(), name="heartbeat")  # noqa: SLF001
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        session = await self._new_session()
        try:
            while True:
                unanswered = await self._until_silent(session)
                fresh = await self._new_session()
                if unanswered is not None:
                    await asyncio.wait({unanswered}, timeout=_GRACE)
                    if not unanswered.done():
                        _log.warning("database.sessions_dead")
                        await self._database.end_sessions()
                self._database.connect_anew()
                session.terminate()
                session = fresh
        finally:
            session.terminate()

    async def _until_silent(self, session: RawSession) -> asyncio.Future[object] | None:
        """The query that `session` does not answer; `None` if the session was lost instead."""
        while True:
            await self._clock.sleep(_EVERY)
            question: asyncio.Future[object] = asyncio.ensure_future(session.execute(_ASK))
            # Also when this task is cancelled: the session is then terminated, and the query fails.
            question.add_done_callback(_ignore)
            await asyncio.wait({question}, timeout=_ANSWERS_WITHIN)
            if not question.done():
                return question
            if question.exception() is not None:
                return None

    async def _new_session(self) -> RawSession:
        """The first new session that answers, however long that takes."""
        attempts: set[asyncio.Future[RawSession]] = set()
        try:
            while True:
                if len(attempts) < _AT_ONCE:
                    attempts.add(asyncio.ensure_future(self._database.session_apart()))
                began = self._clock.monotonic()
                done, attempts = await asyncio.wait(
                    attempts, timeout=_TRY_EVERY, return_when=asyncio.FIRST_COMPLETED
                )
                answered = [each.result() for each in done if each.exception() is None]
                for spare in answered[1:]:
                    spare.terminate()
                if answered:
                    return answered[0]
                await self._clock.sleep(max(0.0, began + _TRY_EVERY - self._clock.monotonic()))
        finally:
            for attempt in attempts:
                attempt.add_done_callback(_end_spare)
                attempt.cancel()


def _ignore(question: asyncio.Future[object]) -> None:
    if not question.cancelled():
        question.exception()


def _end_spare(attempt: asyncio.Future[RawSession]) -> None:
    """End a session that answered after another one had."""
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().terminate()
