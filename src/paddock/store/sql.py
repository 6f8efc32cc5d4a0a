"""SQL lives in `queries/*.sql`, one file per noun, each statement under a name with its purpose.

A block starts with `-- name: NAME` and ends before the next one. `NAME[]` is a statement that returns
rows, always in a total order, so that a run can be repeated exactly (a test checks this). Parameters
are named (`:pool`) and become PostgreSQL's `$1`, `$2`, … when the file is loaded, so
`pg_stat_statements` shows one text per statement.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_HEADER = re.compile(r"^-- name: (\w+)(?:\[\])?\n", re.MULTILINE)
#: A comment, which stays as it is, or a parameter. A cast (`::text`) is neither.
_PARAMETER = re.compile(r"--[^\n]*|(?<![:\w]):([a-z]\w*)")


class Query:
    """A statement. `query(pool=1)` is what a connection gets: `connection.fetch(*query(pool=1))`."""

    __slots__ = ("names", "source", "text")

    def __init__(self, source: str) -> None:
        found = (match[1] for match in _PARAMETER.finditer(source))
        self.source = source
        self.names = tuple(dict.fromkeys(name for name in found if name))
        places = {name: f"${place}" for place, name in enumerate(self.names, start=1)}
        self.text = _PARAMETER.sub(lambda match: places[match[1]] if match[1] else match[0], source)

    def __call__(self, **values: object) -> tuple[Any, ...]:
        try:
            bound = (self.text, *[values[name] for name in self.names])
        except KeyError as missing:
            raise TypeError(f"the statement has a parameter {missing.args[0]!r}") from None
        if len(bound) <= len(values):
            unknown = ", ".join(sorted(values.keys() - set(self.names)))
            raise TypeError(f"the statement has no parameter {unknown}")
        return bound


@cache
def queries(noun: str) -> dict[str, str]:
    text = resources.files("paddock.store").joinpath("queries", f"{noun}.sql").read_text("utf-8")
    _, *parts = _HEADER.split(text)
    return dict(zip(parts[::2], parts[1::2], strict=True))


@cache
def named(noun: str) -> dict[str, Query]:
    return {name: Query(text) for name, text in queries(noun).items()}


def converted(kind: type[T], row: Mapping[str, Any], **more: Any) -> T:
    """The row as a value of that type. Its columns have the names of the fields; `more` has the fields
    that are no columns. Columns without a field are left out, and types are checked."""
    return msgspec.convert({**row, **more}, kind)
