"""Decides what to release, from each component's commits and pins. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tools.release.components import Component, Pin, pins
from tools.release.history import Commit
from tools.release.versions import FIRST, Level, Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The state of a component at HEAD."""

    last: Version | None
    #: Since the last release, and only commits that touch one of its paths.
    commits: Sequence[Commit]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """A pin that has to change."""

    pin: Pin
    before: str | None
    after: Version
    level: Level


@dataclass(slots=True, kw_only=True)
class Planned:
    component: Component
    last: Version | None
    commits: Sequence[Commit]
    pinned: list[Pinned] = field(default_factory=list)

    @property
    def level(self) -> Level | None:
        levels = [*(commit.level for commit in self.commits), *(each.level for each in self.pinned)]
        return max(levels, default=None)

    @property
    def version(self) -> Version | None:
        """`None` if it was never released and is not planned."""
        if self.level is None:
            return self.last
        return self.last.raised(self.level) if self.last else FIRST


def plan(
    components: Sequence[Component],
    known: Mapping[str, Known],
    at: Mapping[tuple[str, str], str | None],
) -> list[Planned]:
    """`at`: the value of each pin's file and key at HEAD. An outdated pin is corrected also when
    nothing is released for it: a released image that no component pins reaches no user."""
    planned = {
        each.name: Planned(
            component=each, last=known[each.name].last, commits=known[each.name].commits
        )
        for each in components
    }
    all_pins = pins(list(components))
    # A component that pins may itself be pinned; no chain is longer than the number of components.
    for _ in components:
        for one in planned.values():
            one.pinned = [
                change
                for pin in all_pins
                if pin.within is one.component
                and (
                    change := _change(pin, planned[pin.of.name], at[pin.place.file, pin.place.key])
                )
            ]
    return list(planned.values())


def _change(pin: Pin, of: Planned, before: str | None) -> Pinned | None:
    if of.version is None or (of.level is None and before == str(of.version)):
        return None
    return Pinned(pin=pin, before=before, after=of.version, level=of.level or Level.PATCH)
