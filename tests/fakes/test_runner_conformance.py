"""The conformance script with programs that are no runners: it says so, and goes through all cases."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools.runner_conformance import stage
from tools.runner_conformance.__main__ import Result, run, table
from tools.runner_conformance.cases import all_cases


@pytest.mark.parametrize(
    "name", ["success", "steps and logs", "landmarks that paddock reads", "token expired"]
)
async def test_our_own_runner_lives_through(name: str) -> None:
    """As `--help` starts it."""
    [case] = [each for each in all_cases() if each.name == name]
    result = await run(case, [sys.executable, "-m", "paddock.fakes.runner", "run"], outage=1.0)
    assert result.expected, result


@pytest.mark.parametrize("name", ["cancelled", "sigterm idle", "sigkill busy", "session lost"])
async def test_a_program_that_ends_at_once_differs(name: str) -> None:
    [case] = [each for each in all_cases() if each.name == name]
    result = await run(case, ["/bin/false"], outage=1.0)
    assert (result.expected, result.code) == (False, 1)
    assert "it ended with 1 before" in result.remark


async def test_a_program_that_cannot_be_started_differs() -> None:
    [case] = [each for each in all_cases() if each.name == "success"]
    result = await run(case, ["/nonexistent/runner"], outage=1.0)
    assert (result.expected, result.code) == (False, None)
    assert "No such file" in result.remark


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["/nonexistent/runner", "run"], "`/nonexistent/runner` is no program"),
        (["--parallel", "0", "/bin/true"], "positive"),
        (["--outage", "nan", "/bin/true"], "positive"),
    ],
)
def test_a_wrong_command_line_is_explained(arguments: list[str], says: str) -> None:
    command = [sys.executable, "-m", "tools.runner_conformance", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 2
    assert says in ended.stderr


def test_a_programs_last_line_cannot_move_the_cursor() -> None:
    """I87"""
    words = "\x1b[2J\x07 is deprecated"
    result = Result("hostile", True, 0, "success", "removed", 1.0, words)
    assert not {"\x1b", "\x07"} & set(table([result]))


def test_an_unpacked_runner_is_copied_where_it_cannot_be_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Temporary files are often on a disk of their own."""

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(18, "Invalid cross-device link")

    program = tmp_path / "unpacked" / "bin" / "Runner.Listener"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(os, "link", refuse)
    copied = stage._own_copy([str(program), "run"], tmp_path)
    assert copied == [str(tmp_path / "runner" / "bin" / "Runner.Listener"), "run"]
    assert os.access(copied[0], os.X_OK)
