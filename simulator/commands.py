"""`python -m simulator`"""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from paddock.cli.options import AsJson
from paddock.cli.output import complain, say, show, show_json, table
from paddock.domain.recovery.table import RULES
from paddock.domain.states import RUNNER_TRANSITIONS
from simulator.engine.faults import ALL, Fault, parse_faults
from simulator.engine.recovery_times import summary
from simulator.engine.scale import LARGE, SMALL
from simulator.engine.seed_runs import differing, laboratory
from simulator.engine.simulation import Result, SeedPlan, simulate
from simulator.engine.trace import TraceLine
from simulator.mutant_commands import mutants, scenario

app = typer.Typer(
    help="""Prove the promises: paddock's own services in a simulated world, where anything can go
    wrong at any moment.

    Every seed is another story of jobs, crashes, lost messages and dying nodes, and the same story
    each time. What is promised is checked after every step against what really happened.
    """,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)

app.command()(mutants)
app.command()(scenario)

Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        min=1,
        help=f"Jobs in each seed; {SMALL.jobs} in a small world and {LARGE.jobs} in a large one"
        " if not given.",
    ),
]
FaultNames = Annotated[
    str,
    typer.Option(
        "--faults",
        metavar="all|none|NAME,…",
        help="What may go wrong. With a minus before each name: all but these.",
    ),
]


class World(StrEnum):
    SEED = "seed"
    SMALL = "small"
    LARGE = "large"


Worlds = Annotated[
    World,
    typer.Option(
        "--worlds",
        help=f"Every fifth seed is a large world: {LARGE}; or all worlds are of one kind.",
    ),
]


@app.command("run")
def run_(
    seeds: Annotated[str, typer.Option("--seeds", metavar="A..B")] = "0..19",
    jobs: Jobs = None,
    faults: FaultNames = "all",
    worlds: Worlds = World.SEED,
    once: Annotated[
        bool, typer.Option("--once", help="Run each seed once; do not compare two runs of it.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option("--workers", help="Processes; as many as cores if not given.")
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option("--record", help="Write how long each rule took to this file, for docs/."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run seeds, and tell which promises were broken.

    Example: the faults of one kind alone, on many seeds

    \b
        python -m simulator run --seeds 0..199 --faults replica-crash,store-outcome-unknown
    """
    allowed = _faults(faults)
    plans = [_plan(seed, jobs, allowed, worlds) for seed in _seeds(seeds)]
    began, steps = time.monotonic(), 0
    violations: list[dict[str, Any]] = []
    exercised: Counter[str] = Counter()
    times: dict[str, list[float]] = {}
    cost = {scale.name: _Cost() for scale in (SMALL, LARGE)}
    with laboratory() as lab:
        for number, (plan, results) in enumerate(
            lab.run(plans, times=1 if once else 2, workers=workers), 1
        ):
            steps += sum(result.steps for result in results)
            exercised.update(results[0].exercised)
            for rule, taken in results[0].times.items():
                times.setdefault(rule, []).extend(taken)
            found = [*results[0].violations, *filter(None, [differing(results)])]
            violations += [
                {
                    "seed": plan.seed,
                    "promise": each.promise,
                    "what": each.what,
                    "step": each.step,
                    "at": round(each.at, 3),
                }
                for each in found
            ]
            for each in found[:3]:
                say(f"seed {plan.seed}: {each}")
            spent = time.monotonic() - began
            for result in results:
                cost[plan.scale.name].add(result)
            say(
                f"{number} of {len(plans)} seeds, {steps} steps, {steps / spent:.0f} steps/s,"
                f" {len(violations)} violations; seed {plan.seed}: {plan.scale.name},"
                f" {results[0].steps} steps in {results[0].seconds:.0f} s"
            )
    seconds = time.monotonic() - began
    never = _never(exercised, allowed)
    if record is not None:
        command = f"python -m simulator run --seeds {seeds}{_chosen(jobs, faults, worlds)}"
        recorded = {"command": command, "recovery_seconds": summary(times)}
        record.write_text(json.dumps(recorded, indent=2) + "\n")
    if as_json:
        show_json(
            {
                "seeds": len(plans),
                "jobs": sum(plan.jobs for plan in plans),
                "worlds": {name: each.told() for name, each in cost.items() if each.runs},
                "steps": steps,
                "violations": violations,
                "exercised": dict(sorted(exercised.items())),
                "never_exercised": never,
                "recovery_seconds": summary(times),
                "seconds": round(seconds, 1),
                "steps_per_second": round(steps / seconds),
            }
        )
    else:
        table(("exercised", "times"), sorted(exercised.items()), empty="nothing happened")
        table(
            ("recovered by", "times", "median s", "19 of 20 within s", "longest s"),
            [(rule, *map(str, told.values())) for rule, told in summary(times).items()],
            empty="nothing had to be recovered",
        )
        for name in never:
            show(f"never exercised: {name}")
        table(
            ("world", "runs", "steps", "seconds per run", "steps/s"),
            [(name, *map(str, each.told().values())) for name, each in cost.items() if each.runs],
            empty="no worlds",
        )
        show(
            f"{len(plans)} seeds, {steps} steps in {seconds:.0f} s"
            f" ({steps / seconds:.0f} steps/s), {len(violations)} violations"
        )
    if violations:
        broken = sorted({each["seed"] for each in violations})
        complain(
            f"promises were broken in {len(broken)} seeds ({_some(broken)}); "
            f"`python -m simulator replay {broken[0]}{_chosen(jobs, faults, worlds)}` tells the story."
        )
        raise typer.Exit(1)


@app.command()
def replay(
    seed: Annotated[int, typer.Argument(metavar="SEED")],
    jobs: Jobs = None,
    faults: FaultNames = "all",
    worlds: Worlds = World.SEED,
    only: Annotated[
        str | None,
        typer.Option(
            "--only", metavar="TEXT", help="Only lines with this: a Pod, a job, a replica."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tell the story of one seed, step by step."""

    def tell(line: TraceLine) -> None:
        if only is None or only in str(line):
            show(str(line))

    plan = _plan(seed, jobs, _faults(faults), worlds)
    with laboratory() as lab, lab.session() as (session, key):
        result = simulate(
            plan, session=session, key=key, keep=as_json, tell=None if as_json else tell
        )
    if as_json:
        show_json(
            [
                {"step": line.step, "at": line.at, "who": line.who, "what": line.what}
                for line in result.lines
                if only is None or only in str(line)
            ]
        )
    for violation in result.violations:
        complain(str(violation))
    if result.violations:
        raise typer.Exit(1)


@dataclass(slots=True)
class _Cost:
    """The cost of the runs of one kind of world."""

    runs: int = 0
    steps: int = 0
    seconds: float = 0.0

    def add(self, result: Result) -> None:
        self.runs += 1
        self.steps += result.steps
        self.seconds += result.seconds

    def told(self) -> dict[str, int | float]:
        return {
            "runs": self.runs,
            "steps": self.steps,
            "seconds_per_run": round(self.seconds / self.runs, 1),
            "steps_per_second": round(self.steps / self.seconds),
        }


def _plan(seed: int, jobs: int | None, faults: frozenset[Fault], worlds: World) -> SeedPlan:
    drawn = SeedPlan.of(seed, faults=faults, jobs=jobs)
    if worlds is World.SEED:
        return drawn
    scale = LARGE if worlds is World.LARGE else SMALL
    return replace(drawn, large=scale is LARGE, jobs=jobs or scale.jobs)


def _chosen(jobs: int | None, faults: str, worlds: World) -> str:
    """The options that were not left as they are."""
    given = {"jobs": jobs, "faults": faults, "worlds": worlds}
    usual = {"jobs": None, "faults": "all", "worlds": World.SEED}
    return "".join(f" --{name} {value}" for name, value in given.items() if value != usual[name])


def _faults(text: str) -> frozenset[Fault]:
    try:
        return parse_faults(text)
    except ValueError as error:
        raise typer.BadParameter(f"{error}.", param_hint="--faults") from None


def _seeds(text: str) -> range:
    first, dots, last = text.partition("..")
    if not first.isdigit() or (dots and not last.isdigit()):
        raise typer.BadParameter(
            "write a seed, or the first and the last: 0..199", param_hint="--seeds"
        )
    return range(int(first), int(last or first) + 1)


def _never(exercised: Counter[str], allowed: frozenset[Fault]) -> list[str]:
    """Promises, faults and steps that could have been tried, and never were."""
    wanted = [f"fault {fault}" for fault in sorted(allowed)]
    if allowed == ALL:
        wanted += [f"step {before} → {after}" for before, after in RUNNER_TRANSITIONS]
        wanted += [f"rule {rule.name}" for rule in RULES]
    return [name for name in wanted if not exercised[name]]


def _some(seeds: list[int]) -> str:
    return ", ".join(map(str, seeds[:8])) + (", …" if len(seeds) > 8 else "")
