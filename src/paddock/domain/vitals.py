"""What a runner measured of itself while it lived.

It comes from where untrusted code runs, so it is evidence for people and never for decisions. One
bounded series per runner: when it is full, every second sample of the older half makes room, so that
a long job keeps its whole story and its last minutes in full.
"""

from __future__ import annotations

from collections.abc import Sequence
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


def extend(series: Sequence[Sample], samples: Sequence[Sample]) -> list[Sample]:
    """The series with newer samples; those that are not newer are not taken twice."""
    last = series[-1].at if series else -1.0
    fresh = sorted((each for each in samples if each.at > last), key=lambda each: each.at)
    longer = [*series, *fresh]
    while len(longer) > MOST_SAMPLES:
        half = len(longer) // 2
        longer = longer[:half:2] + longer[half:]
    return longer
