"""Thousands of runners that end at once, as when many nodes die (I80)."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC

import pytest

from paddock.domain.names import PodName
from paddock.domain.pods.fingerprints import ContainerState, ContainerStatus, Terminated
from paddock.domain.pods.pod import Phase, Pod
from tests.support.recovery import Yard

MANY = 3_000
NODES = 100

#: At work, as the dispatcher would have left them.
_BUSY = """
    INSERT INTO runners (id, pool_id, shape, vcpu_milli, memory_mib, spec_hash, pod_name, pod_uid, node,
                         created_at, state, since, actor, why, generation, key_id, account_id, name,
                         claimed_at, github_id, delivery_id, armed_at, acknowledged_at, busy_at, job_id)
    SELECT gen_random_uuid(), $1, 'gated', 0, 0, '', 'linux-' || n, 'uid-' || n, 'node-' || n % $5,
           $4, 'busy', $4, 'test', 'test', 1, $2, $3, 'linux-' || n || '-1', $4,
           n, gen_random_uuid(), $4, $4, $4, n
      FROM generate_series(1, $6) AS n
"""


async def end_all(scene: Yard) -> None:
    """Their nodes die and answer no request."""
    now = scene.world.clock.now().astimezone(UTC)
    over = Terminated(exit_code=137, reason="ContainerStatusUnknown", finished_at=now)
    dead = Pod(
        name=PodName(""),
        uid="",
        pool="linux",
        phase=Phase.FAILED,
        reason="NodeLost",
        created_at=now,
        containers=(ContainerStatus("runner", ContainerState(terminated=over), started=True),),
    )
    for n in range(1, MANY + 1):
        name = PodName(f"linux-{n}")
        scene.fleet.pods[name] = replace(dead, name=name, uid=f"uid-{n}", node=f"node-{n % NODES}")


async def test_the_capacity_of_thousands_is_free_before_any_log_is_read(
    scene: Yard, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    """I80: recorded in a dozen statements, while no node answers for a log."""
    monkeypatch.setattr("paddock.forensics.post_mortem.TIMEOUT", 600.0)
    async with scene.world.database.transaction() as connection:
        await connection.execute(
            _BUSY, scene.pool, scene.key, scene.account, scene.world.clock.now(), NODES, MANY
        )
    await end_all(scene)
    recovery = scene.recovery()
    await scene.viewed.refresh()
    calls = itertools.count()
    conclude = scene.world.store.conclude_runners

    async def counted(ends: object) -> object:
        next(calls)
        return await conclude(ends)  # type: ignore[arg-type]

    monkeypatch.setattr(scene.world.store, "conclude_runners", counted)
    with scene.fleet.stalled("log_tail"):
        tasks = [
            asyncio.create_task(recovery._post_mortem.run()),
            asyncio.create_task(recovery._conclude_for_ever()),
        ]
        began = time.perf_counter()
        try:
            while (await scene.world.store.list_accounts())[0].used.runners:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            record_property("seconds", time.perf_counter() - began)
            assert len(await scene.world.store.logs_wanted()) == MANY
            assert scene.fleet.calls["reap"] == 0
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    assert next(calls) <= MANY // 200
