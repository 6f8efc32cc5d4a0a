"""`python -m simulator`, which `make sim` and `make mutants` give their ARGS to."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from simulator.commands import app
from tools.docs import ROOT

OPTIONS = {
    "run": {"seeds", "jobs", "faults", "worlds", "once", "workers", "record", "json"},
    "replay": {"jobs", "faults", "worlds", "only", "json"},
    "mutants": {"workers", "large", "json"},
    "scenario": {"seed", "only"},
}


@pytest.mark.parametrize("command", OPTIONS)
def test_a_command_accepts_its_options(command: str) -> None:
    told = CliRunner().invoke(app, [command, "--help"]).stdout
    assert {word for word in OPTIONS[command] if f"--{word} " in told} == OPTIONS[command]


def test_the_short_option_for_help_is_the_long_one() -> None:
    short, long = (CliRunner().invoke(app, ["run", option]) for option in ("-h", "--help"))
    assert short.exit_code == 0
    assert short.stdout == long.stdout


@pytest.mark.slow
def test_a_seed_is_reported_as_json() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "simulator", "run", "--seeds", "0", "--jobs", "2", "--json"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    told = json.loads(done.stdout)
    assert (told["seeds"], told["jobs"], told["violations"]) == (1, 2, [])
