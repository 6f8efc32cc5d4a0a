"""paddock works with the App that the first hour creates."""

from __future__ import annotations

import json

from paddock.checkup.github import EVENT, NEEDED
from paddock.web.openapi import WEBHOOKS
from tools.docs import ROOT

MANIFEST = json.loads((ROOT / "deploy" / "github-app.json").read_text())


def test_it_asks_for_what_the_doctor_looks_for_and_no_more() -> None:
    assert MANIFEST["default_permissions"] == {name: level for name, (level, _) in NEEDED.items()}
    assert MANIFEST["default_events"] == [EVENT]
    assert MANIFEST["public"] is False


def test_its_webhooks_come_to_where_they_are_taken() -> None:
    assert MANIFEST["hook_attributes"]["url"].endswith(WEBHOOKS)
    assert MANIFEST["hook_attributes"]["active"] is True
