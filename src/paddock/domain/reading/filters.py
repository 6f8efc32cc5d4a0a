"""The pages of lists, and what the lists can be filtered by.

A filter's fields are also the query parameters of the HTTP API, so they are checked here.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final, Generic, TypeVar
from uuid import UUID

import msgspec

from paddock.domain.github.deliveries import DeliveryState
from paddock.domain.reading.rows import ReadModel
from paddock.domain.recovery.records import ActionOutcome
from paddock.domain.runners.endings import Ending
from paddock.domain.states import JobState, RunnerState

#: A page people read; and the most a program may ask for at once.
PAGE: Final = 50
LONGEST_PAGE: Final = 200

T = TypeVar("T")


class Page(ReadModel, Generic[T], frozen=True, kw_only=True):
    """`next` is the cursor of the page after this one; absent on the last."""

    items: list[T]
    next: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Paging:
    """At most `limit` items, from `cursor` on (the `next` of the page before)."""

    limit: int = PAGE
    cursor: str | None = None


class BadCursor(ValueError):
    """Not a cursor that a page of this list gave out."""


#: What a client may send: PostgreSQL has no text with a NUL in it, and names are shorter.
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=256, pattern="^[^\\x00]*$")]
#: GitHub's numbers are those of a PostgreSQL bigint.
Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Moment = Annotated[datetime, msgspec.Meta(tz=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    status: JobState | None = None
    account: Text | None = None
    repository: Text | None = None
    pool: Text | None = None
    conclusion: Text | None = None
    host: Text | None = None
    #: Only those that no pool takes.
    refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerFilter:
    state: RunnerState | None = None
    pool: Text | None = None
    account: Text | None = None
    node: Text | None = None
    #: Only those that have not ended, or only those that have.
    live: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictFilter:
    ending: Ending | None = None
    abnormal: bool | None = None
    pool: Text | None = None
    node: Text | None = None
    image: Text | None = None
    since: Moment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    runner: UUID | None = None
    job: Number | None = None
    account: Text | None = None
    pool: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionFilter:
    rule: Text | None = None
    #: Without actions that every runner gets, or that follow from an earlier action.
    noteworthy: bool = False
    outcome: ActionOutcome | None = None
    runner: UUID | None = None
    job: Number | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFilter:
    state: DeliveryState | None = None
    event: Text | None = None
