"""Vitals: written in batches, without a lock on rows that dispatch needs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from paddock.dispatch.vitals import VitalsBatches
from paddock.domain.runners.vitals import (
    MOST_RECENT,
    MOST_SAMPLES,
    Sample,
    VitalsOutcome,
    VitalsReport,
)
from paddock.ports.errors import Contended
from paddock.store.database import Database
from paddock.system import SystemClock
from tests.support.runner_rows import read_samples
from tests.support.world import World


@pytest.fixture
async def world(database: Database) -> World:
    return await World(database).begin()


def samples(*at: float) -> list[Sample]:
    return [Sample(at=each, memory_used=each) for each in at]


async def pods(world: World, count: int) -> list[tuple[str, str]]:
    await world.idle_pods(await world.pool(), count)
    rows = await world.rows("SELECT pod_name, pod_uid FROM runners ORDER BY id")
    return [(row["pod_name"], row["pod_uid"]) for row in rows]


def report(pod: tuple[str, str], *at: float, world: World | None = None) -> VitalsReport:
    return VitalsReport(
        pod_name=pod[0],
        pod_uid=pod[1],
        samples=samples(*at),
        job_started_at=world.clock.now() if world else None,
    )


async def series(world: World, pod: tuple[str, str]) -> list[float]:
    [row] = await world.rows("SELECT id FROM runners WHERE pod_name = $1", pod[0])
    return [each.at for each in await read_samples(world.store, row["id"])]


async def test_each_pods_samples_are_its_own_in_order_and_once(world: World) -> None:
    one, other = await pods(world, 2)
    batch = [report(one, 1.0, 2.0), report(other, 5.0), report(one, 2.0, 3.0)]
    assert await world.store.add_vitals(batch) == [VitalsOutcome.KEPT] * 3
    assert await world.store.add_vitals(batch) == [VitalsOutcome.KEPT] * 3
    assert await series(world, one) == [1.0, 2.0, 3.0]
    assert await series(world, other) == [5.0]


async def test_a_long_series_is_whole_ordered_and_bounded(world: World) -> None:
    [pod] = await pods(world, 1)
    for at in range(3 * MOST_RECENT):
        await world.store.add_vitals([report(pod, float(at), float(at) + 0.5)])
    assert await series(world, pod) == [at / 2 for at in range(6 * MOST_RECENT)]
    for at in range(100, 100 + 2 * MOST_SAMPLES // 64):
        await world.store.add_vitals([report(pod, *(at + number / 64 for number in range(64)))])
    kept = await series(world, pod)
    assert kept == sorted(kept)
    assert len(kept) <= MOST_SAMPLES + MOST_RECENT + 64


async def test_a_pod_that_no_living_row_knows_is_told_so(world: World) -> None:
    [pod] = await pods(world, 1)
    stranger, reborn = ("linux-unknown", "uid"), (pod[0], "another uid")
    batch = [report(stranger, 1.0), report(pod, 1.0), report(reborn, 1.0)]
    assert await world.store.add_vitals(batch) == [
        VitalsOutcome.UNWANTED,
        VitalsOutcome.KEPT,
        VitalsOutcome.UNWANTED,
    ]


async def test_a_runners_row_that_is_locked_delays_no_vitals(world: World) -> None:
    """Dispatch holds rows of runners for as long as its transactions take."""
    locked, free = await pods(world, 2)
    async with world.database.transaction() as connection:
        await connection.execute("SELECT FROM runners WHERE pod_name = $1 FOR UPDATE", locked[0])
        async with asyncio.timeout(5):
            kept = await world.store.add_vitals(
                [report(locked, 1.0, world=world), report(free, 1.0, world=world)]
            )
    assert kept == [VitalsOutcome.NOT_MARKED, VitalsOutcome.KEPT]
    assert await series(world, locked) == [1.0]
    assert await world.store.add_vitals([report(locked, world=world)]) == [VitalsOutcome.KEPT]
    marked = await world.rows("SELECT FROM runners WHERE job_marked_at IS NOT NULL")
    assert len(marked) == 2


async def test_a_runner_is_written_once_however_often_its_job_is_reported(world: World) -> None:
    """I84"""
    [pod] = await pods(world, 1)
    await world.store.add_vitals([report(pod, 1.0, world=world)])
    before = await world.rows("SELECT xmin FROM runners")
    await world.store.add_vitals([report(pod, 2.0, world=world)])
    assert await world.rows("SELECT xmin FROM runners") == before


class Poisoned:
    """Refuses every batch with a certain Pod, like a database that cannot store one of its values."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.kept: list[str] = []

    async def add_vitals(self, reports: Sequence[VitalsReport]) -> list[VitalsOutcome]:
        self.batches.append(len(reports))
        if any(each.pod_name == "poison" for each in reports):
            raise ValueError("a NUL byte")
        self.kept += [each.pod_name for each in reports]
        return [
            VitalsOutcome.UNWANTED if each.pod_name == "gone" else VitalsOutcome.KEPT
            for each in reports
        ]


async def test_reports_share_a_transaction_and_a_poisonous_one_is_alone_in_its_failure() -> None:
    """I13"""
    store = Poisoned()
    batches = VitalsBatches(store, SystemClock())
    names = ["a", "poison", "b", "gone"]
    kept = await asyncio.gather(*(batches.add(report((name, "uid"), 1.0)) for name in names))
    assert store.batches == [4, 1, 1, 1, 1]
    assert store.kept == ["a", "b", "gone"]
    assert kept == [True, True, True, False]


async def test_a_report_is_acknowledged_when_its_job_is_marked(world: World) -> None:
    [pod] = await pods(world, 1)
    batches = VitalsBatches(world.store, SystemClock())
    async with world.database.transaction() as connection:
        await connection.execute("SELECT FROM runners FOR UPDATE")
        answer = asyncio.ensure_future(batches.add(report(pod, 1.0, world=world)))
        await asyncio.wait({answer}, timeout=1.5)
        assert not answer.done()
    try:
        assert await answer
    except Contended:
        pytest.skip("the machine was so slow that the report was given up, to be sent again")
    assert await world.rows("SELECT FROM runners WHERE job_marked_at IS NOT NULL")
