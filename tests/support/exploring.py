"""Every value that a function of evidence can meet, without writing down the whole product.

The function gets a value whose fields are undecided. When it reads a field, it is run again once for
each value that the field can have. A field that it never reads cannot matter, so each result stands
for all combinations of the others. So the whole product is covered, pruned by the function's own
reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

Values = Mapping[str, Any]
T = TypeVar("T")


class _Undecided(Exception):
    def __init__(self, field: str) -> None:
        self.field = field


def undecided(
    kind: type[T], *, nested: Mapping[str, type[Any]] | None = None
) -> Callable[[Values], T]:
    """Makes values of this kind with only the given fields decided. The fields of a nested value have
    its name before theirs, like `pod.age`."""
    inner = {name: _maker(each, f"{name}.", {}) for name, each in (nested or {}).items()}
    make: Callable[[Values], T] = _maker(kind, "", inner)
    return make


def _maker(kind: type[Any], prefix: str, nested: Mapping[str, Callable[[Values], Any]]) -> Any:
    names = {field.name: prefix + field.name for field in fields(kind)}
    read = object.__getattribute__

    class Undecided(kind):  # type: ignore[misc]
        __slots__ = ("decided",)

        def __init__(self, decided: Values) -> None:
            object.__setattr__(self, "decided", decided)

        def __getattribute__(self, name: str) -> Any:
            field = names.get(name)
            if field is None:
                return read(self, name)
            decided = read(self, "decided")
            if field in decided:
                return decided[field]
            if name in nested:
                return nested[name](decided)
            raise _Undecided(field)

    return Undecided


def explore(
    make: Callable[[Values], T],
    values: Mapping[str, Sequence[Any]],
    function: Callable[[T], Any],
    *,
    given: Values | None = None,
) -> Iterator[tuple[Values, Any]]:
    """Every result of the function, with the fields that led to it."""
    open_ends: list[dict[str, Any]] = [dict(given or {})]
    while open_ends:
        decided = open_ends.pop()
        try:
            end = function(make(decided))
        except _Undecided as missing:
            field = missing.field
            open_ends += [{**decided, field: value} for value in values[field]]
            continue
        yield decided, end
