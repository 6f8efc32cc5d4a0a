"""The table of recovery, pinned: its order is behaviour, its names and settings are an interface."""

from __future__ import annotations

from dataclasses import asdict

from paddock.domain.recovery.evidence import Subject
from paddock.domain.recovery.table import RULES
from paddock.domain.recovery.thresholds import Thresholds

#: Operators name rules in `dry_run_rules`, and actions are recorded under these names. The first rule
#: that holds decides, so a changed order is a changed decision.
ORDER = {
    Subject.RUNNER: [
        "pod-ended",
        "pod-gone",
        "never-created",
        "runner-ended",
        "forced",
        "account-removed",
        "record-removed",
        "hint-moved-on",
        "missed-in-progress",
        "busy",
        "executing",
        "retiring",
        "too-many-suspects",
        "suspect",
        "unrecognised",
        "started-unclaimed",
        "started-unexplained",
        "leaving",
        "unschedulable",
        "never-started",
        "silent",
        "claim-in-doubt",
        "stale-claim",
        "undelivered",
        "waiting-container",
        "never-registered",
        "zombie",
        "surplus",
        "no-job-in-time",
        "lingering",
    ],
    Subject.ENDED: [
        "ran-after-all",
        "exit-without-job",
        "ended-unexplained",
    ],
    Subject.POD: [
        "concluded",
        "ended-without-row",
        "runner-ended-without-row",
        "executing-without-row",
        "unrecognised-without-row",
        "pod-without-row",
        "protected",
    ],
    Subject.JOB: [
        "missed-completion",
        "job-unknown",
        "missed-start",
        "runner-lost",
        "given-back",
        "repository-deleted",
        "missed-completion-perhaps",
        "still-waiting",
        "job-expired",
        "job-end",
        "job-deleted",
        "stale-queued",
        "unassigned",
        "waits-beside-supply",
    ],
}

#: The settings of `[recovery]` that are thresholds, in the order in which they are documented.
DEFAULTS = {
    "fresh": 30.0,
    "recheck": 60.0,
    "absent_reads": 3,
    "boot": 300.0,
    "pull": 900.0,
    "unschedulable": 300.0,
    "silent": 120.0,
    "stale_claim": 300.0,
    "undelivered": 120.0,
    "start": 30.0,
    "suspect": 60.0,
    "suspects": 3,
    "waiting": 180.0,
    "never_registered": 300.0,
    "zombie": 120.0,
    "surplus": 180.0,
    "no_job": 900.0,
    "unassigned": 60.0,
    "refusals": 2,
    "linger": 600.0,
    "removals": 3,
    "removed": 435600.0,
    "adopt": 300.0,
    "supply_grace": 120.0,
    "verdict": 3600.0,
    "in_progress": 3600.0,
    "unheard": 900.0,
    "job_expired": 86400.0,
    "job_end": 172800.0,
}


def test_the_rules_stand_in_this_order() -> None:
    assert [rule.name for rule in RULES] == [name for names in ORDER.values() for name in names]
    assert {rule.name: rule.subject for rule in RULES} == {
        name: subject for subject, names in ORDER.items() for name in names
    }


def test_the_thresholds_have_these_names_and_defaults() -> None:
    assert list(asdict(Thresholds()).items()) == list(DEFAULTS.items())
