"""`paddock rules`: the table with the settings in force."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paddock.cli.rules import rules
from paddock.domain.recovery.table import RULES


def test_every_rule_is_printed_in_order_for_programs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "paddock.toml"
    file.write_text('[recovery]\nsilent = 480\ndry_run_rules = ["silent"]\n')
    rules(as_json=True, config=file)
    rows = json.loads(capsys.readouterr().out)
    assert [row["rule"] for row in rows] == [rule.name for rule in RULES]
    [silent] = [row for row in rows if row["rule"] == "silent"]
    assert silent["seen"].endswith("not heard for 8 min while others were answered")
    assert silent["thresholds"] == {"silent": 480}
    assert silent["dry_run"]
    assert not rows[0]["dry_run"]


def test_every_rule_is_printed_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    rules()
    printed = capsys.readouterr().out
    assert all(rule.name in printed for rule in RULES)
