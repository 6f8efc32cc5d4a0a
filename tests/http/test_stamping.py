"""The owner's label: tried three times, then given up, and never in the way of a dispatch."""

from __future__ import annotations

import pytest

from paddock.domain.ids import RunnerId
from paddock.domain.names import PodName
from paddock.domain.pods.pod import Pod, PodOrder
from paddock.recovery.stamping import ATTEMPTS, PAUSE, Stamper
from tests.support.fleet import MemoryFleet
from tests.support.time import ManualClock, SeededIds


class Scene:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.fleet = MemoryFleet(self.clock)
        self.stamper = Stamper(fleet=self.fleet, clock=self.clock)

    async def pod(self) -> Pod:
        order = PodOrder(
            runner=RunnerId(SeededIds().uuid()), name=PodName("linux-x"), pool="linux", spec="{}"
        )
        return await self.fleet.create(order)


async def test_a_stamp_takes_one_call() -> None:
    scene = Scene()
    assert await scene.stamper.stamp(await scene.pod(), owner="7")
    assert scene.fleet.calls["stamp"] == 1
    assert scene.fleet.pods["linux-x"].owner == "7"


@pytest.mark.parametrize("failures", [1, 2])
async def test_a_blip_is_ridden_out(failures: int) -> None:
    scene = Scene()
    pod = await scene.pod()
    scene.fleet.fail("stamp", times=failures)
    began = scene.clock.monotonic()
    assert await scene.stamper.stamp(pod, owner="7")
    assert scene.fleet.calls["stamp"] == failures + 1
    assert scene.clock.monotonic() - began == pytest.approx(failures * PAUSE, abs=1e-6)


async def test_it_is_given_up_after_exactly_three_calls_and_is_never_fatal() -> None:
    scene = Scene()
    pod = await scene.pod()
    scene.fleet.fail("stamp", times=99)
    assert not await scene.stamper.stamp(pod, owner="7")
    assert scene.fleet.calls["stamp"] == ATTEMPTS == 3
    assert scene.fleet.pods["linux-x"].owner is None
