"""What was known when, and by which component: steps, actions and GitHub's times in one row."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from paddock.domain.jobs import EventCause
from paddock.domain.reading.rows import ActionLine, EventLine
from paddock.domain.recovery.records import ActionOutcome
from paddock.domain.recovery.table import RULES
from paddock.stories.story import Fact, clause

#: The step to `gone`, with its verdict, says the same as an action of these rules.
_IN_THE_STEP = frozenset(rule.name for rule in RULES if rule.seen_to_end)


def in_order(facts: Iterable[Fact]) -> tuple[Fact, ...]:
    return tuple(sorted(facts, key=lambda fact: fact.at))


def of_steps(events: Iterable[EventLine]) -> Iterable[Fact]:
    for event in events:
        became = event.after.replace("_", " ")
        if event.why == EventCause.WEBHOOK:
            yield Fact(at=event.at, who=EventCause.WEBHOOK, what=f"the job is {became}")
            continue
        if event.pod is None:
            what = f"the job is {became}: {clause(event.why)}"
        elif event.before is None:
            what = f"{event.pod} is planned: {clause(event.why)}"
        else:
            what = f"{event.pod} is {became}: {clause(event.why)}"
        yield Fact(
            at=event.at, who=event.actor, what=what, pod=event.pod, evidence=_text(event.evidence)
        )


def of_actions(actions: Iterable[ActionLine]) -> Iterable[Fact]:
    for action in actions:
        is_done = action.outcome == ActionOutcome.DONE
        if action.rule in _IN_THE_STEP and is_done:
            continue
        done = action.action if is_done else f"{action.action}, {action.outcome}"
        about = f"{action.pod}: " if action.pod else ""
        yield Fact(
            at=action.at,
            who="recovery",
            what=f"{about}{action.rule} ({done}): {clause(action.why)}",
            pod=action.pod,
            rule=action.rule,
            evidence=_text(action.evidence),
        )


def _text(evidence: Any) -> str | None:
    return None if evidence is None else json.dumps(evidence, ensure_ascii=False)
