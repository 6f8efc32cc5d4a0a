"""The tests use Helm and promtool where they exist. PADDOCK_REQUIRE_HELM=1 and
PADDOCK_REQUIRE_PROMTOOL=1 make their absence a failure; `make chart-test` sets both."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.support.chart import helm as find_helm


@pytest.fixture(scope="session")
def helm() -> Path:
    return _wanted("helm", find_helm(), "`python -m tools.cluster build helm` builds it")


@pytest.fixture(scope="session")
def promtool() -> str:
    found = shutil.which("promtool")
    return str(_wanted("promtool", Path(found) if found else None, "it comes with Prometheus"))


def _wanted(name: str, found: Path | None, hint: str) -> Path:
    if found is None:
        reason = f"there is no {name}: {hint}"
        if os.environ.get(f"PADDOCK_REQUIRE_{name.upper()}") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return found
