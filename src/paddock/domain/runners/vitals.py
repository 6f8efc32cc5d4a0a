"""What a runner measured of itself while it lived.

It comes from where untrusted code runs, so it is evidence for people and never for decisions. One
bounded series per runner: when it is full, every second sample of the older half makes room, so that
a long job keeps its whole story and its last minutes in full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import Annotated, Final

import msgspec

#: A sample every five seconds for an hour and a half in full, then thinner; some 60 KB.
MOST_SAMPLES: Final = 1024
#: What one report may carry: five minutes that could not be sent.
MOST_REPORTED: Final = 64

_Number = Annotated[float, msgspec.Meta(ge=0, le=1e18)]


class Sample(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """One look at the runner's own cgroup. What could not be read is `None`."""

    at: _Number
    memory_used: _Number | None = None
    memory_limit: _Number | None = None
    oom_kills: _Number | None = None
    memory_pressure: _Number | None = None
    cpu_pressure: _Number | None = None
    io_pressure: _Number | None = None
    cpu_seconds: _Number | None = None
    disk_used: _Number | None = None
    load: _Number | None = None


#: The newest samples are kept apart from the rest of a series, so that a report rewrites two kilobytes
#: and not sixty. As many as this join the rest together.
MOST_RECENT: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class VitalsReport:
    """What a Pod's sidecar sent."""

    pod_name: str
    pod_uid: str
    samples: Sequence[Sample]
    #: When its job began, as the runner reported it.
    job_started_at: datetime | None = None


class VitalsOutcome(Enum):
    """What became of a report."""

    KEPT = auto()
    #: No row knows this Pod, or its runner has ended.
    UNWANTED = auto()
    #: Its samples are kept. Another transaction holds the runner's row, so that its job began is not
    #: noted yet.
    NOT_MARKED = auto()


def extend(series: Sequence[Sample], samples: Sequence[Sample]) -> list[Sample]:
    """The series with newer samples; those that are not newer are not taken twice."""
    last = series[-1].at if series else -1.0
    fresh = sorted((each for each in samples if each.at > last), key=lambda each: each.at)
    longer = [*series, *fresh]
    while len(longer) > MOST_SAMPLES:
        half = len(longer) // 2
        longer = longer[:half:2] + longer[half:]
    return longer
