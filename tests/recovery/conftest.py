from __future__ import annotations

import pytest

from paddock.store.database import Database
from tests.support.recovery import Yard, yard


@pytest.fixture
async def scene(database: Database) -> Yard:
    return await yard(database)
