"""Alerts and the dashboard: every name exists, promtool agrees, and each alert fires when it should."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddock.domain.recovery.table import RULES
from paddock.domain.runners.endings import Ending
from paddock.domain.states import RunnerState
from tools.chart.dashboard import PANELS
from tools.docs import ROOT, metrics

CHART = ROOT / "deploy" / "chart"
ALERTS = CHART / "files" / "alerts.yaml"
RULES_FILE = yaml.safe_load(ALERTS.read_text())
[GROUP] = RULES_FILE["groups"]
ALERT = {rule["alert"]: rule for rule in GROUP["rules"]}
KNOWN = {series: metric for metric in metrics() for series in metric.series}

# Each alert, with series on which it fires, and the same world a little better, in which it does not.
# `a+bxn` is a, then n times b more, a minute apart.
ENDINGS = 'paddock_runner_endings_total{ending="%s"}'
ACTIONS = 'paddock_recovery_actions_total{rule="%s",action="fence",outcome="done"}'
VERSION_END = "paddock_runner_version_end_timestamp_seconds"

CASES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "PaddockSilent": ({"up": "1x30"}, {"paddock_github_debts": "0x30"}),
    "PaddockQueueOld": (
        {'paddock_oldest_queued_seconds{pool="linux",account="acme"}': "0+60x30"},
        {'paddock_oldest_queued_seconds{pool="linux",account="acme"}': "600x30"},
    ),
    "PaddockPoolStarved": (
        {
            'paddock_oldest_queued_seconds{pool="linux",account="acme"}': "300x30",
            'paddock_pool_target_runners{pool="linux"}': "5x30",
            'paddock_runners{pool="linux",state="busy"}': "2x30",
            'paddock_runners{pool="linux",state="booting"}': "3x30",
        },
        {
            'paddock_oldest_queued_seconds{pool="linux",account="acme"}': "300x30",
            'paddock_pool_target_runners{pool="linux"}': "5x30",
            'paddock_runners{pool="linux",state="busy"}': "5x30",
        },
    ),
    "PaddockPoolSaturated": (
        {
            'paddock_oldest_queued_seconds{pool="linux",account="acme"}': "600x30",
            'paddock_pool_max_runners{pool="linux"}': "5x30",
            'paddock_runners{pool="linux",state="busy",instance="a"}': "5x30",
            'paddock_runners{pool="linux",state="busy",instance="b"}': "5x30",
        },
        {
            # Two replicas tell the same: five are not ten.
            'paddock_oldest_queued_seconds{pool="linux",account="acme"}': "600x30",
            'paddock_pool_max_runners{pool="linux"}': "6x30",
            'paddock_runners{pool="linux",state="busy",instance="a"}': "5x30",
            'paddock_runners{pool="linux",state="busy",instance="b"}': "5x30",
        },
    ),
    "PaddockRecoveryBusy": (
        {ACTIONS % "never-registered": "0+1x30"},
        {ACTIONS % "pod-ended": "0+9x30", ACTIONS % "zombie": "0x28 1"},
    ),
    "PaddockRunnersDie": (
        {ENDINGS % "host-oom": "0+1x30"},
        {ENDINGS % "completed": "0+9x30", ENDINGS % "host-oom": "0x20 1x10"},
    ),
    "PaddockMintsFail": (
        {
            'paddock_mints_total{outcome="minted"}': "0+10x30",
            'paddock_mints_total{outcome="not accessible"}': "0+5x30",
        },
        {
            'paddock_mints_total{outcome="minted"}': "0+100x30",
            'paddock_mints_total{outcome="not accessible"}': "0+5x30",
        },
    ),
    "PaddockBudgetLow": (
        {'paddock_github_budget_left_ratio{app="1",bucket="mint"}': "0.05x30"},
        {'paddock_github_budget_left_ratio{app="1",bucket="mint"}': "0.5x30"},
    ),
    "PaddockDebts": ({"paddock_github_debts": "80x60"}, {"paddock_github_debts": "80x20 0x40"}),
    "PaddockSuspects": (
        {'paddock_suspect_runners{pool="linux"}': "4x30"},
        {'paddock_suspect_runners{pool="linux"}': "1x30"},
    ),
    "PaddockFleetUnseen": (
        {'paddock_fleet_read_timestamp_seconds{instance="a"}': "30x30"},
        # One leads; the other says an old time.
        {
            'paddock_fleet_read_timestamp_seconds{instance="a"}': "0x30",
            'paddock_fleet_read_timestamp_seconds{instance="b"}': "0+60x30",
        },
    ),
    "PaddockHostUnfit": (
        {'paddock_host_fault_seconds{host="mac-1",reason="LoadFailed"}': "0+60x30"},
        {'paddock_host_fault_seconds{host="mac-1",reason="LoadFailed"}': "0 60 120 _x27"},
    ),
    "PaddockRunnerVersionEnds": (
        {
            f'{VERSION_END}{{pool="linux",version="2.336.0"}}': "1000000x30",
            'paddock_runner_version_refused{pool="linux",version="2.336.0"}': "0x30",
        },
        {
            # One pool has three weeks left, and the other one is refused: that is another alert.
            f'{VERSION_END}{{pool="linux",version="2.336.0"}}': "1814400x30",
            f'{VERSION_END}{{pool="arm",version="2.330.0"}}': "0x30",
            'paddock_runner_version_refused{pool="arm",version="2.330.0"}': "1x30",
        },
    ),
    "PaddockRunnerVersionRefused": (
        {'paddock_runner_version_refused{pool="linux",version="2.330.0"}': "1x30"},
        {'paddock_runner_version_refused{pool="linux",version="2.336.0"}': "0x30"},
    ),
    "PaddockLimitBypassed": (
        {
            'paddock_limit_bypassing_jobs{account="acme",repository="acme/api",'
            'runner="foreign"}': "1x30"
        },
        {
            # As long as it takes until the runners of before the limit are gone.
            'paddock_limit_bypassing_jobs{account="acme",repository="acme/api",'
            'runner="organisation"}': "3x8 _x22"
        },
    ),
    "PaddockDeadDeliveries": (
        {"paddock_dead_deliveries": "1x30"},
        {"paddock_dead_deliveries": "0x30"},
    ),
    "PaddockDeliveriesWait": (
        {"paddock_oldest_pending_delivery_seconds": "600x30"},
        {"paddock_oldest_pending_delivery_seconds": "2x30"},
    ),
    "PaddockDeliveriesLost": (
        {'paddock_deliveries_given_up_total{app="App 1 on github.com"}': "0x20 2x10"},
        {'paddock_deliveries_given_up_total{app="App 1 on github.com"}': "2x30"},
    ),
    "PaddockWebhooksRefused": (
        {'paddock_webhook_refusals_total{reason="signature"}': "0+5x30"},
        {'paddock_webhook_refusals_total{reason="signature"}': "0x29 1"},
    ),
    "PaddockClockSkew": (
        {'paddock_clock_skew_seconds{instance="a"}': "-100x30"},
        {
            'paddock_clock_skew_seconds{instance="a"}': "0.2x30",
            'paddock_github_clock_skew_seconds{host="github.com"}': "-2x30",
        },
    ),
    "PaddockStampsFail": (
        {'paddock_stamps_total{outcome="failed"}': "0+1x30"},
        {'paddock_stamps_total{outcome="stamped"}': "0+9x30"},
    ),
    "PaddockCertificateExpires": (
        {"paddock_tls_certificate_expiry_timestamp_seconds": "500000x30"},
        {
            'paddock_tls_certificate_expiry_timestamp_seconds{instance="a"}': "700000x30",
            'paddock_tls_certificate_expiry_timestamp_seconds{instance="b"}': "0x30",
        },
    ),
    "PaddockCertificateRejected": (
        {'paddock_tls_handshakes_failed_total{reason="certificate"}': "0+4x30"},
        {
            # For two minutes, while a new authority reaches the Pods; and strangers.
            'paddock_tls_handshakes_failed_total{reason="certificate"}': "0x20 20 40 40x8",
            'paddock_tls_handshakes_failed_total{reason="plain"}': "0+9x30",
        },
    ),
}


def names(query: str) -> set[str]:
    return set(re.findall(r"\bpaddock_[a-z_]+", query))


def labels(query: str) -> set[str]:
    matched = re.findall(r"\{([^}]*)\}", query)
    found = {name for each in matched for name in re.findall(r"(\w+)\s*[=!]", each)}
    for grouped in re.findall(r"(?:by|on) \(([^)]*)\)", query):
        found |= {name.strip() for name in grouped.split(",")}
    return found - {"le"}


@pytest.mark.parametrize("alert", ALERT)
def test_every_metric_of_an_alert_exists_with_its_labels(alert: str) -> None:
    used = names(ALERT[alert]["expr"])
    assert used
    assert used <= KNOWN.keys()
    known = {label for name in used for label in KNOWN[name].labels}
    assert labels(ALERT[alert]["expr"]) <= known


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.title)
def test_every_metric_of_the_dashboard_exists_with_its_labels(panel: Any) -> None:
    for query, called in panel.queries:
        used = names(query)
        assert used
        assert used <= KNOWN.keys()
        known = {label for name in used for label in KNOWN[name].labels}
        assert labels(query) | set(re.findall(r"\{\{(\w+)\}\}", called)) <= known


def test_rules_endings_and_states_in_alerts_exist() -> None:
    text = ALERTS.read_text()
    for label, known in (
        ("rule", {rule.name for rule in RULES}),
        ("ending", set(Ending)),
        ("state", set(RunnerState)),
    ):
        for values in re.findall(rf'\b{label}[=!]~?"([^"]*)"', text):
            assert set(values.split("|")) <= known


def test_every_abnormal_ending_alarms_but_what_pools_do_themselves() -> None:
    alarming = set(re.findall(r'ending=~"([^"]*)"', ALERTS.read_text())[0].split("|"))
    abnormal = {ending.value for ending in Ending if ending.abnormal}
    # Seen by `PaddockPoolStarved`, and by recovery's rules.
    assert abnormal - alarming <= {Ending.NEVER_STARTED, Ending.NEVER_RAN}


def test_every_alert_has_a_severity_a_summary_and_a_section_of_the_runbook() -> None:
    page = (ROOT / "docs" / "alerts.md").read_text()
    sections = re.findall(r"^## (\w+)$", page, re.MULTILINE)
    assert sections == list(ALERT)
    for name, rule in ALERT.items():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["runbook"] == f"docs/alerts.md#{name.lower()}"


def test_promtool_finds_nothing_wrong(promtool: str) -> None:
    done = subprocess.run(
        [promtool, "check", "rules", "--lint=all", "--lint-fatal", str(ALERTS)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_fires_when_it_should_and_not_before(promtool: str, tmp_path: Path) -> None:
    assert list(CASES) == list(ALERT)
    tests = [
        _case(name, series, fires=fires)
        for name, (bad, good) in CASES.items()
        for series, fires in ((bad, True), (good, False))
    ]
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "tests": tests}))
    done = subprocess.run(
        [promtool, "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _case(name: str, series: dict[str, str], *, fires: bool) -> dict[str, Any]:
    """Whether it fires after half an hour (an hour for what takes that long to count)."""
    at = "55m" if name == "PaddockDebts" else "29m"
    expression = f'count(ALERTS{{alertname="{name}", alertstate="firing"}}) or vector(0)'
    return {
        "name": f"{name} {'fires' if fires else 'does not fire'}",
        "interval": "1m",
        "input_series": [{"series": key, "values": value} for key, value in series.items()],
        "promql_expr_test": [
            {
                "expr": expression,
                "eval_time": at,
                "exp_samples": [{"labels": "{}", "value": int(fires)}],
            }
        ],
    }


def test_the_dashboard_is_json_that_grafana_reads() -> None:
    made = json.loads((CHART / "files" / "dashboard.json").read_text())
    assert [panel["title"] for panel in made["panels"]] == [panel.title for panel in PANELS]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in made["panels"]]
    assert len(places) == len(set(places))
