"""Many subjects at once, each by one at a time (I57).

An end may wait seconds for its last words, from a node that does not answer. Whoever looked for ends
only when all of the last look are done would let every other end wait for the slowest. So each goes on
by itself while the next look is made; what is under way is not begun a second time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable


class SideBySide:
    def __init__(self, most: int) -> None:
        self._places = asyncio.Semaphore(most)
        self._under_way: set[Hashable] = set()

    def under_way(self) -> Collection[Hashable]:
        """As of now. Whoever reads rows after this must not begin what was under way then: it may be
        done, and the rows be from before."""
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
