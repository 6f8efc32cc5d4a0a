"""What an examination found."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Health(StrEnum):
    WELL = "ok"
    #: It works now, but will not always.
    POOR = "warning"
    ILL = "failed"
    #: There was nothing to examine.
    ABSENT = "skipped"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    about: str
    health: Health
    what: str
    #: What to do about it.
    remedy: str | None = None


def well(about: str, what: str) -> Finding:
    return Finding(about=about, health=Health.WELL, what=what)


def poor(about: str, what: str, remedy: str) -> Finding:
    return Finding(about=about, health=Health.POOR, what=what, remedy=remedy)


def ill(about: str, what: str, remedy: str) -> Finding:
    return Finding(about=about, health=Health.ILL, what=what, remedy=remedy)


def absent(about: str, what: str) -> Finding:
    return Finding(about=about, health=Health.ABSENT, what=what)
