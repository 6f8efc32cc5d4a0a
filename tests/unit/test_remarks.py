"""GitHub's remaining quota: written often enough, and not with every answer."""

from __future__ import annotations

import asyncio

from paddock.domain.github.budgets import Bucket, BudgetKey
from paddock.domain.github.objects import GitHubAppId, GitHubHost
from paddock.github.budget import MemoryBudget, Remarks
from tests.support.time import ManualClock

KEY = BudgetKey(bucket=Bucket.REST, host=GitHubHost("github.com"), app=GitHubAppId(1))


class Noting(MemoryBudget):
    """Records the remarks that reach it."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.remarks: list[int] = []

    async def observe(
        self, key: BudgetKey, *, remaining: int, resets_in_s: float | None = None
    ) -> None:
        self.remarks.append(remaining)


class Patient(ManualClock):
    """Time passes only when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        await self.passed.wait()


async def test_of_many_remarks_the_last_is_written() -> None:
    clock = Patient()
    budget = Noting(clock)
    remarks = Remarks(budget, clock)
    for remaining in range(4_999, 4_949, -1):
        remarks.note(KEY, remaining=remaining, resets_in_s=None)
        await asyncio.sleep(0)
    assert budget.remarks == []
    clock.passed.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert budget.remarks == [4_950]


async def test_a_client_that_pays_reads_all_headers() -> None:
    clock = Patient()
    budget = Noting(clock)
    remarks = Remarks(budget, clock)
    remarks.note(KEY, remaining=12, resets_in_s=None)
    await remarks.passed_on()
    assert budget.remarks == [12]


async def test_that_nothing_is_left_is_written_at_once() -> None:
    clock = Patient()
    budget = Noting(clock)
    Remarks(budget, clock).note(KEY, remaining=0, resets_in_s=60.0)
    for _ in range(3):
        await asyncio.sleep(0)
    assert budget.remarks == [0]
