"""The matcher's transaction, on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from paddock.domain.accounts import MintBudget
from paddock.domain.allocation import Withheld
from paddock.domain.ids import JobId, PoolId
from paddock.domain.limits import Limits, Resources
from paddock.domain.runners.runner import WaitingPod, WaitingPods
from paddock.domain.states import RunnerState
from paddock.store.database import Database
from paddock.store.matching import BATCH
from tests.support.world import World


@pytest.fixture
async def world(database: Database) -> World:
    return await World(database).begin()


async def test_a_waiting_pod_is_claimed_for_a_queued_job(world: World) -> None:
    account, pool = await world.account(), await world.pool()
    key = await world.key(account, pool)
    pods = await world.idle_pods(pool, 1)
    [job] = await world.queue(account, key, 1)

    match = await world.store.match(pods)

    [claim] = match.claims
    assert (claim.runner, claim.key, claim.account, claim.hint) == (pods[0].id, key, account, job)
    assert claim.name == f"{pods[0].pod_name}-1"
    [row] = await world.rows("SELECT state, generation, key_id, account_id FROM runners")
    assert tuple(row) == ("claimed", 1, key, account)
    [mint] = await world.rows("SELECT name, state FROM mints")
    assert tuple(mint) == (claim.name, "chosen")


async def test_what_was_given_a_runner_is_not_demand_again(world: World) -> None:
    """I73: a burst of three jobs asks for three runners, in any number of matches."""
    account, pool = await world.account(), await world.pool()
    key = await world.key(account, pool)
    pods = await world.idle_pods(pool, 10)
    await world.queue(account, key, 3)

    first = await world.store.match(pods)
    claimed = {claim.runner for claim in first.claims}
    second = await world.store.match([pod for pod in pods if pod.id not in claimed])

    assert (len(first.claims), len(second.claims)) == (3, 0)


async def test_each_of_many_keys_has_its_oldest_job_without_a_runner(world: World) -> None:
    """With more keys than Pods one job of each is read, and that only once (I73)."""
    pool = await world.pool()
    queued: list[JobId] = []
    for _ in range(5):
        account = await world.account()
        queued += await world.queue(account, await world.key(account, pool), 2)
    pods = await world.idle_pods(pool, 9)

    rounds = [await world.store.match(pods[start : start + 3]) for start in (0, 3, 6)]

    given = [[claim.hint for claim in match.claims] for match in rounds]
    first, second = queued[::2], queued[1::2]
    assert given == [first[:3], [*first[3:], second[0]], second[1:4]]


async def test_a_job_that_is_read_with_its_key_is_not_read_again(world: World) -> None:
    pool = await world.pool()
    for _ in range(4):
        full = await world.account(limits=Limits(runners=0))
        await world.queue(full, await world.key(full, pool), 2)
    account = await world.account()
    await world.queue(account, await world.key(account, pool), 1)

    match = await world.store.match(await world.idle_pods(pool, 3))

    assert [claim.account for claim in match.claims] == [account]


async def test_every_pod_is_used_though_only_one_key_among_many_may_claim(world: World) -> None:
    """The first read takes a few jobs per key; what it misses is read in the same transaction."""
    pool = await world.pool()
    pods = await world.idle_pods(pool, 30)
    for _ in range(20):
        full = await world.account(limits=Limits(runners=0))
        await world.queue(full, await world.key(full, pool), 1)
    open_account = await world.account()
    await world.queue(open_account, await world.key(open_account, pool), 30)

    match = await world.store.match(pods)

    assert len(match.claims) == 30
    assert set(match.withheld.values()) == {Withheld.ACCOUNT_LIMIT}


async def test_a_limit_counts_everything_that_is_not_gone(world: World) -> None:
    """I46: a runner that is done or retiring still holds its place."""
    account, pool = await world.account(limits=Limits(runners=1)), await world.pool()
    key = await world.key(account, pool)
    pods = await world.idle_pods(pool, 2)
    await world.queue(account, key, 5)
    [claim] = (await world.store.match(pods)).claims
    others = [pod for pod in pods if pod.id != claim.runner]

    await world.store.fence_runner(
        claim.runner, generation=claim.generation, state=RunnerState.CLAIMED, why="test"
    )
    match = await world.store.match(others)

    assert match.claims == ()
    assert match.withheld == {key: Withheld.ACCOUNT_LIMIT}


async def test_a_pools_maximum_counts_the_runners_of_accounts_that_want_nothing(
    world: World,
) -> None:
    pool = await world.pool(max_runners=2)
    pods = await world.idle_pods(pool, 3)
    satisfied, wanting = await world.account(), await world.account()
    await world.queue(satisfied, await world.key(satisfied, pool), 1)
    assert len((await world.store.match(pods[:1])).claims) == 1
    await world.rows("DELETE FROM jobs")
    key = await world.key(wanting, pool)
    await world.queue(wanting, key, 2)

    match = await world.store.match(pods[1:])

    assert len(match.claims) == 1
    assert (await world.store.match(pods[2:])).withheld == {key: Withheld.POOL_MAXIMUM}


async def test_a_pod_made_before_its_pool_was_described_anew_costs_what_it_cost_then(
    world: World,
) -> None:
    """I48: the pool is cheaper now, and its old Pods are as large as before."""
    account = await world.account(limits=Limits(vcpu_milli=6_000))
    pool = await world.pool(cost=Resources(vcpu_milli=4_000))
    key = await world.key(account, pool)
    pods = await world.idle_pods(pool, 2)
    await world.queue(account, key, 2)
    await world.pool(cost=Resources(vcpu_milli=1_000))

    match = await world.store.match(pods)

    assert len(match.claims) == 1


async def test_a_limit_lowered_below_use_stops_claims_and_ends_nothing(world: World) -> None:
    account, pool = await world.account(), await world.pool()
    key = await world.key(account, pool)
    pods = await world.idle_pods(pool, 4)
    await world.queue(account, key, 4)
    await world.store.match(pods[:3])

    await world.store.set_account_limits(account, Limits(runners=1))
    match = await world.store.match(pods[3:])

    assert match.claims == ()
    states = await world.rows("SELECT state, count(*) FROM runners GROUP BY 1 ORDER BY 1")
    assert [tuple(row) for row in states] == [("idle", 1), ("claimed", 3)]


async def test_mints_of_the_minute_count_with_any_outcome(database: Database) -> None:
    """I25: GitHub got the request for a name also if it was settled within its minute."""
    world = await World(database).begin(mints=MintBudget(per_minute=5, per_hour=None))
    account, pool = await world.account(), await world.pool()
    key = await world.key(account, pool)
    await world.queue(account, key, 20)
    assert len((await world.store.match(await world.idle_pods(pool, 3))).claims) == 3
    await world.rows(
        "UPDATE mints SET state = 'settled', outcome = 'test', settled_at = chosen_at"
        " WHERE generation = 1"
    )
    assert len((await world.store.match(await world.idle_pods(pool, 4))).claims) == 2


async def test_claims_never_outrun_the_minute(database: Database) -> None:
    world = await World(database).begin(mints=MintBudget(per_minute=5, per_hour=None))
    account, pool = await world.account(), await world.pool()
    key = await world.key(account, pool)
    pods = await world.idle_pods(pool, 20)
    await world.queue(account, key, 20)

    first = await world.store.match(pods)
    left = [pod for pod in pods if pod.id not in {claim.runner for claim in first.claims}]
    world.clock.advance(59)
    second = await world.store.match(left)
    world.clock.advance(1)
    third = await world.store.match(left)

    assert [len(match.claims) for match in (first, second, third)] == [5, 0, 5]
    assert second.withheld == {key: Withheld.MINT_BUDGET}


async def test_claims_never_outrun_the_hour(database: Database) -> None:
    """For any demand, the claims of any hour stay within the hour's quota."""
    world = await World(database).begin(mints=MintBudget(per_minute=None, per_hour=20))
    account, pool = await world.account(), await world.pool()
    key = await world.key(account, pool)
    pods = await world.idle_pods(pool, 40)
    await world.queue(account, key, 40)
    claimed: set[object] = set()
    for _ in range(60):
        match = await world.store.match([pod for pod in pods if pod.id not in claimed])
        claimed |= {claim.runner for claim in match.claims}
        world.clock.advance(60)
    assert 18 <= len(claimed) <= 20


@pytest.mark.parametrize("what", ["account", "pool", "installation", "back-off"])
async def test_a_key_that_may_not_be_served_is_passed_over_with_its_reason(
    world: World, what: str
) -> None:
    """I26"""
    account, pool = await world.account(), await world.pool()
    key = await world.key(account, pool)
    pods = await world.idle_pods(pool, 1)
    await world.queue(account, key, 1)
    match what:
        case "account":
            await world.store.pause_account(account, why="test")
        case "pool":
            await world.store.pause_pool(pool, why="test")
        case "installation":
            await world.rows("UPDATE installations SET state = 'suspended' RETURNING 1")
        case _:
            await world.rows(
                "INSERT INTO backoffs (scope, subject, until, failures, cause, reason, since)"
                " VALUES ('key', $1, $2::timestamptz + interval '1 minute', 1, 'mint failed', 'test',"
                " $2) RETURNING 1",
                key,
                world.clock.now(),
            )

    match_ = await world.store.match(pods)

    assert match_.claims == ()
    expected = {"account": Withheld.PAUSED, "pool": Withheld.PAUSED}.get(what) or Withheld(what)
    assert match_.withheld == {key: expected}


@pytest.mark.parametrize("what", ["no demand", "paused", "draining", "full"])
async def test_600_pods_that_wait_in_front_are_in_no_other_pools_way(
    world: World, what: str
) -> None:
    """I77: they take no place in the batch, for any reason that keeps their own pool from using
    them."""
    account = await world.account()
    crowd = await world.pool("linux", max_runners=0 if what == "full" else None)
    pool = await world.pool("macos")
    pods = [
        *await world.idle_pods(crowd, 2 * BATCH + 88),
        *await world.idle_pods(pool, 1, name="macos"),
    ]
    crowded, key = await world.key(account, crowd), await world.key(account, pool)
    await world.queue(account, key, 1)
    if what != "no demand":
        await world.queue(account, crowded, 3)
    if what == "paused":
        await world.store.pause_pool(crowd, why="test")
    if what == "draining":
        await world.rows("UPDATE pools SET state = 'draining' WHERE id = $1 RETURNING 1", crowd)

    match = await world.store.match(pods)

    assert [claim.runner for claim in match.claims] == [pods[-1].id]
    reason = {"paused": Withheld.PAUSED, "draining": Withheld.PAUSED, "full": Withheld.POOL_MAXIMUM}
    assert match.withheld == ({} if what == "no demand" else {crowded: reason[what]})
    assert not match.more


async def test_a_match_reads_no_pods_but_those_it_can_use(world: World) -> None:
    """I77: of 600 that wait, one job looks at two."""
    account, pool, other = await world.account(), await world.pool(), await world.pool("macos")
    key = await world.key(account, pool)
    waiting = Looked(await world.idle_pods(pool, 300) + await world.idle_pods(other, 300))
    await world.queue(account, key, 1)

    assert len((await world.store.match(waiting)).claims) == 1
    assert waiting.looked_at == [2]


class Looked(WaitingPods):
    def __init__(self, pods: Sequence[WaitingPod]) -> None:
        super().__init__(pods)
        self.looked_at: list[int] = []

    def first(self, pool: PoolId, most: int) -> list[WaitingPod]:
        found = super().first(pool, most)
        self.looked_at.append(len(found))
        return found

    def __iter__(self) -> Iterator[WaitingPod]:
        raise AssertionError("a match looks at each of them")


async def test_a_full_batch_says_that_there_is_more(world: World) -> None:
    """I77: 300 jobs and 300 Pods are two matches, and the second need not wait for a wake-up."""
    accounts, pool = [await world.account() for _ in range(2)], await world.pool()
    for account in accounts:
        await world.queue(account, await world.key(account, pool), 150)
    waiting = WaitingPods(await world.idle_pods(pool, 300))

    first = await world.store.match(waiting)
    claimed = {claim.runner for claim in first.claims}
    second = await world.store.match([pod for pod in waiting if pod.id not in claimed])

    assert (len(first.claims), first.more, first.short_of_pods) == (BATCH, True, False)
    assert (len(second.claims), second.more, second.withheld) == (300 - BATCH, False, {})


async def test_a_pod_that_is_no_longer_idle_is_left_out_and_nothing_is_spent(world: World) -> None:
    account, pool = await world.account(), await world.pool()
    key = await world.key(account, pool)
    pods = await world.idle_pods(pool, 2)
    await world.queue(account, key, 2)
    before = await world.rows("SELECT count(*) FROM mints")
    await world.store.fence_runner(
        pods[0].id, generation=0, state=RunnerState.IDLE, why="drained meanwhile"
    )

    match = await world.store.match(pods)

    assert [claim.runner for claim in match.claims] == [pods[1].id]
    assert match.left_out == (pods[0].id,)
    assert match.more, "its job is still unserved"
    after = await world.rows("SELECT count(*) FROM mints")
    assert after[0][0] - before[0][0] == 1


async def test_a_runner_that_is_busy_by_its_own_word_has_one_of_the_queued_jobs(
    world: World,
) -> None:
    """I73: the webhook that names the job is late; the matcher does not wait long for it."""
    account, pool = await world.account(), await world.pool()
    key = await world.key(account, pool)
    pods = await world.idle_pods(pool, 2)
    await world.queue(account, key, 1)
    [claim] = (await world.store.match(pods[:1])).claims
    await world.arm(claim.runner, claim.generation)
    await world.store.occupy_runner(
        claim.runner, generation=claim.generation, job=None, why="its log says so"
    )
    assert (await world.store.match(pods[1:])).claims == ()
    world.clock.advance(121)
    assert len((await world.store.match(pods[1:])).claims) == 1
