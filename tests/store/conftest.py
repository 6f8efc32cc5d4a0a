"""The store is tested on the PostgreSQL paddock brings, and on every other one this machine has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.servers import OTHER_BINARIES


@pytest.fixture(
    scope="session",
    params=[None, *OTHER_BINARIES],
    ids=["ours", *(f"postgresql-{path.parent.name}" for path in OTHER_BINARIES)],
)
def postgres_binaries(request: pytest.FixtureRequest) -> Path | None:
    binaries: Path | None = request.param
    return binaries
