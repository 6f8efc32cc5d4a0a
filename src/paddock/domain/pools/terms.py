"""How many runners a pool has, how they are started and how they are renewed, as its description says.

Read from the description in the pool's row. Unknown fields there are ignored: a replica one version
ahead may have written the row, and the pool must not stop for that. Files are read strictly
(`paddock.pools.spec`).
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final, Literal

import msgspec

#: A pool's size is remembered for as long as the longest window, so there is a longest one.
LONGEST_WINDOW: Final = timedelta(hours=1)

#: Of one pool. More than any fleet can start in a day, so a greater number is a typing error.
MOST: Final = 100_000

_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600}


def duration(text: str | int) -> timedelta:
    """`90s`, `5m`, `1h` or a number of seconds."""
    match = re.fullmatch(r"\s*([0-9]{1,9})\s*([smh]?)\s*", str(text))
    if match is None:
        raise ValueError(f"{str(text)!r} is no duration: write 90s, 5m or 1h")
    return timedelta(seconds=int(match[1]) * _UNITS[match[2]])


def shown(length: timedelta) -> str:
    """The inverse of `duration`: as it is written in a pool file."""
    seconds = int(length.total_seconds())
    for unit, size in (("h", 3600), ("m", 60)):
        if seconds and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


class Provisioning(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    #: How many Pods of the pool may start at once: a machine that starts a hundred Pods answers no
    #: requests (I49).
    max_starting: int = 8
    #: How long a Pod may take from its placement on a host to its poller's first request, not counting
    #: the pull of images. A start takes seconds; one that takes this long waits for something that does
    #: not come.
    start_timeout: str | int = "5m"
    #: How long a Pod may be without a host. Absent: 5 minutes where hosts are fixed (a place that is
    #: about to come free does so in less), 20 where new ones are made (a cloud needs up to ten for
    #: one).
    scheduling_timeout: str | int | None = None


class Rollout(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    #: How many of the runners that should wait for work may be missing while stale ones are
    #: replaced: a number, or a percentage, rounded up.
    max_unavailable: int | str = "25%"


class Terms(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    #: Exactly so many runners, at work or waiting. Absent: as many as the work asks for.
    size: int | None = None
    #: How many runners wait for work, ready, beyond those that queued jobs will take.
    min_idle: int = 0
    #: How many runners there may be at once. Absent: no maximum; 0 means none (I54).
    max_runners: int | None = None
    #: The pool shrinks only to the greatest size wanted within this time (I53). As long as the pause
    #: between two pushes of a developer at work.
    stabilisation_window: str | int = "5m"
    #: `fixed`: pools share the hosts there are. `elastic`: Pods may wait for hosts to be made.
    capacity: Literal["fixed", "elastic"] = "fixed"
    provisioning: Provisioning = Provisioning()
    rollout: Rollout = Rollout()

    @staticmethod
    def of(spec: str) -> Terms:
        """Raises ValueError with a sentence for a description that cannot be used."""
        try:
            terms = msgspec.json.decode(spec, type=Terms)
        except msgspec.MsgspecError as error:
            raise ValueError(f"its description is no use: {error}") from error
        if problem := terms.pace_problem():
            raise ValueError(f"its description is no use: {problem}")
        return terms

    @property
    def maximum(self) -> int | None:
        return self.max_runners if self.size is None else self.size

    @property
    def window(self) -> timedelta:
        return duration(self.stabilisation_window)

    @property
    def start_timeout(self) -> timedelta:
        return duration(self.provisioning.start_timeout)

    @property
    def scheduling_timeout(self) -> timedelta:
        given = self.provisioning.scheduling_timeout
        if given is not None:
            return duration(given)
        return timedelta(minutes=5 if self.capacity == "fixed" else 20)

    def may_be_missing(self, waiting: int) -> int:
        """How many of `waiting` runners may be missing while stale ones are replaced. At least 1: with
        0, none could ever be replaced."""
        given = self.rollout.max_unavailable
        share = _share(given) if isinstance(given, str) else None
        return max(1, -(-waiting * share // 100) if share is not None else int(given))

    def problem(self) -> str | None:
        """What is wrong with these terms, for their author; `None` if nothing is."""
        return next(filter(None, (self._size_problem(), self.pace_problem())), None)

    def _size_problem(self) -> str | None:
        if self.size is not None:
            if self.size < 0:
                return "size is at least 0; leave it out for a size that follows the work"
            if self.min_idle or self.max_runners is not None:
                return "size is exact: leave out minIdle and maxRunners, or leave out size"
        if self.max_runners is not None and self.max_runners < 0:
            return "maxRunners is at least 0; leave it out for no maximum"
        if self.min_idle < 0:
            return "minIdle is at least 0"
        if max(self.min_idle, self.maximum or 0) > MOST:
            return f"no pool has more than {MOST} runners"
        return None

    def pace_problem(self) -> str | None:
        lengths = {
            "stabilisationWindow": self.stabilisation_window,
            "startTimeout": self.provisioning.start_timeout,
            "schedulingTimeout": self.provisioning.scheduling_timeout,
        }
        for name, given in lengths.items():
            try:
                length = None if given is None else duration(given)
            except ValueError as error:
                return f"{name}: {error}"
            if name != "stabilisationWindow" and length == timedelta(0):
                return f"{name} is more than 0: no Pod starts in no time"
        if self.window > LONGEST_WINDOW:
            return f"stabilisationWindow is at most {shown(LONGEST_WINDOW)}"
        if self.provisioning.max_starting < 1:
            return "maxStarting is at least 1; for a pool without runners write maxRunners: 0"
        return self._rollout_problem()

    def _rollout_problem(self) -> str | None:
        given = self.rollout.max_unavailable
        number = _share(given) if isinstance(given, str) else given
        if number is None:
            return f"maxUnavailable is a number or a percentage up to 100%, not {given!r}"
        if number < 1:
            return (
                "maxUnavailable is at least 1: stale runners leave before new ones take their place"
            )
        return None


def _share(text: str) -> int | None:
    match = re.fullmatch(r"([0-9]{1,3})%", text)
    return int(match[1]) if match and int(match[1]) <= 100 else None
