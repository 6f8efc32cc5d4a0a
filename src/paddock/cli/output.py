"""Results go to standard output; progress and errors to standard error, so that the first can be
piped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

# What is printed contains paths and messages of others, which must not be read as markup.
console = Console(markup=False, highlight=False, soft_wrap=True)
_err = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)


def show(text: str) -> None:
    console.print(text)


def say(text: str) -> None:
    _err.print(Text(text, style="dim"))


def complain(sentence: str) -> None:
    _err.print(Text.assemble(("error:", "bold red"), " ", sentence))


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """Columns for people; where there are no rows, the sentence that says what to do about it."""
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        drawn.add_column(heading, overflow="fold")
    for row in rows:
        drawn.add_row(*(Text("–" if cell is None else str(cell)) for cell in row))
    if drawn.row_count:
        console.print(drawn)
    else:
        show(empty)


def show_json(value: object) -> None:
    show(msgspec.json.encode(value).decode())
