"""`paddock why`, as it is typed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from paddock.domain.limits import Limits
from paddock.store.database import Database
from tests.support.world import World

pytestmark = pytest.mark.slow


def why(url: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "paddock", "why", *words],
        env={**os.environ, "PADDOCK_DATABASE_URL": url, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


async def test_a_job_is_found_by_its_number_and_its_address_and_a_stranger_is_not(
    database: Database, database_url: str
) -> None:
    world = await World(database).begin()
    account, pool = await world.account(limits=Limits(runners=0)), await world.pool()
    [job] = await world.queue(account, await world.key(account, pool), 1)
    told = why(database_url, str(job))
    assert told.returncode == 0, told.stderr
    assert "The account org-1 has reached its limit: it uses 0 of 0 runners." in told.stdout
    assert "Next: One of its runners ends" in told.stdout
    address = f"https://github.com/org-1/repo/actions/runs/1/job/{job}"
    [story] = json.loads(why(database_url, address, "--json").stdout)
    assert (story["kind"], story["state"]) == ("job", "queued")
    assert [fact["what"] for fact in story["facts"]] == [
        "GitHub created the job",
        "the job is queued: test",
    ]
    unknown = why(database_url, "linux-unknown")
    assert unknown.returncode == 3
    assert unknown.stdout == ""
    assert "Nothing is known of linux-unknown" in unknown.stderr
