"""Work on many subjects concurrently, with one task per subject at a time (I57).

A runner's end may wait seconds for its log, from a node that does not answer. If recovery looked for
ends again only when all earlier ones are done, every new end would wait for the slowest. So each task
goes on while recovery looks again; a subject that is under way is not begun a second time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable


class ConcurrentTasks:
    def __init__(self, most: int) -> None:
        self._places = asyncio.Semaphore(most)
        self._under_way: set[Hashable] = set()

    def under_way(self) -> Collection[Hashable]:
        """The subjects under way now. Call this before reading rows, and begin none of these subjects
        from those rows: its task may end meanwhile, and the row be older than its result."""
        return frozenset(self._under_way)

    def begin(
        self, group: asyncio.TaskGroup, subject: Hashable, work: Callable[[], Awaitable[None]]
    ) -> None:
        if subject not in self._under_way:
            self._under_way.add(subject)
            group.create_task(self._do(subject, work))

    async def _do(self, subject: Hashable, work: Callable[[], Awaitable[None]]) -> None:
        try:
            async with self._places:
                await work()
        finally:
            self._under_way.discard(subject)
