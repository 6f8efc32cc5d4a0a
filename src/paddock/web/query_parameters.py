"""Decodes a request's query, or refuses it in a sentence that names the valid filters.

A misspelt filter must be refused: the reader would take an unfiltered list for a filtered one.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from paddock.domain.reading.filters import LONGEST_PAGE, PAGE, Number, Paging

T = TypeVar("T")

_PAGING: Final = ("limit", "cursor")
#: Longer than any cursor that paddock makes.
_LONGEST_CURSOR: Final = 100
#: A time outside these limits is replaced by the nearer one: nothing happened before the first, and
#: PostgreSQL stores none after the last.
_FIRST: Final = datetime(2000, 1, 1, tzinfo=UTC)
_LAST: Final = datetime(9999, 1, 1, tzinfo=UTC)


class BadRequest(Exception):
    """The request is invalid; the argument is a sentence that says why."""


def kinds_of(kind: type[Any]) -> dict[str, Any]:
    """The filters of a list and their types, without `None`: it stands for a missing filter, and a
    query cannot contain it."""
    return {
        name: hint if get_origin(hint) not in (UnionType, Union) else _but_none(hint)
        for name, hint in get_type_hints(kind, include_extras=True).items()
    }


def _but_none(union: Any) -> Any:
    [kind] = [each for each in get_args(union) if each is not NoneType]
    return kind


def parse_query(query: Iterable[tuple[str, str]], kind: type[T]) -> tuple[T, Paging]:
    """The filter of this kind, and the requested page."""
    given = _once(query, known=[*kinds_of(kind), *_PAGING])
    paging = Paging(limit=_limit(given.pop("limit", None)), cursor=given.pop("cursor", None))
    if paging.cursor is not None and len(paging.cursor) > _LONGEST_CURSOR:
        raise BadRequest("`cursor` is the `next` of the page before, and this one is not.")
    return filter_of(given, kind), paging


def filter_of(given: dict[str, str], kind: type[T]) -> T:
    kinds = kinds_of(kind)
    return kind(**{name: _read(name, value, kinds[name]) for name, value in given.items()})


def _read(name: str, value: str, kind: Any) -> Any:
    try:
        # Only booleans and numbers are converted from text: `since=1` is not a time.
        read = msgspec.convert(value, kind, strict=kind not in (bool, Number))
    except msgspec.ValidationError as error:
        raise BadRequest(f"`{name}` is not understood: {error}.") from None
    return _within(read) if isinstance(read, datetime) else read


def only(query: Iterable[tuple[str, str]], *known: str) -> dict[str, str]:
    """The query of a page that has only these parameters."""
    return _once(query, known=known)


def job_number(text: str) -> int | None:
    try:
        return msgspec.convert(text, Number, strict=False)
    except msgspec.ValidationError:
        return None


def _once(query: Iterable[tuple[str, str]], known: Iterable[str]) -> dict[str, str]:
    names = list(known)
    given: dict[str, str] = {}
    for name, value in query:
        if name not in names:
            there = ", ".join(f"`{each}`" for each in names) or "none"
            raise BadRequest(f"`{name[:60]}` is no filter of this list; there are: {there}.")
        if name in given:
            raise BadRequest(f"`{name}` is given twice.")
        given[name] = value
    return given


def _limit(text: str | None) -> int:
    if text is None:
        return PAGE
    digits = text.isascii() and text.isdigit() and len(text) <= len(str(LONGEST_PAGE))
    if not digits or not 1 <= int(text) <= LONGEST_PAGE:
        raise BadRequest(f"`limit` is a number from 1 to {LONGEST_PAGE}.")
    return int(text)


def _within(moment: datetime) -> datetime:
    try:
        return min(max(moment.astimezone(UTC), _FIRST), _LAST)
    except OverflowError:
        return _FIRST if moment.year < _FIRST.year else _LAST
