"""Durations and counts that are settings: a default, the reason for it, and how it is printed."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Final

MINUTE: Final = 60.0
HOUR: Final = 60 * MINUTE


@dataclass(frozen=True, slots=True)
class Default:
    """The default of one setting of `[recovery]`. It stands in the file of the state it is for."""

    value: float
    reason: str
    #: "s", or nothing for a number of times.
    unit: str


def seconds(value: float, reason: str) -> Default:
    return Default(value, reason, "s")


def times(value: int, reason: str) -> Default:
    return Default(value, reason, "")


def setting(default: Default) -> Any:
    """A field of `Thresholds`."""
    return field(default=default.value, metadata={"reason": default.reason, "unit": default.unit})


def in_words(name: str, thresholds: Any) -> str:
    """The value in force of the threshold `name`, with its unit."""
    value: float = getattr(thresholds, name)
    units = {each.name: each.metadata["unit"] for each in fields(thresholds)}
    return duration(value) if units[name] else f"{value:g}"


def duration(seconds: float) -> str:
    if seconds >= HOUR and seconds % HOUR == 0:
        return f"{seconds / HOUR:g} h"
    # A minute is better read as 60 s beside its neighbours of 30 and 45.
    if seconds > MINUTE and seconds % MINUTE == 0:
        return f"{seconds / MINUTE:g} min"
    return f"{seconds:g} s"
