from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.scratch import Scratch


@pytest.fixture
def scratch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Scratch:
    made = Scratch(tmp_path, capsys)
    made.fill()
    return made
