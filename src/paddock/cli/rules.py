"""`paddock rules`"""

from __future__ import annotations

from paddock.cli.layout import prose
from paddock.cli.options import AsJson, Config
from paddock.cli.output import show, show_json, table
from paddock.domain.recovery.evidence import Subject
from paddock.domain.recovery.table import RULES
from paddock.settings import RecoverySettings, load

_ABOUT = {
    Subject.RUNNER: "Runners",
    Subject.ENDED: "Runners that ended without a reported job",
    Subject.POD: "Pods that no row knows",
    Subject.JOB: "Jobs",
}


def rules(as_json: AsJson = False, config: Config = None) -> None:
    """Print what recovery looks for and what it does about it, strongest evidence first.

    The first rule that holds decides. A rule that asks for GitHub's record of the runner, the
    runner's log or the job at GitHub does nothing without the answer. The times are from your
    settings, [recovery].
    """
    recovery = load(config).recovery
    if as_json:
        _for_programs(recovery)
        return
    for subject, heading in _ABOUT.items():
        if subject is not Subject.RUNNER:
            show("")
        show(heading, style="bold")
        _show_table(subject, recovery)


def _show_table(subject: Subject, recovery: RecoverySettings) -> None:
    table(
        ["RULE", prose("SEEN", whole=True), prose("DONE", whole=True), "ASKS"],
        (
            (
                rule.name,
                rule.seen_with(recovery.thresholds),
                rule.done + (" (dry run)" if recovery.dry(rule.name) else ""),
                ", ".join(question.name.lower() for question in rule.questions) or None,
            )
            for rule in RULES
            if rule.subject is subject
        ),
        empty="There are no rules.",
    )


def _for_programs(recovery: RecoverySettings) -> None:
    show_json(
        [
            {
                "rule": rule.name,
                "about": rule.subject,
                "seen": rule.seen_with(recovery.thresholds),
                "done": rule.done,
                "action": rule.action,
                "asks": list(rule.questions),
                "thresholds": {name: getattr(recovery, name) for name in rule.thresholds},
                "invariants": list(rule.invariants),
                "dry_run": recovery.dry(rule.name),
            }
            for rule in RULES
        ]
    )
