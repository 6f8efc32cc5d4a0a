"""What an examination found."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class CheckResult(StrEnum):
    OK = "ok"
    #: It works now, but will not always.
    WARNING = "warning"
    FAILED = "failed"
    #: There was nothing to examine.
    SKIPPED = "skipped"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    about: str
    health: CheckResult
    what: str
    #: What to do about it.
    remedy: str | None = None


def ok(about: str, what: str) -> Finding:
    return Finding(about=about, health=CheckResult.OK, what=what)


def warning(about: str, what: str, remedy: str) -> Finding:
    return Finding(about=about, health=CheckResult.WARNING, what=what, remedy=remedy)


def failure(about: str, what: str, remedy: str) -> Finding:
    return Finding(about=about, health=CheckResult.FAILED, what=what, remedy=remedy)


def skipped(about: str, what: str) -> Finding:
    return Finding(about=about, health=CheckResult.SKIPPED, what=what)
