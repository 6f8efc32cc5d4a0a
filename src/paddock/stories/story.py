"""The parts of a story, the words they share, and what was known when: steps and actions in one row."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from paddock.domain.jobs.facts import EventCause
from paddock.domain.reading.rows import ActionLine, EventLine
from paddock.domain.recovery.records import ActionOutcome
from paddock.domain.recovery.table import RULES


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """What a component knew or did, and when."""

    at: datetime
    #: GitHub, a Pod, recovery, the operator, or the replica that wrote it down.
    who: str
    what: str
    #: The Pod whose step it was, if it was a runner's.
    pod: str | None = None
    #: The rule of recovery that did it, if one did.
    rule: str | None = None
    #: JSON: what it was decided by.
    evidence: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    kind: Literal["job", "runner"]
    #: A job's number or a Pod's name.
    name: str
    title: str
    state: str
    since: datetime
    #: Why it is in this state, in a sentence.
    why: str
    #: What would have to happen next, in a sentence.
    next: str
    #: In the order in which they happened.
    facts: tuple[Fact, ...]
    #: What happened on the way that explains it further, a sentence each.
    remarks: tuple[str, ...] = ()
    #: The job's or the runner's own, by name: for links.
    jobs: tuple[int, ...] = ()
    pods: tuple[str, ...] = ()
    #: The end of the log of a runner that ended abnormally.
    log_tail: str | None = None


class ReasonAndNext(NamedTuple):
    """Why, and what would have to happen next."""

    why: str
    next: str


def length(time: timedelta) -> str:
    """As exact as a waiting reader needs it."""
    seconds = max(0.0, time.total_seconds())
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.0f} h"
    return f"{seconds / 86400:.0f} days"


def counted(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def sentence(text: str) -> str:
    """The text as a sentence: with a capital and one full stop."""
    text = text.strip().rstrip(".")
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def clause(text: str) -> str:
    """The text as a part of a sentence. Names (GitHub, JIT) keep their capitals."""
    text = text.strip().rstrip(".")
    first, *_ = text.split(maxsplit=1) or [""]
    return text if first[1:] != first[1:].lower() else f"{text[:1].lower()}{text[1:]}"


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
