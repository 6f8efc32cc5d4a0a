from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mac import Mac


@pytest.fixture
def mac(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mac:
    return Mac.made(tmp_path, monkeypatch)
