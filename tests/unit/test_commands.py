"""The list of commands is written down, so that none has to be loaded to be listed."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
