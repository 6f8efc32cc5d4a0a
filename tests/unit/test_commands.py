"""The list of commands is written down, so that none has to be loaded to be listed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

import paddock
from paddock.cli.app import app
from paddock.cli.commands import COMMANDS, Commands


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_is_listed_is_there_and_has_help(name: str) -> None:
    command = Commands(name="paddock").get_command(None, name)
    assert command.name == name
    assert command.help


def test_listing_them_loads_none() -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, paddock.cli.app; print(*sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert {"asyncpg", "pydantic", "starlette", "paddock.serve"}.isdisjoint(loaded)
    assert app.info.name == "paddock"


@pytest.mark.parametrize("words", [["--version"], ["version"]])
def test_the_version_is_printed(words: list[str]) -> None:
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, done.stdout) == (0, f"paddock {paddock.__version__}\n")


@pytest.mark.parametrize(
    "words", [[], ["migrate"], ["jobs"], ["jobs", "list"], ["accounts", "limits"]]
)
def test_the_short_option_for_help_is_the_long_one(words: list[str]) -> None:
    short, long = (CliRunner().invoke(app, [*words, option]) for option in ("-h", "--help"))
    assert short.exit_code == 0
    assert short.stdout == long.stdout
    assert "Usage: " in short.stdout


@pytest.mark.parametrize("text", ["999999d", "1w", "-1d", "٣d", ""])
def test_a_length_of_time_that_is_none_is_refused_in_a_sentence(text: str) -> None:
    done = CliRunner().invoke(app, ["endings", "--since", text])
    assert done.exit_code == 2
    assert "is no length of time" in done.output
