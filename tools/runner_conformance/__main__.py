"""`python -m tools.runner_conformance [COMMAND …]`: runs a runner program through the cases.

COMMAND starts a runner program, which finds its JIT configuration in `ACTIONS_RUNNER_INPUT_JITCONFIG`:
for example `DIR/bin/Runner.Listener run` with an unpacked actions/runner, or `python -m
paddock.fakes.runner run`. The default is the program that `make runner` built.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from paddock.domain.plain_text import escaped
from tools.cluster.binaries import RUNNER, require
from tools.cluster.errors import Missing
from tools.runner_conformance.cases import Case, all_cases
from tools.runner_conformance.stage import Late, Stage

_LAST_WORDS: Final = 64


@dataclass(frozen=True)
class Result:
    case: str
    expected: bool
    #: The exit code; a negative one is a signal; `None`: it still runs.
    code: int | None
    job: str
    record: str
    seconds: float
    #: What differs, or else the program's last line.
    remark: str


async def run(case: Case, command: Sequence[str], outage: float) -> Result:
    began = time.monotonic()
    problem = ""
    directory = Path(tempfile.mkdtemp(prefix="runner-conformance-"))
    try:
        async with Stage.ready(command, directory, outage) as stage:
            try:
                await case.play(stage)
            except (Late, OSError, AssertionError) as error:
                # It ended where no runner program does, or cannot be started.
                problem = str(error) or "it is not in the state that the case needs"
            program = stage.program
            alive = program is not None and program.alive
            if stage.outcome not in case.jobs:
                problem = problem or f"the job should be {' or '.join(sorted(case.jobs))}"
            elif case.ends is not None and case.ends is alive:
                problem = problem or f"it should have {'ended' if case.ends else 'gone on'}"
            code = program.process.returncode if program else None
            words = next((each for each in reversed(program.lines) if each), "") if program else ""
            return Result(
                case=case.name,
                expected=not problem,
                code=code,
                job=stage.outcome,
                record=stage.record,
                seconds=round(time.monotonic() - began, 1),
                remark=problem or words,
            )
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def _run_all(
    cases: Sequence[Case], command: Sequence[str], *, outage: float, parallel: int
) -> list[Result]:
    places = asyncio.Semaphore(parallel)

    async def one(case: Case) -> Result:
        async with places:
            result = await run(case, command, outage)
            sys.stderr.write("." if result.expected else "D")
            sys.stderr.flush()
            return result

    results = await asyncio.gather(*(one(case) for case in cases))
    sys.stderr.write("\n")
    return results


def table(results: Sequence[Result]) -> str:
    rows = [("case", "", "exit", "job", "record", "s", "")]
    for each in results:
        code = "runs" if each.code is None else str(each.code)
        # A program's line holds what its job is named.
        mark, remark = ("ok" if each.expected else "DIFFERS"), escaped(each.remark)[:_LAST_WORDS]
        rows.append((each.case, mark, code, each.job, each.record, f"{each.seconds:.0f}", remark))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
    return "".join(f"{line.rstrip()}\n" for line in lines)


def main() -> int:
    cases = all_cases()
    parser = argparse.ArgumentParser(
        prog="python -m tools.runner_conformance",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    parser.add_argument(
        "--case",
        action="append",
        choices=[each.name for each in cases],
        metavar="NAME",
        help="only this case; may be repeated. The cases: "
        + ", ".join(each.name for each in cases),
    )
    parser.add_argument(
        "--outage", type=float, default=20.0, help="seconds for which GitHub is unavailable (20)"
    )
    parser.add_argument("--parallel", type=int, default=8, help="cases at the same time (8)")
    parser.add_argument("--json", action="store_true", help="for programs")
    options = parser.parse_args()
    if options.parallel < 1 or not 0 < options.outage < float("inf"):
        parser.error("--parallel and --outage take positive numbers.")
    try:
        command = options.command or [str(require(RUNNER)), "run"]
    except Missing as missing:
        sys.stderr.write(f"{missing}\n")
        return 2
    if shutil.which(command[0]) is None:
        parser.error(f"`{command[0]}` is no program that can be started.")
    if options.case:
        cases = [each for each in cases if each.name in options.case]
    results = asyncio.run(
        _run_all(cases, command, outage=options.outage, parallel=options.parallel)
    )
    if options.json:
        sys.stdout.write(json.dumps([asdict(each) for each in results], indent=2) + "\n")
    else:
        sys.stdout.write(table(results))
    return 0 if all(each.expected for each in results) else 1


if __name__ == "__main__":
    sys.exit(main())
