"""The rules of recovery with the settings in force, and what each did in the last day."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from paddock.domain.reading.rows import RuleLine
from paddock.domain.recovery.table import RULES
from paddock.domain.recovery.thresholds import RecoveryTerms
from paddock.ports import Clock
from paddock.ports.reading import Reading

LATELY: Final = timedelta(days=1)


class Rules:
    def __init__(self, reading: Reading, clock: Clock, terms: RecoveryTerms) -> None:
        self._reading = reading
        self._clock = clock
        self._terms = terms

    async def lines(self) -> list[RuleLine]:
        counts = await self._reading.rule_counts(since=self._clock.now() - LATELY)
        return [
            RuleLine(
                name=rule.name,
                about=rule.subject,
                seen=rule.seen_with(self._terms.thresholds),
                done=rule.done,
                action=rule.action,
                asks=list(rule.questions),
                dry_run=self._terms.dry_run or rule.name in self._terms.dry_run_rules,
                lately={each.outcome: each.actions for each in counts if each.rule == rule.name},
                last_at=max(
                    (each.last_at for each in counts if each.rule == rule.name), default=None
                ),
            )
            for rule in RULES
        ]
