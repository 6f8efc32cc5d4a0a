"""The work that every engine does, and how it is verified.

Jobs wait in a queue, spread over accounts. A claim takes one out and marks which Pod has it, durably.
Everything around a claim (Pods that appear, jobs that start, end and arrive) happens between the
timed sections, in bulk, for all engines alike.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import asyncpg

#: Pods that wait together, and so are claimed for together by engines that can.
BATCH = 64
#: Claims timed in one section; the queue is at its depth when they begin. Long enough that sixteen
#: workers do not spend it starting and stopping.
SECTION = 256


@dataclass(frozen=True, slots=True)
class Cell:
    name: str
    depth: int
    accounts: int
    in_flight: int

    def limit_of(self, account: int) -> int | None:
        """Every fifth account may have half of an equal share, so its limit always binds. The other
        accounts have no limit."""
        return None if account % 5 else self.in_flight // self.accounts // 2

    def queued(self) -> list[int]:
        """The account of each job in the queue, oldest first."""
        return [number % self.accounts + 1 for number in range(self.depth)]

    def busy(self) -> list[int]:
        """The account of each runner in flight at the beginning: at its limit, and not above."""
        held: list[int] = []
        accounts = range(1, self.accounts + 1)
        share = 0
        while len(held) < self.in_flight:
            share += 1
            held += [
                account
                for account in accounts
                if (limit := self.limit_of(account)) is None or share <= limit
            ]
        return held[: self.in_flight]


@dataclass(frozen=True, slots=True)
class Claimed:
    job: int
    pod: str
    account: int


@dataclass(slots=True)
class Section:
    """One timed section. `waits` has, for every claim, the seconds from the request to its commit."""

    seconds: float = 0.0
    waits: list[float] = field(default_factory=list)
    claims: list[Claimed] = field(default_factory=list)


class Engine(ABC):
    """One queue in a database of its own."""

    name: ClassVar[str]
    title: ClassVar[str]
    #: How many workers to try; the best is measured.
    workers: ClassVar[Sequence[int]] = (1, 2, 4, 8, 16)

    def __init__(self, url: str, cell: Cell) -> None:
        self.url = url
        self.cell = cell
        self.admin: Any = None

    async def open(self) -> list[Claimed]:
        """Makes the schema, fills the queue, and returns what is in flight."""
        self.admin = await asyncpg.connect(self.url)
        return await self.fill()

    async def close(self) -> None:
        await self.leave()
        if self.admin is not None:
            await self.admin.close()

    async def tidy(self) -> None:
        await self.admin.execute("VACUUM (ANALYZE)")

    @abstractmethod
    async def fill(self) -> list[Claimed]: ...

    @abstractmethod
    async def use(self, workers: int) -> None:
        """Lets this many workers claim from now on."""

    @abstractmethod
    async def leave(self) -> None:
        """Closes all connections of all workers."""

    @abstractmethod
    async def section(self) -> Section:
        """Makes `SECTION` claims; only the claims are timed."""

    @abstractmethod
    async def recycle(self, *, started: Sequence[Claimed], ended: Sequence[Claimed]) -> None:
        """The jobs claimed last have `started`, those of long ago have `ended`; for each that
        started another of its account is queued."""

    @abstractmethod
    async def depth(self) -> int: ...

    @abstractmethod
    async def used(self) -> dict[int, int]:
        """Runners in flight by account, as the database shows them."""

    @abstractmethod
    async def marked(self, claims: Sequence[Claimed]) -> int:
        """How many of these claims the database knows, each with its Pod."""


Ask = Callable[[], Awaitable[Any]]


async def race(
    workers: Sequence[Ask], *, size: int = 1, read: Callable[[Any], Sequence[Claimed]]
) -> Section:
    """Lets the workers make `SECTION` claims together, `size` at a time, each as fast as it can. The
    answers are read after the clock has stopped."""
    answers: list[tuple[float, Any]] = []
    left = SECTION

    async def work(ask: Ask) -> None:
        nonlocal left
        while left > 0:
            left -= size
            asked = time.perf_counter()
            answer = await ask()
            answers.append((time.perf_counter() - asked, answer))

    began = time.perf_counter()
    await asyncio.gather(*(work(ask) for ask in workers))
    section = Section(time.perf_counter() - began)
    for wait, answer in answers:
        claims = read(answer)
        section.claims += claims
        section.waits += [wait] * len(claims)
    return section
