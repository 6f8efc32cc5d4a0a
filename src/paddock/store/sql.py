"""SQL lives in `queries/*.sql`, one file per noun, each statement under a name with its purpose.

A block starts with `-- name: NAME` and ends before the next one. `NAME[]` is a statement that returns
rows, always in a total order, so that a run can be repeated exactly (a test checks this).
Nothing is templated: `pg_stat_statements` shows the statement as it is in the file.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_HEADER = re.compile(r"^-- name: (\w+)(?:\[\])?\n", re.MULTILINE)


@cache
def queries(noun: str) -> dict[str, str]:
    text = resources.files("paddock.store").joinpath("queries", f"{noun}.sql").read_text("utf-8")
    _, *parts = _HEADER.split(text)
    return dict(zip(parts[::2], parts[1::2], strict=True))
