"""Supply is defined once, in the schema; the matcher, sizes, recovery and `why` all use it."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest

import paddock
from paddock.domain.ids import KeyId
from paddock.domain.recovery.records import DoubtTerms
from paddock.store.database import Database
from tests.support.world import World

STORE = Path(paddock.__file__).parent / "store"

#: Kinds of runners of the key, and what each counts for: among live runners, among ended ones.
RUNNERS = {
    "claimed": ("state = 'claimed'", 1, 0),
    "armed": ("state = 'armed'", 1, 0),
    "running": ("state = 'running'", 1, 0),
    "suspect": ("state = 'running', suspect_at = $2", 0, 0),
    "busy by its own word": ("state = 'busy', busy_at = $2", 1, 0),
    "busy, and its job known": ("state = 'busy', busy_at = $2, job_id = 7", 0, 0),
    "busy by its own word for long": ("state = 'busy', busy_at = $2 - interval '3 min'", 0, 0),
    "done": ("state = 'done'", 0, 0),
    "retiring": ("state = 'retiring'", 0, 0),
    "gone": ("state = 'gone', gone_at = $2", 0, 0),
    "gone, its job unknown": ("state = 'gone', gone_at = $2", 0, 1),
}


@pytest.fixture
async def world(database: Database) -> World:
    return await World(database).begin()


@pytest.mark.parametrize("kind", RUNNERS)
async def test_all_that_count_supply_count_the_same(world: World, kind: str) -> None:
    """I73, I68: a served job is neither served again, nor built for, nor does its runner count as
    surplus."""
    change, live, ended = RUNNERS[kind]
    account, pool = await world.account(), await world.pool()
    key = await world.key(account, pool)
    now = world.clock.now()
    first, second = await world.queue(account, key, 2)
    claimed, _ = (await world.store.match(await world.idle_pods(pool, 2))).claims
    await _set(world, change, claimed.runner, ended)
    supply = live + ended + 1  # the other one is claimed

    [row] = await world.rows("SELECT * FROM supply($1)", now)
    assert (row["key_id"], row["runners"], row["ended"]) == (key, live + 1, ended)

    [counted] = (await world.store.survey_pools(ended=[], since=now)).keys
    assert counted.load.supply == supply
    balance = (await world.store.balances(recent=now)).get(KeyId(key))
    assert balance is not None
    assert balance.supply == supply
    terms = DoubtTerms(**dict.fromkeys(DoubtTerms.__slots__, now + timedelta(days=1)))
    doubts = await world.store.jobs_in_doubt(terms, limit=9)
    assert {doubt.supply for doubt in doubts} == {supply}
    details = await world.reading.job(second)
    assert details is not None
    assert details.wait is not None
    assert (details.wait.supply, details.wait.supply_graces) == (live + 1, ended)
    served_again = (await world.store.match(await world.idle_pods(pool, 2))).claims
    assert len(served_again) == 2 - supply
    assert first != second


async def _set(world: World, change: str, runner: object, ended: int) -> None:
    async with world.database.transaction() as connection:
        await connection.execute("SET LOCAL session_replication_role = replica")
        for check in await connection.fetch(
            "SELECT conname FROM pg_constraint WHERE conrelid = 'runners'::regclass AND contype = 'c'"
        ):
            await connection.execute(f'ALTER TABLE runners DROP CONSTRAINT "{check["conname"]}"')
        await connection.execute(
            f"UPDATE runners SET {change} WHERE id = $1 AND $2::timestamptz IS NOT NULL",
            runner,
            world.clock.now(),
        )
        if ended:
            await connection.execute(
                "INSERT INTO supply_graces SELECT id, key_id, $2::timestamptz + interval '1 min'"
                " FROM runners WHERE id = $1",
                runner,
                world.clock.now(),
            )


async def test_the_planner_looks_into_the_definition(world: World) -> None:
    """Inlined, the definition uses the partial indexes of live runners; history is not read."""
    async with world.database.transaction() as connection:
        plan = "\n".join(
            row[0]
            for row in await connection.fetch(
                "EXPLAIN (VERBOSE) SELECT * FROM supply($1) WHERE key_id = 1", world.clock.now()
            )
        )
        whole = "\n".join(
            row[0]
            for row in await connection.fetch(
                "EXPLAIN (VERBOSE) SELECT key_id, count(*) FILTER (WHERE is_supply(r, $1))"
                " FROM runners r WHERE key_id IS NOT NULL AND gone_at IS NULL GROUP BY key_id",
                world.clock.now(),
            )
        )
    for text in (plan, whole):
        assert "supply(" not in text, text
        assert re.search(r"Index (Only )?Scan using runners_\w+", text), text


def test_it_is_written_down_once() -> None:
    texts = {path.name: path.read_text("utf-8") for path in STORE.glob("*/*.sql")}
    states = re.compile(r"IN \('claimed', 'armed', 'running'\) AND (\w+\.)?suspect_at IS NULL")
    assert [name for name, text in texts.items() for _ in states.finditer(text)] == [
        "0001_schema.sql"
    ]
