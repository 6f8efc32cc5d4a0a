"""A runner's life in the store: compare-and-set, events, and what cannot be written."""

from __future__ import annotations

from itertools import pairwise

import asyncpg
import pytest

from paddock.domain.github.debts import MintOutcome
from paddock.domain.ids import GitHubRunnerId, JobId, RunnerId
from paddock.domain.jobs.facts import Executor
from paddock.domain.runners.endings import Ending
from paddock.domain.runners.runner import Claim, Conflict, Runner
from paddock.domain.states import RUNNER_TRANSITIONS, JobState, RunnerState
from paddock.store.database import Database
from tests.support.runner_rows import conclude_runner, read_runner
from tests.support.world import World, executor

S = RunnerState


@pytest.fixture
async def world(database: Database) -> World:
    return await World(database).begin()


async def claimed(world: World) -> Claim:
    account, pool = await world.account(), await world.pool()
    key = await world.key(account, pool)
    await world.queue(account, key, 1)
    [claim] = (await world.store.match(await world.idle_pods(pool, 1))).claims
    return claim


async def armed(world: World) -> Runner:
    claim = await claimed(world)
    runner = await world.arm(claim.runner, claim.generation)
    assert isinstance(runner, Runner)
    return runner


async def running(world: World) -> Runner:
    return await world.acknowledge(await armed(world))


async def completed(world: World, runner: Runner) -> Runner:
    """GitHub reports that its job has ended."""
    assert runner.account is not None
    facts = world.facts(1, JobState.COMPLETED, executor=executor(runner))
    await world.report(runner.account, await world.key(runner.account, runner.pool), facts)
    done = await read_runner(world.store, runner.id)
    assert done is not None
    assert done.state is S.DONE
    return done


async def conclude(world: World, runner: Runner) -> Runner | Conflict:
    return await conclude_runner(
        world.store,
        runner.id,
        generation=runner.generation,
        state=runner.state,
        ending=Ending.COMPLETED,
        why="it exited with 0",
        ended_at=world.clock.now(),
    )


async def test_a_whole_life_leaves_its_trail_of_events(world: World) -> None:
    """I14: each step and its event are one."""
    runner = await running(world)
    busy = await world.store.acting_as("operator:ana").occupy_runner(
        runner.id, generation=runner.generation, job=JobId(1), why="in_progress"
    )
    assert isinstance(busy, Runner)
    done = await completed(world, busy)
    gone = await conclude(world, done)
    assert isinstance(gone, Runner)

    events = await world.rows(
        "SELECT before, after, actor FROM events WHERE runner_id = $1 ORDER BY id", runner.id
    )
    assert [event["after"] for event in events] == [
        "booting",
        "idle",
        "claimed",
        "armed",
        "running",
        "busy",
        "done",
        "gone",
    ]
    assert all(a["after"] == b["before"] for a, b in pairwise(events))
    assert [event["actor"] for event in events][-3:] == ["operator:ana", "test", "test"]


async def test_the_database_knows_the_same_steps_as_the_domain(world: World) -> None:
    rows = await world.rows("SELECT before, after FROM runner_transitions")
    assert {(S(row["before"]), S(row["after"])) for row in rows} == set(RUNNER_TRANSITIONS)


async def test_a_step_that_is_not_in_the_diagram_cannot_be_committed(world: World) -> None:
    runner = await running(world)
    for state in set(S) - {after for before, after in RUNNER_TRANSITIONS if before is S.RUNNING}:
        with pytest.raises(asyncpg.CheckViolationError):
            await world.rows(
                "UPDATE runners SET state = $2::runner_state, version = version + 1, generation ="
                " CASE WHEN state = $2::runner_state THEN generation + 1 ELSE generation END,"
                " mint_deadline = CASE WHEN $2 = 'claimed' THEN since END,"
                " jit = CASE WHEN $2 = 'armed' THEN ''::bytea END,"
                " jit_key = CASE WHEN $2 = 'armed' THEN '' END,"
                " gone_at = CASE WHEN $2 = 'gone' THEN since END WHERE id = $1 RETURNING 1",
                runner.id,
                state,
            )


async def test_a_step_without_an_event_cannot_be_committed(world: World) -> None:
    runner = await running(world)
    with pytest.raises(asyncpg.CheckViolationError):
        await world.rows(
            "UPDATE runners SET state = 'busy', busy_at = since WHERE id = $1 RETURNING 1",
            runner.id,
        )


async def test_a_late_mint_does_not_touch_the_successors_claim(world: World) -> None:
    """I16"""
    claim = await claimed(world)
    world.clock.advance(60)
    taken = await world.store.take_over_claim(
        claim.runner,
        generation=claim.generation,
        name=f"{claim.name}-again",
        mint_deadline=world.clock.now(),
    )
    assert isinstance(taken, Claim)

    late = await world.arm(claim.runner, claim.generation)
    released = await world.store.release_runner(
        claim.runner, generation=claim.generation, why="late failure", no_record_because=None
    )

    assert late == released == Conflict(S.CLAIMED, claim.generation + 1)
    mints = await world.rows("SELECT generation, state FROM mints ORDER BY generation")
    assert [tuple(mint) for mint in mints] == [(1, "chosen"), (2, "chosen")]


async def test_a_claim_is_not_taken_over_before_its_deadline(world: World) -> None:
    claim = await claimed(world)
    taken = await world.store.take_over_claim(
        claim.runner, generation=claim.generation, name="x", mint_deadline=world.clock.now()
    )
    assert taken == Conflict(S.CLAIMED, claim.generation)


async def test_a_fenced_runner_can_no_longer_be_armed(world: World) -> None:
    claim = await claimed(world)
    await world.store.fence_runner(
        claim.runner, generation=claim.generation, state=S.CLAIMED, why="drained"
    )
    assert isinstance(await world.arm(claim.runner, claim.generation), Conflict)


async def test_a_released_claim_whose_outcome_is_unknown_stays_a_debt(world: World) -> None:
    """I41"""
    claim = await claimed(world)
    await world.store.release_runner(
        claim.runner, generation=claim.generation, why="timed out", no_record_because=None
    )
    [mint] = await world.rows("SELECT state FROM mints")
    assert mint["state"] == "chosen"


async def test_a_released_claim_without_a_record_at_github_is_settled(world: World) -> None:
    claim = await claimed(world)
    released = await world.store.release_runner(
        claim.runner, generation=claim.generation, why="403", no_record_because="GitHub refused it"
    )
    assert isinstance(released, Runner)
    assert (released.state, released.key, released.name) == (S.IDLE, None, None)
    [mint] = await world.rows("SELECT state, outcome FROM mints")
    assert tuple(mint) == ("settled", "GitHub refused it")


async def test_a_completed_job_settles_the_name_of_its_runner(world: World) -> None:
    """GitHub removes the record of a runner whose job has completed."""
    await completed(world, await running(world))
    [mint] = await world.rows("SELECT state, outcome FROM mints")
    assert tuple(mint) == ("settled", MintOutcome.JOB_COMPLETED)


async def test_the_jit_is_erased_with_its_acknowledgement(world: World) -> None:
    """I20: it exists until it is acknowledged, and not a moment longer."""
    await running(world)
    [row] = await world.rows("SELECT jit, jit_key FROM runners")
    assert tuple(row) == (None, None)


async def test_only_the_delivery_that_was_made_can_be_acknowledged(world: World) -> None:
    runner = await armed(world)
    assert runner.pod_uid is not None
    found = await world.store.acknowledge_delivery(
        runner.pod_name, pod_uid=runner.pod_uid, delivery=world.ids.uuid()
    )
    assert found is None
    assert await read_runner(world.store, runner.id) == runner


async def test_gone_is_final_and_has_a_verdict(world: World) -> None:
    gone = await conclude(world, await running(world))
    assert isinstance(gone, Runner)
    assert await conclude(world, gone) == Conflict(S.GONE, gone.generation)
    for state in set(S) - {S.GONE}:
        with pytest.raises(asyncpg.CheckViolationError):
            await world.rows(f"UPDATE runners SET state = '{state}', gone_at = NULL RETURNING 1")


async def test_no_runner_is_gone_without_a_verdict(world: World) -> None:
    """I30, I58"""
    runner = await running(world)
    with pytest.raises(asyncpg.CheckViolationError, match="without a verdict"):
        await world.rows(
            "UPDATE runners SET state = 'gone', version = version + 1, gone_at = since"
            " WHERE id = $1 RETURNING 1",
            runner.id,
        )


async def test_a_runner_that_is_not_there_is_a_conflict_too(world: World) -> None:
    assert await world.arm(RunnerId(world.ids.uuid()), 1) == Conflict(None, None)


async def test_one_pod_is_one_runner(world: World) -> None:
    """I15"""
    pool = await world.pool()
    [first] = await world.idle_pods(pool, 1)
    [planned] = await world.store.plan_runners(
        pool, [(RunnerId(world.ids.uuid()), "linux-other")], why="test"
    )
    with pytest.raises(asyncpg.UniqueViolationError):
        await world.store.hear_pod(planned.pod_name, pod_uid=f"uid-{first.pod_name}")


async def test_a_runner_name_is_never_used_twice(world: World) -> None:
    """I19"""
    claim = await claimed(world)
    world.clock.advance(60)
    with pytest.raises(asyncpg.UniqueViolationError):
        await world.store.take_over_claim(
            claim.runner,
            generation=claim.generation,
            name=claim.name,
            mint_deadline=world.clock.now(),
        )


async def test_a_living_runner_cannot_be_forgotten(world: World) -> None:
    runner = await running(world)
    with pytest.raises(asyncpg.CheckViolationError):
        await world.rows("DELETE FROM runners WHERE id = $1 RETURNING 1", runner.id)


@pytest.mark.parametrize("column", ["key_id", "name", "claimed_at", "github_id", "pod_uid"])
async def test_what_a_state_requires_cannot_be_taken_from_it(world: World, column: str) -> None:
    runner = await running(world)
    with pytest.raises(asyncpg.CheckViolationError):
        await world.rows(f"UPDATE runners SET {column} = NULL WHERE id = $1 RETURNING 1", runner.id)


# Events that name a runner.


async def report(world: World, runner: Runner, state: JobState, by: Executor) -> list[object]:
    assert runner.account is not None
    assert runner.key is not None
    return await world.report(runner.account, runner.key, world.facts(77, state, executor=by))


async def test_the_runner_github_names_is_busy_and_then_done(world: World) -> None:
    """I23: for any job it was claimed for."""
    runner = await running(world)
    await report(world, runner, JobState.IN_PROGRESS, executor(runner))
    busy = await read_runner(world.store, runner.id)
    assert busy is not None
    assert (busy.state, busy.job) == (S.BUSY, 77)
    await report(world, runner, JobState.COMPLETED, executor(runner))
    done = await read_runner(world.store, runner.id)
    assert done is not None
    assert done.state is S.DONE
    [job] = await world.rows("SELECT state, runner_id FROM jobs WHERE id = 77")
    assert tuple(job) == ("completed", runner.id)


@pytest.mark.parametrize("state", [JobState.IN_PROGRESS, JobState.COMPLETED])
async def test_an_event_that_beats_the_acknowledgement_counts_as_one(
    world: World, state: JobState
) -> None:
    runner = await armed(world)
    assert await report(world, runner, state, executor(runner)) == []
    [row] = await world.rows("SELECT state, jit, acknowledged_at IS NULL FROM runners")
    assert tuple(row) == ("busy" if state is JobState.IN_PROGRESS else "done", None, False)


async def test_a_retiring_runner_that_executes_a_job_is_busy_again(world: World) -> None:
    runner = await running(world)
    await world.store.fence_runner(
        runner.id, generation=runner.generation, state=S.RUNNING, why="surplus"
    )
    await report(world, runner, JobState.IN_PROGRESS, executor(runner))
    busy = await read_runner(world.store, runner.id)
    assert busy is not None
    assert busy.state is S.BUSY


async def test_a_strangers_runner_of_the_same_name_moves_nothing(world: World) -> None:
    """I5: customers choose names."""
    runner = await running(world)
    assert runner.name is not None
    stranger = await world.account()
    assert runner.key is not None
    pool = runner.pool
    await world.report(
        stranger,
        await world.key(stranger, pool),
        world.facts(77, JobState.IN_PROGRESS, executor=executor(runner)),
    )
    impostor = Executor(github_id=GitHubRunnerId(987654), name=runner.name)
    await report(world, runner, JobState.IN_PROGRESS, impostor)

    still = await read_runner(world.store, runner.id)
    assert still is not None
    assert still.state is S.RUNNING


async def test_an_event_for_a_runner_that_cannot_follow_is_reported(world: World) -> None:
    claim = await claimed(world)
    runner = await read_runner(world.store, claim.runner)
    assert runner is not None
    [unplaced] = await report(
        world,
        runner,
        JobState.IN_PROGRESS,
        Executor(github_id=GitHubRunnerId(5), name=claim.name),
    )
    assert (unplaced.state, unplaced.job) == (S.CLAIMED, 77)  # type: ignore[attr-defined]
