"""The operator's commands, as they are typed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paddock.domain.accounts import InstallationFacts, MintBudget
from paddock.domain.limits import Limits, Resources
from paddock.domain.pools.pool import PoolFacts
from paddock.store.database import Database
from paddock.store.store import PgStore
from tests.support.payloads import delivery
from tests.support.time import ManualClock, SeededIds
from tests.support.world import World

pytestmark = pytest.mark.slow


class Commands:
    def __init__(self, url: str) -> None:
        self._environment = {**os.environ, "PADDOCK_DATABASE_URL": url, "COLUMNS": "200"}

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "paddock", *words],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    def json(self, *words: str) -> Any:
        done = self(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def paddock(database_url: str) -> Commands:
    return Commands(database_url)


@pytest.fixture
async def world(database: Database) -> World:
    return await World(database).begin()


#: Who paused it, and when.
WHO = r"by \S+ since \d{4}-\d\d-\d\d \d\d:\d\d UTC"

POOL = """
apiVersion: paddock.dev/v1alpha1
kind: RunnerPool
metadata: {name: linux}
spec:
  labels: [self-hosted, linux]
  resources: {vcpu: 2, memory: 4Gi}
"""


async def test_pools_are_applied_listed_paused_and_resumed(
    paddock: Commands, tmp_path: Path
) -> None:
    file = tmp_path / "pools.yaml"
    file.write_text(POOL)
    assert paddock("pools", "apply", str(file)).returncode == 0
    done = paddock("pools", "pause", "linux", "--why", "incident 7")
    assert done.stdout == "linux is paused\n"
    assert re.search("operator.acted .*action=pause-pool .*why=.incident 7.", done.stderr)
    [pool] = paddock.json("pools", "list")
    assert pool["labels"] == ["linux", "self-hosted"]
    assert pool["paused_by"].startswith("operator:")
    assert pool["paused_why"] == "incident 7"
    said = rf"paused {WHO}: incident 7"
    assert re.search(said.removeprefix("paused "), paddock("pools", "list").stdout)
    assert re.search(said, paddock("pools", "explain", "linux").stdout)
    assert paddock("pools", "resume", "linux").returncode == 0
    [pool] = paddock.json("pools", "list")
    assert (pool["paused_by"], pool["paused_why"]) == (None, None)
    assert "linux was not paused" in paddock("pools", "resume", "linux").stdout


async def test_a_file_with_a_mistake_changes_nothing(paddock: Commands, tmp_path: Path) -> None:
    file = tmp_path / "pools.yaml"
    file.write_text(POOL + "---" + POOL.replace("name: linux", "name: LINUX"))
    done = paddock("pools", "apply", str(file))
    assert done.returncode == 1
    assert "LINUX" in done.stderr
    assert "Traceback" not in done.stderr
    assert paddock.json("pools", "list") == []


async def test_a_pool_that_contains_one_already_there_is_refused(
    paddock: Commands, tmp_path: Path
) -> None:
    """I10"""
    file = tmp_path / "pools.yaml"
    file.write_text(POOL)
    paddock("pools", "apply", str(file))
    file.write_text(POOL.replace("name: linux", "name: more").replace("linux]", "linux, gpu]"))
    done = paddock("pools", "apply", str(file))
    assert done.returncode == 1
    assert "contain one another" in done.stderr


async def test_limits_change_only_what_is_named_and_zero_means_zero(
    paddock: Commands, world: World
) -> None:
    """I54"""
    account = await world.account(limits=Limits(runners=5, memory_mib=1024))
    assert paddock("accounts", "limits", "org-1", "--runners", "0", "--vcpu", "2.5").returncode == 0
    assert paddock("accounts", "limits", "org-1", "--memory", "none").returncode == 0
    assert paddock("accounts", "weight", "org-1", "3").returncode == 0
    assert paddock("accounts", "pause", "org-1", "--why", "invoice").returncode == 0
    assert re.search(rf"{WHO}: invoice", paddock("accounts", "list").stdout)
    [listed] = paddock.json("accounts", "list")
    assert listed["id"] == account
    assert listed["limits"] == {"runners": 0, "vcpu_milli": 2500, "memory_mib": None}
    assert listed["weight"] == 3
    assert listed["paused_by"].startswith("operator:")


async def test_a_repositorys_limits_are_its_own(paddock: Commands, world: World) -> None:
    await world.account()
    done = paddock("accounts", "limits", "org-1", "--repository", "org-1/repo", "--runners", "2")
    assert done.stdout == "org-1/repo may use 2 runners\n"
    [row] = await world.rows("SELECT max_runners, limited FROM repositories")
    assert tuple(row) == (2, True)


async def test_a_limit_that_cannot_be_exact_says_so(paddock: Commands, world: World) -> None:
    """I78: where it is set, and in `paddock doctor`."""
    account = await world.account()
    spec = {"labels": ["self-hosted", "linux"], "runnerGroup": "builders"}
    pool = await world.store.apply_pool(
        PoolFacts(
            name="linux",
            labels=("self-hosted", "linux"),
            shape="gated",
            cost=Resources(),
            max_runners=None,
            runner_group="builders",
            spec=json.dumps(spec),
            spec_hash="v1",
        )
    )
    await world.store.set_groups(account, {pool: 7})
    done = paddock("accounts", "limits", "org-1", "--repository", "org-1/repo", "--runners", "2")
    assert done.stdout.startswith("org-1/repo may use 2 runners\nnot exact in pool linux: ")
    found = paddock.json("doctor")
    assert "limits in org-1" in {finding["about"] for finding in found}
    gone = paddock("accounts", "limits", "org-1", "--repository", "org-1/repo", "--runners", "none")
    assert gone.stdout == "org-1/repo may use as much as there is\n"


async def test_a_login_on_two_hosts_must_say_which(
    paddock: Commands, world: World, database: Database
) -> None:
    """I71"""
    await world.account()
    store = PgStore(database, clock=ManualClock(), ids=SeededIds(), actor="test")
    host = await store.ensure_host("github.example.org", api_url="https://github.example.org")
    app = await store.ensure_app(host, 1, mints=MintBudget())
    await store.record_installation(
        InstallationFacts(
            host=host,
            app=app,
            id=1,
            account_id=1,
            login="org-1",
            kind="organization",
            state="active",
            all_repositories=True,
        )
    )
    done = paddock("accounts", "pause", "org-1")
    assert done.returncode == 3
    assert "github.example.org/org-1" in done.stderr
    assert paddock("accounts", "pause", "github.example.org/org-1").returncode == 0


async def test_dead_deliveries_are_listed_with_their_error_and_tried_again(
    paddock: Commands, world: World
) -> None:
    await world.store.store_deliveries([delivery(world.host, world.app, "g-1", b"{")])
    await world.rows(
        "UPDATE deliveries SET state = 'dead', note = 'not JSON', settled_at = received_at RETURNING 1"
    )
    assert "not JSON" in paddock("deliveries", "list", "--state", "dead").stdout
    assert paddock("deliveries", "retry", "--all").stdout == "1 delivery is pending again\n"
    [listed] = paddock.json("deliveries", "list")
    assert listed["state"] == "pending"


@pytest.mark.parametrize(
    "words",
    [
        ("accounts", "pause", "unknown"),
        ("pools", "pause", "nothing"),
        ("pools", "apply", "/nowhere/pools.yaml"),
        ("accounts", "limits", "unknown", "--runners", "many"),
    ],
)
async def test_what_is_not_there_is_a_sentence_and_a_failure(
    paddock: Commands, words: tuple[str, ...]
) -> None:
    done = paddock(*words)
    assert done.returncode != 0
    assert done.stderr.strip()
    assert "Traceback" not in done.stderr


async def test_runners_are_listed_and_sent_away(world: World, paddock: Commands) -> None:
    pool = await world.pool()
    [pod] = await world.idle_pods(pool, 1)

    [listed] = paddock.json("runners", "list")
    assert (listed["pod"], listed["pool"], listed["state"]) == (pod.pod_name, "linux", "idle")

    done = paddock("runners", "retire", pod.pod_name, "--why", "its disk is odd")
    assert "is being retired" in done.stdout, done.stderr
    [listed] = paddock.json("runners", "list", "--pool", "linux")
    assert (listed["state"], listed["why"]) == ("retiring", "its disk is odd")
    [event] = await world.rows("SELECT actor FROM events WHERE after = 'retiring'")
    assert event["actor"].startswith("operator:")

    assert "already" in paddock("runners", "retire", pod.pod_name).stdout


async def test_a_runner_is_ended_by_force_only_when_that_was_confirmed(
    world: World, paddock: Commands
) -> None:
    pool = await world.pool()
    [pod] = await world.idle_pods(pool, 1)
    force = ("runners", "retire", pod.pod_name, "--force", "--why", "it hangs")

    unanswered = paddock(*force)
    assert unanswered.returncode != 0
    assert "Nothing undoes this" in unanswered.stdout + unanswered.stderr
    [listed] = paddock.json("runners", "list")
    assert listed["state"] == "idle"

    assert "is ended by force" in paddock(*force, "--yes").stdout
    [runner] = await world.rows("SELECT state, forced_by, why FROM runners")
    assert (runner["state"], runner["why"]) == ("retiring", "it hangs")
    assert runner["forced_by"].startswith("operator:")


async def test_a_runner_that_is_not_there_is_a_sentence(paddock: Commands) -> None:
    done = paddock("runners", "retire", "linux-unknown")
    assert done.returncode == 3
    assert "There is no runner linux-unknown" in done.stderr
