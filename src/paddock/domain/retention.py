"""How long history is kept."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Final

#: One transaction deletes at most this many rows: some ten milliseconds of work, so that no matcher,
#: webhook or vacuum waits behind it.
BATCH: Final = 500


class History(StrEnum):
    """The kinds of history there are."""

    EVENTS = "events"
    JOBS = "jobs"
    RUNNERS = "runners"
    DELIVERIES = "deliveries"
    DEAD = "dead"
    PAYLOADS = "payloads"
    BACKOFFS = "backoffs"
    BUDGETS = "budgets"
    DECISIONS = "decisions"
    ACTIONS = "actions"


Retention = Mapping[History, timedelta]

RETENTION: Final[Retention] = {
    # Long enough to argue about last month's incident.
    History.EVENTS: timedelta(days=30),
    History.JOBS: timedelta(days=30),
    History.RUNNERS: timedelta(days=30),
    # GitHub offers redelivery for three days; a GUID is remembered for longer than that (I6).
    History.DELIVERIES: timedelta(days=14),
    # Those set aside since then: an operator has this long to put the cause right and try them again.
    History.DEAD: timedelta(days=30),
    # Applied bodies are only of use for debugging an event of the last days.
    History.PAYLOADS: timedelta(days=3),
    History.BACKOFFS: timedelta(days=1),
    # Nothing was taken from it since: it is full again, and a missing bucket counts as full.
    History.BUDGETS: timedelta(days=1),
    # Why a pool had its size yesterday; a busy one decides every other second.
    History.DECISIONS: timedelta(days=2),
    # As long as the runners and jobs they tell of.
    History.ACTIONS: timedelta(days=30),
}
