"""Events of a Pod as text, one line each, in the order in which they happened."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from paddock.fleet.kube.objects import EventObject

_NEVER: Final = datetime.fromtimestamp(0, UTC)
#: A message may quote a whole configuration.
_LONGEST: Final = 300
#: The last events are kept: they describe the end.
_MOST: Final = 20


def event_lines(events: Iterable[EventObject]) -> list[str]:
    ordered = sorted(events, key=lambda event: (_last(event), event.reason, event.message))
    return [_line(event) for event in ordered[-_MOST:]]


def _last(event: EventObject) -> datetime:
    series = event.series.last_observed_time if event.series else None
    return series or event.last_timestamp or event.event_time or event.first_timestamp or _NEVER


def _line(event: EventObject) -> str:
    count = (event.series.count if event.series else event.count) or 1
    times = f", {count} times" if count > 1 else ""
    words = " ".join(event.message.split())
    words = words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"
    return f"{_last(event).isoformat(timespec='seconds')} {event.reason}{times}: {words}"
