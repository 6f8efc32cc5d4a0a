"""How long history is kept."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

#: One transaction deletes at most this many rows: some ten milliseconds of work, so that no matcher,
#: webhook or vacuum waits behind it.
BATCH: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long each kind of history is kept."""

    #: Long enough to argue about last month's incident.
    events: timedelta = timedelta(days=30)
    jobs: timedelta = timedelta(days=30)
    runners: timedelta = timedelta(days=30)
    #: GitHub offers redelivery for three days; a GUID is remembered for longer than that (I6).
    deliveries: timedelta = timedelta(days=14)
    #: Applied bodies are only of use to someone debugging an event of the last days.
    payloads: timedelta = timedelta(days=3)
    backoffs: timedelta = timedelta(days=1)
