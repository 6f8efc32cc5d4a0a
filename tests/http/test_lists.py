"""Lists, pauses and completion, as they are typed."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys

import pytest

from paddock.domain.allocation import Withheld
from paddock.domain.runners.endings import Ending
from paddock.domain.runners.runner import Runner
from paddock.domain.states import JobState
from paddock.store.database import Database
from tests.http.test_operating import WHO, Commands
from tests.support.payloads import delivery, workflow_job
from tests.support.runner_rows import conclude_runner, read_runner
from tests.support.world import World

pytestmark = pytest.mark.slow


@pytest.fixture
async def world(database: Database) -> World:
    return await World(database).begin()


@pytest.fixture
def paddock(database_url: str) -> Commands:
    return Commands(database_url)


async def test_jobs_are_listed_and_filtered_and_list_may_be_left_out(
    paddock: Commands, world: World
) -> None:
    account, pool = await world.account(), await world.pool()
    key = await world.key(account, pool)
    await world.report(account, key, world.facts(7, JobState.COMPLETED))
    await world.queue(account, key, 2)
    page = paddock("jobs", "--status", "queued", "-n", "1", "--json")
    [queued] = json.loads(page.stdout)
    assert (queued["status"], queued["pool"]) == ("queued", "linux")
    assert "there are more: --after " in page.stderr
    done = paddock("jobs", "list", "--conclusion", "success", "--account", "org-1")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["JOB", "7"]
    wrong = paddock("jobs", "--after", "nonsense")
    assert wrong.returncode == 2
    assert "Traceback" not in wrong.stderr


async def test_endings_are_listed_counted_and_filtered(paddock: Commands, world: World) -> None:
    pool = await world.pool()
    for pod, ending in zip(
        await world.idle_pods(pool, 2), (Ending.COMPLETED, Ending.HOST_OOM), strict=True
    ):
        runner = await read_runner(world.store, pod.id)
        assert runner is not None
        gone = await conclude_runner(
            world.store,
            runner.id,
            generation=runner.generation,
            state=runner.state,
            ending=ending,
            why="It ended.",
            ended_at=world.clock.now(),
        )
        assert isinstance(gone, Runner)
    [abnormal] = paddock.json("endings", "--abnormal", "--since", "9000d")
    assert abnormal["ending"] == "host-oom"
    assert paddock.json("endings", "counts", "--since", "9000d") == {"completed": 1, "host-oom": 1}


async def test_deliveries_are_filtered_by_their_event(paddock: Commands, world: World) -> None:
    await world.store.store_deliveries(
        [delivery(world.host, world.app, guid, workflow_job()) for guid in ("a", "b")]
    )
    assert len(paddock.json("deliveries", "--event", "workflow_job")) == 2


async def test_all_dispatch_is_paused_in_an_operators_name_and_resumed(
    paddock: Commands, world: World
) -> None:
    account, pool = await world.account(), await world.pool()
    key = await world.key(account, pool)
    await world.queue(account, key, 1)
    pods = await world.idle_pods(pool, 1)
    assert paddock("pause", "--why", "the registry is down").stdout == "all dispatch is paused\n"
    match = await world.store.match(pods)
    assert (match.claims, dict(match.withheld)) == ((), {key: Withheld.PAUSED})
    for listed in ("pools", "accounts"):
        said = rf"all dispatch is paused {WHO}: the registry is down"
        assert re.search(said, paddock(listed).stderr)
    [job] = await world.rows("SELECT id FROM jobs")
    assert re.search(
        rf"paused {WHO}: the registry is down\.", paddock("why", str(job["id"])).stdout
    )
    assert re.search(rf"{WHO}: the registry is down", paddock("top").stdout)
    assert re.search(rf"queued .* paused {WHO}: the registry is down", paddock("jobs").stdout)
    assert paddock("resume").stdout == "runners are given out again\n"
    assert paddock("pools").stderr == ""
    assert len((await world.store.match(pods)).claims) == 1
    rows = await world.rows(
        "SELECT actor, after, why FROM events WHERE after LIKE 'dispatch %' ORDER BY id"
    )
    assert [(row["after"], row["why"]) for row in rows] == [
        ("dispatch paused", "the registry is down"),
        ("dispatch resumed", "resumed by hand"),
    ]
    assert all(row["actor"].startswith("operator:") for row in rows)


async def test_a_look_at_the_fleet_is_printed_where_there_is_no_terminal(
    paddock: Commands, world: World
) -> None:
    await world.idle_pods(await world.pool(), 3)
    seen = paddock("top")
    assert "3 idle" in seen.stdout


def test_shells_are_told_how_to_complete() -> None:
    """Which shell it is, it sees by itself."""
    command = f"{shlex.quote(sys.executable)} -m paddock --show-completion; exit $?"
    told = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=180, check=False
    )
    assert told.returncode == 0, told.stderr
    assert "complete" in told.stdout
