"""Hunting mutants: each is applied, and the world runs until a promise breaks.

A mutant counts as killed only by the promise that it names (`Mutant.breaks`), and only where the
product keeps its promises in the very same run without the mutant. A run ends at the first broken
promise. If that is another one, the run does not count, and the next scenario or seed is tried.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from functools import cache
from typing import Final

from simulator.engine import seed_runs
from simulator.engine.checks import Promise, Violation
from simulator.engine.scale import LARGE
from simulator.engine.seed_runs import SeedRuns
from simulator.engine.simulation import Result, SeedPlan, simulate
from simulator.mutants import MUTANTS
from simulator.scenarios import SCENARIOS
from simulator.scripted_world import play

#: After the scenarios, these seeds with all faults, in this order; every fifth is a large world.
SEEDS: Final = range(30)
#: The seeds of a hunt in large worlds alone.
LARGE_SEEDS: Final = range(3)


@dataclass(frozen=True, slots=True)
class MutantTrial:
    """A scenario, or the story that the seed itself draws."""

    seed: int
    scenario: str | None = None
    large: bool = False

    def run(self) -> Result:
        worker = seed_runs._worker  # noqa: SLF001 - a worker process is one worker
        assert worker is not None
        if self.scenario is None:
            return simulate(self._plan(), session=worker.session, key=worker.key)
        return play(
            SCENARIOS[self.scenario],
            SeedPlan(seed=self.seed, faults=frozenset()),
            session=worker.session,
            key=worker.key,
        )

    def _plan(self) -> SeedPlan:
        if self.large:
            return SeedPlan(seed=self.seed, jobs=LARGE.jobs, large=True)
        return SeedPlan.of(self.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class MutantRun:
    """The result for one mutant."""

    name: str
    source: str
    does: str
    breaks: Promise
    trials: int
    trial: MutantTrial | None = None
    violation: Violation | None = None
    #: Trials with another end: another promise broke, or the run itself failed.
    otherwise: tuple[str, ...] = ()

    @property
    def killed(self) -> bool:
        return self.violation is not None


@cache
def _kept(trial: MutantTrial) -> bool:
    """Whether the product without the mutant keeps its promises there."""
    return not trial.run().violations


def _hunt(name: str, large: bool) -> MutantRun:
    worker = seed_runs._worker  # noqa: SLF001
    assert worker is not None
    mutant = MUTANTS[name]
    otherwise: list[str] = []
    trials = 0
    trial = found = None
    for trial in _large_trials() if large else _trials(mutant.exposed_by):
        if not _kept(trial):
            otherwise.append(f"{trial}: the product breaks a promise there by itself")
            continue
        trials += 1
        try:
            with mutant.applied(worker.session):
                result = trial.run()
        except Exception as error:
            otherwise.append(f"{trial}: {type(error).__name__}: {error}")
            continue
        found = mutant.killed_by(result.violations)
        if found is not None:
            break
        otherwise += [f"{trial}: {each}" for each in result.violations[:1]]
    return MutantRun(
        name=name,
        source=mutant.source,
        does=mutant.does,
        breaks=mutant.breaks,
        trials=trials,
        trial=trial if found else None,
        violation=found,
        otherwise=tuple(otherwise),
    )


def _trials(exposed_by: Sequence[str]) -> Iterator[MutantTrial]:
    for seed in range(3):
        yield from (MutantTrial(seed, name) for name in exposed_by)
    yield from (MutantTrial(0, name) for name in SCENARIOS if name not in exposed_by)
    yield from (MutantTrial(seed) for seed in SEEDS)


def _large_trials() -> Iterator[MutantTrial]:
    yield from (MutantTrial(seed, large=True) for seed in LARGE_SEEDS)


def run_mutants(
    lab: SeedRuns,
    names: Sequence[str] | None = None,
    *,
    workers: int | None = None,
    large: bool = False,
) -> Iterator[MutantRun]:
    """Each mutant's result, in the order in which they finish; `large`: in large worlds alone."""
    names = list(MUTANTS) if names is None else list(names)
    with lab.workers(min(workers or os.cpu_count() or 1, len(names))) as pool:
        for done in as_completed([pool.submit(_hunt, name, large) for name in names]):
            yield done.result()
