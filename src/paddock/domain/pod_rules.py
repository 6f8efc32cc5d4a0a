"""The rules for Pods that no living row knows: after a restored backup, or made by a foreign hand.

A sweep for "stamped but unclaimed" Pods once deleted live builds (I34). A Pod without a row proves only
that we know nothing of it, so it is protected until everybody else has spoken; and then it is given a
row, not deleted.
"""

from __future__ import annotations

from typing import Final

from paddock.domain.endings import Retired
from paddock.domain.evidence import Container, LogWord, PodEvidence, RecordWord, Sighting, Subject
from paddock.domain.readings import NOT_BUSY, alive, ended, log, record
from paddock.domain.rule import LOG_NEVER_SHOWED_A_JOB, Action, Rule, record_is
from paddock.domain.thresholds import Thresholds


def _claimed_to_work(e: PodEvidence, t: Thresholds) -> bool:
    return record(e, t) is RecordWord.BUSY or log(e, t) is LogWord.JOB


POD_RULES: Final[tuple[Rule[PodEvidence], ...]] = (
    Rule(
        name="concluded",
        subject=Subject.POD,
        seen="It has ended, and its end is recorded",
        done="Delete what is left of it",
        action=Action.CONCLUDE,
        holds=lambda e, _: e.pod.sighting is Sighting.PRESENT and e.pod.terminal and e.concluded,
        invariants=("I30",),
    ),
    Rule(
        name="ended-without-row",
        subject=Subject.POD,
        seen="It has ended, and no row knows it",
        done="Give it a row, so that its end is recorded",
        action=Action.ADOPT,
        holds=lambda e, _: e.pod.sighting is Sighting.PRESENT and e.pod.terminal,
        invariants=("I30", "I58"),
    ),
    Rule(
        name="runner-ended-without-row",
        subject=Subject.POD,
        seen="No row knows it, its runner container ended {linger} ago, its Pod has not, and GitHub "
        "calls it busy under none of its possible names",
        done="Give it a row, fenced: it retires like any other",
        action=Action.ADOPT,
        holds=lambda e, t: alive(e.pod) and ended(e.pod) and e.pod.unchanged >= t.linger,
        needs=(record_is(*sorted(NOT_BUSY)),),
        retired=Retired.FINISHED,
        invariants=("I28", "I40"),
    ),
    Rule(
        name="executing-without-row",
        subject=Subject.POD,
        seen="No row knows it, and GitHub or its log says that it executes, or has executed, a job",
        done="Leave it alone, and say so",
        action=Action.PROTECT,
        holds=_claimed_to_work,
        invariants=("I34", "I70"),
    ),
    Rule(
        name="unrecognised-without-row",
        subject=Subject.POD,
        seen="No row knows it, and it looks like nothing that is known",
        done="Leave it for the next round",
        action=Action.PROTECT,
        holds=lambda e, _: alive(e.pod) and e.pod.runner is Container.UNRECOGNISED,
        invariants=("I34",),
    ),
    Rule(
        name="pod-without-row",
        subject=Subject.POD,
        seen="No row has known it for {adopt}, GitHub calls it busy under none of its possible names, "
        "and if its runner may have started, its log shows no job",
        done="Give it a row, fenced: it retires like any other",
        action=Action.ADOPT,
        holds=lambda e, t: alive(e.pod) and e.pod.age >= t.adopt,
        needs=(record_is(*sorted(NOT_BUSY)), LOG_NEVER_SHOWED_A_JOB),
        retired=Retired.GIVEN_UP,
        invariants=("I22", "I34", "I70"),
    ),
    Rule(
        name="protected",
        subject=Subject.POD,
        seen="No row has known it for {adopt}, and not everybody has answered",
        done="Leave it alone, and say so",
        action=Action.PROTECT,
        holds=lambda e, t: alive(e.pod) and e.pod.age >= t.adopt,
        invariants=("I29", "I34"),
    ),
)
