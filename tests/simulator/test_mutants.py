"""Old bugs, put back: what the scenarios and the checkers are worth."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from paddock.domain.recovery import diagnosis
from paddock.store.sql import named
from simulator.engine.checks import Promise, Violation
from simulator.engine.database import Session
from simulator.engine.seed_runs import laboratory
from simulator.engine.simulation import Key, SeedPlan
from simulator.mutants import MUTANTS, Mutant
from simulator.scenarios import SCENARIOS
from simulator.scripted_world import play

pytestmark = pytest.mark.slow

#: Those that break their promise within a second or two of the run; `make mutants` has them all.
QUICK = [
    "sweep-without-started-guard",
    "claim-released-mid-job",
    "serve-again-without-asking",
    "dispatched-counted-again",
    "stamp-before-jit",
    "delete-without-uid",
    "delete-before-deregister",
    "422-ignored",
    "204-trusted-alone",
    "proof-once",
    "capacity-freed-with-the-job",
    "waiting-is-demand",
    "pool-deletion-kills",
    "claimed-in-match-is-idle",
    "used-jit-for-new-pod",
    "old-pods-at-new-cost",
    "unfit-hosts-taken",
    "stale-claim-always-released",
]


@pytest.fixture(scope="module")
def world() -> Iterator[tuple[Session, Key]]:
    with laboratory() as lab, lab.session() as (session, key):
        yield session, key


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_incidents_end_well(world: tuple[Session, Key], name: str) -> None:
    """S1, S2, I70"""
    session, key = world
    plan = SeedPlan(seed=0, faults=frozenset())
    assert play(SCENARIOS[name], plan, session=session, key=key).violations == []


@pytest.mark.parametrize("name", QUICK)
def test_a_mutant_breaks_the_promise_it_names(world: tuple[Session, Key], name: str) -> None:
    session, key = world
    mutant = MUTANTS[name]
    with mutant.applied(session):
        result = play(
            SCENARIOS[mutant.exposed_by[0]],
            SeedPlan(seed=0, faults=frozenset()),
            session=session,
            key=key,
        )
    assert mutant.killed_by(result.violations) is not None, result.violations


def test_another_broken_promise_does_not_kill_a_mutant() -> None:
    mutant = MUTANTS["unfit-hosts-taken"]
    other, named = (Violation(promise, "", 0, 0.0) for promise in (Promise.LIMIT, Promise.FIT))
    assert mutant.killed_by([other]) is None
    assert mutant.killed_by([other, named]) is named


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=lambda mutant: mutant.name)
def test_nothing_of_a_mutant_is_left(world: tuple[Session, Key], mutant: Mutant) -> None:
    session, _ = world
    before = _all_there_is(session)
    with mutant.applied(session):
        pass
    assert _all_there_is(session) == before


def _all_there_is(session: Session) -> list[object]:
    schema = session.run(
        session.fetch(
            """
            SELECT 'index' AS kind, indexdef::text AS what FROM pg_indexes WHERE schemaname = 'public'
             UNION ALL
            SELECT 'routine', pg_get_functiondef(p.oid) FROM pg_proc p
             WHERE pronamespace = 'public'::regnamespace AND prokind IN ('f', 'p')
             UNION ALL
            SELECT 'step', before::text || ' ' || after::text FROM runner_transitions
             UNION ALL
            SELECT 'trigger', tgname::text || tgenabled::text FROM pg_trigger WHERE NOT tgisinternal
             ORDER BY 1, 2
            """
        )
    )
    statements = [
        dict(named(noun)) for noun in ("dispatch", "jobs", "matching", "recovery", "runners")
    ]
    return [[tuple(row) for row in schema], statements, dict(diagnosis._OF)]
