"""Which webhook deliveries to ask GitHub for again, and from where on to look next time.

GitHub sends a webhook once. A failed delivery stands in its list for three days, and is lost if paddock
does not ask for it again. Two mistakes are easily made. Looking only at failed attempts means asking
for ever for what has long arrived (I7). Looking back for a fixed time means losing what a longer outage
left behind (I8). So all attempts of a GUID are judged together, and a cursor passes only what is
settled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from paddock.domain.github.objects import DeliveryRecord

#: Other events are answered and counted, and mean nothing here.
APPLIED_EVENTS: Final = frozenset({"workflow_job", "installation", "installation_repositories"})

#: GitHub lists a delivery, and can repeat it, for this long (Enterprise Server: a week).
WINDOW: Final = timedelta(days=3)

#: An attempt is listed once it has ended, up to ten seconds after it began, and not quite in that
#: order. The cursor keeps this distance from the newest, and reading goes this far below the cursor.
OVERLAP: Final = timedelta(minutes=2)

#: Long enough for an attempt that is under way to end (GitHub waits ten seconds) and to be listed.
FIRST_GAP: Final = timedelta(minutes=1)
#: The gap doubles with every attempt: a receiver that has been away for an hour is found within an
#: hour of its return. With this limit a GUID is asked for some twenty times in the window, then never.
LONGEST_GAP: Final = timedelta(hours=6)


class Fate(StrEnum):
    SETTLED = "settled"  # it arrived, or is nothing that would be applied
    GIVEN_UP = "given up"  # GitHub's window has closed; its job is found by comparison, or ended
    OUT_OF_SIGHT = "out of sight"  # its first attempt lies beyond what was read
    WAITING = "waiting"
    DUE = "due"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What paddock asked for already. GitHub may list that attempt later, or never."""

    times: int
    last: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RedeliveryPlan:
    #: The newest attempt of each GUID that is due, oldest GUID first.
    ask: tuple[DeliveryRecord, ...]
    cursor: datetime
    given_up: frozenset[str]
    #: GUIDs whose attempts a later round has to know.
    keep: frozenset[str]


def look_back(cursor: datetime) -> datetime:
    """How far the list has to be read."""
    return cursor - OVERLAP


def gap(attempts: int) -> timedelta:
    """How long after the last of so many attempts the next one may be asked for."""
    return min(FIRST_GAP * (1 << min(attempts - 1, 16)), LONGEST_GAP)


def plan(
    attempts: Iterable[DeliveryRecord],
    *,
    arrived: AbstractSet[str],
    asked: Mapping[str, Asked],
    cursor: datetime,
    seen_since: datetime,
    now: datetime,
    most: int,
) -> RedeliveryPlan:
    """`attempts` holds all that GitHub lists since `seen_since`, except those of GUIDs that were
    settled before. If `seen_since` is later than the cursor, nothing is concluded about attempts before
    it, and the cursor stays."""
    groups = _by_guid(attempts)
    fates = {
        guid: _fate(
            group, arrived=guid in arrived, asked=asked.get(guid), seen_since=seen_since, now=now
        )
        for guid, group in groups.items()
    }
    open_guids = [guid for guid, fate in fates.items() if fate in (Fate.WAITING, Fate.DUE)]
    due = sorted(
        (guid for guid in open_guids if fates[guid] is Fate.DUE),
        key=lambda guid: (groups[guid][0].delivered_at, guid),
    )
    complete = seen_since <= cursor
    keep = set(open_guids)
    if not complete:
        # A success that only GitHub knows of must still be known when the earlier failure is read.
        keep |= {guid for guid, group in groups.items() if guid not in arrived and _applies(group)}
    return RedeliveryPlan(
        ask=tuple(groups[guid][-1] for guid in due[:most]),
        cursor=_moved(cursor, groups, open_guids) if complete else cursor,
        given_up=frozenset(guid for guid, fate in fates.items() if fate is Fate.GIVEN_UP),
        keep=frozenset(keep),
    )


def _by_guid(attempts: Iterable[DeliveryRecord]) -> dict[str, list[DeliveryRecord]]:
    """Every GUID's attempts, oldest first."""
    groups: dict[str, list[DeliveryRecord]] = {}
    for attempt in sorted(attempts, key=lambda each: (each.delivered_at, each.id)):
        groups.setdefault(attempt.guid, []).append(attempt)
    return groups


def _applies(group: list[DeliveryRecord]) -> bool:
    return group[0].event in APPLIED_EVENTS


def _fate(
    group: list[DeliveryRecord],
    *,
    arrived: bool,
    asked: Asked | None,
    seen_since: datetime,
    now: datetime,
) -> Fate:
    if arrived or not _applies(group) or any(attempt.succeeded for attempt in group):
        return Fate.SETTLED
    first, newest = group[0], group[-1]
    # Repetitions whose original is not in sight belong to something older: it was settled when the
    # cursor passed it, or left GitHub's list, or has still to be read.
    if first.redelivery or first.delivered_at < seen_since:
        return Fate.OUT_OF_SIGHT
    # Counted from the original. Every repetition opens a window of its own, and asking within those
    # would have no end.
    if now - first.delivered_at > WINDOW:
        return Fate.GIVEN_UP
    count, last = len(group), newest.delivered_at
    if asked is not None:
        count, last = max(count, asked.times + 1), max(last, asked.last)
    return Fate.DUE if now - last >= gap(count) else Fate.WAITING


def _moved(
    cursor: datetime, groups: Mapping[str, list[DeliveryRecord]], open_guids: Iterable[str]
) -> datetime:
    newest = max((group[-1].delivered_at for group in groups.values()), default=cursor)
    held = (groups[guid][0].delivered_at for guid in open_guids)
    return max(cursor, min([newest - OVERLAP, *held]))
