"""At the end of the run each target reports how many inputs it tried, by outcome."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.fuzzing import IS_LONG, SEED, Fuzzer

_REPORT = "fuzz"


@pytest.fixture
def fuzzer(request: pytest.FixtureRequest, record_property: Any) -> Iterator[Fuzzer]:
    fuzzer = Fuzzer(request.node.name)
    yield fuzzer
    record_property(_REPORT, fuzzer.report)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not IS_LONG:
        return
    terminalreporter.section(f"fuzz: seed {SEED}")
    # A fixture's records after the test are in the report of its teardown.
    for kind in ("passed", "failed", ""):
        for report in terminalreporter.stats.get(kind, []):
            for name, value in getattr(report, "user_properties", ()):
                if name == _REPORT:
                    terminalreporter.write_line(f"{report.nodeid.split('::')[-1]}: {value}")
    terminalreporter.write_line(f"found: {len(terminalreporter.stats.get('failed', []))}")
