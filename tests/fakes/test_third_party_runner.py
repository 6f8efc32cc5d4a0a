"""A runner program that others wrote runs jobs of the fake GitHub. So the protocol is GitHub's, and not
one that two programs of ours have agreed on. `make runner` builds it."""

from __future__ import annotations

import pytest

from tests.support.third_party import third_party_runner
from tools.runner_conformance.__main__ import run
from tools.runner_conformance.cases import all_cases

#: Those that take seconds. `python -m tools.runner_conformance` runs all.
QUICK = (
    "success",
    "failure",
    "steps and logs",
    "job queued later",
    "landmarks that paddock reads",
    "hostile output and name",
    "endless output",
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


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
async def test_a_runner_of_others_lives_through(name: str) -> None:
    program = third_party_runner()
    [case] = [each for each in all_cases() if each.name == name]
    result = await run(case, [str(program), "run"], outage=5.0)
    assert result.expected, result
