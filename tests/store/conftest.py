"""The store is tested on the PostgreSQL paddock brings; with PADDOCK_TEST_EVERY_POSTGRES set, as in CI,
on every other one this machine has as well."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.servers import OTHER_BINARIES

_OTHERS = OTHER_BINARIES if os.environ.get("PADDOCK_TEST_EVERY_POSTGRES") else []


@pytest.fixture(
    scope="session",
    params=[None, *_OTHERS],
    ids=["ours", *(f"postgresql-{path.parent.name}" for path in _OTHERS)],
)
def postgres_binaries(request: pytest.FixtureRequest) -> Path | None:
    binaries: Path | None = request.param
    return binaries
