"""Versions of the runner program: which one a Pod has, and until when GitHub accepts it.

GitHub stops giving jobs to a version of actions/runner at a date that it announces. A runner of a
refused version costs a mint and a Pod, and its job goes on waiting. So the date of each version is read
from GitHub, reported weeks ahead, and nothing is minted for Pods whose version is refused.

A version comes from a Pod, whose image is not paddock's: it is text to be checked. An unknown version
is no evidence against its Pod.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NewType

from paddock.domain.github.objects import InstallationKey, Scope
from paddock.domain.ids import AccountId, KeyId

RunnerVersion = NewType("RunnerVersion", str)

#: No version of actions/runner is longer than nine characters; the schema has the same bound.
LONGEST: Final = 32
_VERSION: Final = re.compile(r"[0-9]{1,6}\.[0-9]{1,6}\.[0-9]{1,6}")

#: How long before its end a version is reported. A release is accepted for at least 30 days after the
#: next one, so three weeks leave nine days without a report, and two week-ends to renew an image.
NOTICE: Final = timedelta(weeks=3)
#: GitHub publishes a new date when it releases a version, and has moved dates before.
ASK_AGAIN: Final = timedelta(days=1)
#: GitHub could not be asked.
ASK_AFTER_FAILURE: Final = timedelta(hours=1)


#: What actions/runner says when GitHub refuses its version. At a poll (actions/runner#4305) it exits
#: with 7; without ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE with 1. At its session it exits
#: with 1, and does not read the reason.
_REFUSED: Final = (
    "is deprecated and cannot receive messages",
    "Failed to create session. Error: Forbidden",
)


def says_it_was_refused(log: str) -> bool:
    return any(words in log for words in _REFUSED)


def runner_version(text: str) -> RunnerVersion | None:
    """The version that a Pod reports; `None` for any other text."""
    text = text.strip()
    return RunnerVersion(text) if _VERSION.fullmatch(text) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionSchedule:
    """GitHub's dates for a version, in one scope. `None`: no date is set.

    The registration of a JIT runner is a request of paddock's, which names no version. So only
    `runtime_ends_at`, from which on the version gets no jobs, withholds mints; both dates are reported.
    """

    version: RunnerVersion
    registration_ends_at: datetime | None
    runtime_ends_at: datetime | None

    @property
    def first_end(self) -> datetime | None:
        ends = [end for end in (self.registration_ends_at, self.runtime_ends_at) if end is not None]
        return min(ends, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionQuestion:
    """A version of which GitHub is to be asked: once for each account, and daily."""

    account: AccountId
    version: RunnerVersion
    who: InstallationKey
    scope: Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedRunner:
    """A runner that got a job: GitHub accepted its version after `claimed_at`."""

    account: AccountId
    version: RunnerVersion
    claimed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRunner:
    """A runner that got no job because of its version; `None`: not known which."""

    key: KeyId
    version: RunnerVersion | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalTerms:
    """A version of which GitHub refused a runner is not minted for during `seconds`, after each further
    refusal twice as long, up to `ceiling`."""

    seconds: float
    ceiling: float


#: A waiting Pod of a refused version is exchanged at this age if the pool's newest Pods have that
#: version too: their image is what it was, unless its tag was moved.
EXCHANGED_AFTER: Final = timedelta(hours=1)

#: GitHub has refused versions by mistake for some hours (actions/runner#4613, #3381), so they are tried
#: again. Each try costs a mint and a Pod per job that waits: at most four tries on the first day.
REFUSED: Final = RefusalTerms(seconds=3600, ceiling=12 * 3600)
