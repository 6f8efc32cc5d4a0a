"""The dashboard for Grafana, from a table of panels: its own format repeats everything for each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

_WIDTH: Final = 24
_HEIGHT: Final = 8
_SOURCE: Final = {"type": "prometheus", "uid": "${source}"}


@dataclass(frozen=True)
class Panel:
    title: str
    #: Queries, each with what its line is called.
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    meaning: str = ""
    stacked: bool = False


def _rate(counter: str, by: str) -> tuple[tuple[str, str], ...]:
    return ((f"sum by ({by}) (rate({counter}[$__rate_interval])) * 60", f"{{{{{by}}}}}"),)


def _buckets(histogram: str, by: str) -> str:
    return f"sum by ({by}) (rate({histogram}_bucket[$__rate_interval]))"


def _quantiles(histogram: str) -> tuple[tuple[str, str], ...]:
    inner = _buckets(histogram, "le")
    return tuple(
        (f"histogram_quantile({q}, {inner})", f"p{q[2:]}") for q in ("0.50", "0.95", "0.99")
    )


PANELS: Final = (
    Panel(
        "Jobs that wait",
        (("max by (pool, account) (paddock_queued_jobs)", "{{pool}} {{account}}"),),
        stacked=True,
    ),
    Panel(
        "For how long the oldest has waited",
        (("max by (pool, account) (paddock_oldest_queued_seconds)", "{{pool}} {{account}}"),),
        unit="s",
    ),
    Panel(
        "Runners",
        (("sum by (state) (max by (pool, state) (paddock_runners))", "{{state}}"),),
        stacked=True,
    ),
    Panel(
        "Pools: what they have, should have, may have",
        (
            ("sum by (pool) (max by (pool, state) (paddock_runners))", "{{pool}} has"),
            ("max by (pool) (paddock_pool_target_runners)", "{{pool}} should"),
            ("max by (pool) (paddock_pool_max_runners)", "{{pool}} may"),
        ),
    ),
    Panel(
        "From queued to running, by step",
        (
            (
                f"histogram_quantile(0.95, {_buckets('paddock_step_seconds', 'le, step')})",
                "{{step}}, p95",
            ),
        ),
        unit="s",
    ),
    Panel("Mints a minute", _rate("paddock_mints_total", "outcome")),
    Panel("A mint's time", _quantiles("paddock_mint_seconds"), unit="s"),
    Panel(
        "Why keys got nothing",
        (("max by (reason) (paddock_withheld_keys)", "{{reason}}"),),
        meaning="In each replica's last match.",
    ),
    Panel("How runners end, a minute", _rate("paddock_runner_endings_total", "ending")),
    Panel("Recovery, actions a minute", _rate("paddock_recovery_actions_total", "rule")),
    Panel("Suspects", (("max by (pool) (paddock_suspect_runners)", "{{pool}}"),)),
    Panel(
        "Budgets towards GitHub",
        (("min by (app, bucket) (paddock_github_budget_left_ratio)", "{{app}} {{bucket}}"),),
        unit="percentunit",
    ),
    Panel(
        "Debts and dead deliveries",
        (
            ("max(paddock_github_debts)", "debts"),
            ("max(paddock_dead_deliveries)", "dead deliveries"),
        ),
    ),
    Panel("Webhooks a minute", _rate("paddock_webhook_deliveries_total", "outcome")),
    Panel("A webhook's answer", _quantiles("paddock_webhook_seconds"), unit="s"),
    Panel(
        "Clocks, against the database's",
        (
            ("max(abs(paddock_clock_skew_seconds))", "replicas"),
            ("max by (host) (abs(paddock_github_clock_skew_seconds))", "{{host}}"),
        ),
        unit="s",
        meaning="paddock goes by the database's clock.",
    ),
    Panel(
        "Since all Pods were seen",
        (("time() - max(paddock_fleet_read_timestamp_seconds)", "seconds"),),
        unit="s",
    ),
)


def dashboard() -> str:
    panels = [_panel(number, panel) for number, panel in enumerate(PANELS)]
    return (
        json.dumps(
            {
                "title": "paddock",
                "uid": "paddock",
                "tags": ["paddock"],
                "schemaVersion": 39,
                "refresh": "30s",
                "time": {"from": "now-3h", "to": "now"},
                "templating": {
                    "list": [
                        {
                            "name": "source",
                            "label": "Data source",
                            "type": "datasource",
                            "query": "prometheus",
                        }
                    ]
                },
                "panels": panels,
            },
            indent=1,
        )
        + "\n"
    )


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    half = _WIDTH // 2
    drawn: dict[str, Any] = {"fillOpacity": 30 if panel.stacked else 5, "showPoints": "never"}
    if panel.stacked:
        drawn["stacking"] = {"mode": "normal"}
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.meaning,
        "datasource": _SOURCE,
        "gridPos": {"h": _HEIGHT, "w": half, "x": number % 2 * half, "y": number // 2 * _HEIGHT},
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, "custom": drawn},
            "overrides": [],
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + each),
                "datasource": _SOURCE,
                "expr": query,
                "legendFormat": called,
            }
            for each, (query, called) in enumerate(panel.queries)
        ],
    }
