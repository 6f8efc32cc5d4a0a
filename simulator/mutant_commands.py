"""`python -m simulator mutants`, `python -m simulator scenario`"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from paddock.cli.options import AsJson
from paddock.cli.output import complain, say, show, show_json, table
from simulator.engine.seed_runs import laboratory
from simulator.engine.simulation import SeedPlan
from simulator.mutant_runs import LARGE_SEEDS, MutantRun, run_mutants
from simulator.mutants import MUTANTS
from simulator.scenarios import SCENARIOS
from simulator.scripted_world import play


def mutants(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]…")] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", help="Processes; as many as cores if not given.")
    ] = None,
    large: Annotated[
        bool,
        typer.Option(
            "--large", help=f"Hunt in {len(LARGE_SEEDS)} large worlds, without the scenarios."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Remove one guard of the product at a time; the check named by the mutant must notice.

    A mutant that breaks another promise than the one it names counts as not killed.
    """
    unknown = [name for name in names or () if name not in MUTANTS]
    if unknown:
        raise typer.BadParameter(
            f"there is no mutant {', '.join(unknown)}; there are {', '.join(MUTANTS)}."
        )
    found: dict[str, MutantRun] = {}
    with laboratory() as lab:
        for hunt in run_mutants(lab, names or None, workers=workers, large=large):
            found[hunt.name] = hunt
            say(f"{len(found)} of {len(names or MUTANTS)}: {hunt.name} {_end(hunt)}")
    hunts = [found[name] for name in MUTANTS if name in found]
    if as_json:
        show_json([_json(hunt) for hunt in hunts])
    else:
        table(
            ("mutant", "source", "breaks", "killed", "where", "step"),
            [
                (
                    hunt.name,
                    hunt.source,
                    hunt.breaks.name,
                    "yes" if hunt.killed else "NO",
                    _where(hunt),
                    str(hunt.violation.step) if hunt.violation else "",
                )
                for hunt in hunts
            ],
            empty="no mutants",
        )
        show(f"{sum(hunt.killed for hunt in hunts)} of {len(hunts)} mutants killed")
    survivors = [hunt for hunt in hunts if not hunt.killed]
    for hunt in survivors:
        complain(f"{hunt.name}: {hunt.breaks.name} was not broken in {hunt.trials} trials.")
        for other in hunt.otherwise[:3]:
            complain(f"  {other}")
    if survivors:
        raise typer.Exit(1)


def _where(hunt: MutantRun) -> str:
    if hunt.trial is None:
        return f"{hunt.trials} trials"
    world = "large world" if hunt.trial.large else "seed"
    return f"{hunt.trial.scenario or world} {hunt.trial.seed}"


def _end(hunt: MutantRun) -> str:
    if hunt.violation is None:
        return f"survived {hunt.trials} trials"
    return f"killed in {_where(hunt)} at step {hunt.violation.step}: {hunt.breaks.name}"


def _json(hunt: MutantRun) -> dict[str, Any]:
    violation, trial = hunt.violation, hunt.trial
    return {
        "name": hunt.name,
        "source": hunt.source,
        "does": hunt.does,
        "breaks": hunt.breaks.name,
        "killed": hunt.killed,
        "scenario": trial and trial.scenario,
        "seed": trial and trial.seed,
        "step": violation and violation.step,
        "what": violation and violation.what,
        "trials": hunt.trials,
        "otherwise": hunt.otherwise,
    }


def scenario(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]")] = None,
    seed: Annotated[int, typer.Option("--seed")] = 0,
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="TEXT", help="Only lines with this: a Pod, a replica."),
    ] = None,
) -> None:
    """Tell the story of an incident, step by step; without a name, list them."""
    if name is None:
        table(
            ("scenario", "source", "tells"),
            [(each.name, each.source, each.tells) for each in SCENARIOS.values()],
            empty="no scenarios",
        )
        return
    if name not in SCENARIOS:
        raise typer.BadParameter(f"there is no scenario {name}; there are {', '.join(SCENARIOS)}.")
    with laboratory() as lab, lab.session() as (session, key):
        result = play(
            SCENARIOS[name],
            SeedPlan(seed=seed, faults=frozenset()),
            session=session,
            key=key,
            tell=lambda line: show(str(line)) if only is None or only in str(line) else None,
        )
    for violation in result.violations:
        complain(str(violation))
    if result.violations:
        raise typer.Exit(1)
