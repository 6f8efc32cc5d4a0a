"""A runner program that others wrote runs jobs of the fake GitHub. So the protocol is GitHub's, and not
one that two programs of ours have agreed on. `make runner` builds it."""

from __future__ import annotations

import os

import pytest

from tools.cluster.binaries import RUNNER, find
from tools.runner_conformance.__main__ import run
from tools.runner_conformance.cases import all_cases

#: Those that take seconds. `python -m tools.runner_conformance` runs all.
QUICK = (
    "success",
    "failure",
    "steps and logs",
    "job queued later",
    "one job only",
    "cancelled",
    "sigterm idle",
    "sigterm busy",
    "sigkill idle",
    "deleted before start",
    "deleted idle",
    "deleted busy",
    "token expired",
    "acquire 401 once",
    "results refused",
)


@pytest.mark.parametrize("name", QUICK)
async def test_a_runner_of_others_lives_through(name: str) -> None:
    program = find(RUNNER)
    if program is None and os.environ.get("PADDOCK_REQUIRE_RUNNER") == "1":
        pytest.fail("PADDOCK_REQUIRE_RUNNER=1, but make runner has not built it")
    if program is None:
        pytest.skip("make runner has not built it")
    [case] = [each for each in all_cases() if each.name == name]
    result = await run(case, [str(program), "run"], outage=5.0)
    assert result.expected, result
