"""What recovery may do, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from paddock.domain.recovery.thresholds import Thresholds


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryTerms:
    """`dry_run`: record what would be done, and do nothing; for all rules, or for `dry_run_rules`."""

    thresholds: Thresholds = field(default_factory=Thresholds)
    dry_run: bool = False
    dry_run_rules: frozenset[str] = frozenset()
    #: Actions of one rule, and of all, within ten seconds: a fault does harm slowly enough for an
    #: operator to see it (I29). Ends that were seen are not counted.
    per_rule: int = 20
    per_round: int = 50
    #: Questions to GitHub in one round.
    questions: int = 30

    def is_dry(self, rule: str) -> bool:
        return self.dry_run or rule in self.dry_run_rules
