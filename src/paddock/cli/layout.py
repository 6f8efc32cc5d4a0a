"""Lays out rows and sentences as lines of text: for a pipe, a wide terminal and a narrow one.

A name, an id, a label or a number that is broken or shortened can be neither copied nor searched for,
so it is always printed whole. Only prose is fitted: tables shorten it, all other output wraps it at
spaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len, set_cell_size

from paddock.domain.plain_text import escaped

#: Text, or text with a rich style.
Part = str | tuple[str, str]
Line = tuple[Part, ...]

_GAP: Final = 2
_EMPTY: Final = "–"
_HEADING: Final = "bold"
_FIELD: Final = "dim"
#: About four words: a shorter column of prose would say too little.
_LEAST_PROSE: Final = 24
_INDENT: Final = "  "
_BETWEEN_FIELDS: Final = "   "


@dataclass(frozen=True, slots=True)
class Column:
    heading: str
    #: The column holds sentences. Other columns hold names and numbers, and are never shortened.
    prose: bool = False
    #: The sentences are the table's purpose: wrapped, not shortened.
    whole: bool = False


def prose(heading: str, *, whole: bool = False) -> Column:
    return Column(heading, prose=True, whole=whole)


def lay_out(
    headings: Sequence[str | Column], rows: Iterable[Sequence[object]], *, width: int | None
) -> list[Line]:
    """One line per row in aligned columns, under a heading. `width` is the terminal's; `None` is a
    pipe, whose lines may have any length.

    If the rows are too wide even with short prose, each becomes a record of several lines: the first
    column and the narrow ones stay aligned, and the others follow below with their headings.
    """
    columns = [each if isinstance(each, Column) else Column(each) for each in headings]
    cells = [[_EMPTY if cell is None else escaped(str(cell)) for cell in row] for row in rows]
    if width is None or _total(_sizes(columns, cells)) <= width:
        return [*_grid(columns, cells)]
    used = [at for at in range(len(columns)) if at == 0 or any(row[at] != _EMPTY for row in cells)]
    columns, cells = [columns[at] for at in used], [[row[at] for at in used] for row in cells]
    sizes = _with_short_prose(columns, _sizes(columns, cells), width)
    if _total(sizes) <= width:
        return [*_grid(columns, [[*map(_shortened, row, sizes)] for row in cells])]
    return [*_records(columns, cells, width)]


def _sizes(columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> list[int]:
    return [
        max(cell_len(column.heading), *(cell_len(row[at]) for row in cells), 0)
        for at, column in enumerate(columns)
    ]


def _total(sizes: Sequence[int]) -> int:
    return sum(sizes) + _GAP * (len(sizes) - 1)


def _with_short_prose(columns: Sequence[Column], sizes: Sequence[int], width: int) -> list[int]:
    """The sizes; the prose columns share the room that names and numbers leave."""
    short = [at for at, column in enumerate(columns) if column.prose and not column.whole]
    room = width - _total([0 if at in short else size for at, size in enumerate(sizes)])
    share = max(_LEAST_PROSE, room // len(short)) if short else 0
    return [min(size, share) if at in short else size for at, size in enumerate(sizes)]


def _shortened(cell: str, size: int) -> str:
    if cell_len(cell) <= size:
        return cell
    return set_cell_size(cell, size - 1).rstrip() + "…"


def _grid(columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> Iterator[Line]:
    sizes = _sizes(columns, cells)
    yield ((_row([column.heading for column in columns], sizes), _HEADING),)
    for row in cells:
        yield (_row(row, sizes),)


def _row(cells: Sequence[str], sizes: Sequence[int]) -> str:
    padded = (cell + " " * (size - cell_len(cell)) for cell, size in zip(cells, sizes, strict=True))
    return (" " * _GAP).join(padded).rstrip()


def _records(
    columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int
) -> Iterator[Line]:
    first = _first_line(columns, _sizes(columns, cells), width)
    grid = _grid([columns[at] for at in first], [[row[at] for at in first] for row in cells])
    yield next(grid)
    for line, row in zip(grid, cells, strict=True):
        yield line
        below = [(columns[at], row[at]) for at in range(len(columns)) if at not in first]
        yield from _fields([field for field in below if field[1] != _EMPTY], width)


def _first_line(columns: Sequence[Column], sizes: Sequence[int], width: int) -> list[int]:
    """The first column, which names the record, and as many others as fit."""
    chosen = [0]
    for at in sorted(range(1, len(columns)), key=lambda at: sizes[at]):
        if not columns[at].prose and _total([sizes[each] for each in [*chosen, at]]) <= width:
            chosen.append(at)
    return sorted(chosen)


def _fields(fields: Sequence[tuple[Column, str]], width: int) -> Iterator[Line]:
    """Names side by side as far as they fit; each sentence on a line of its own."""
    room = width - len(_INDENT)
    line: list[Part] = []
    left = room
    for column, cell in sorted(fields, key=lambda field: field[0].prose):
        label = f"{column.heading.lower()}: "
        if column.prose and not column.whole:
            cell = _shortened(cell, room - cell_len(label))
        size = cell_len(label) + cell_len(cell)
        if line and (column.prose or len(_BETWEEN_FIELDS) + size > left):
            yield from wrap((_INDENT, *line), width, hanging=2 * len(_INDENT))
            line, left = [], room
        if line:
            line.append(_BETWEEN_FIELDS)
            left -= len(_BETWEEN_FIELDS)
        line += ((label, _FIELD), cell)
        left -= size
    if line:
        yield from wrap((_INDENT, *line), width, hanging=2 * len(_INDENT))


def wrap(line: Line, width: int, *, hanging: int) -> Iterator[Line]:
    """Break the line only at spaces. A word that is wider than the terminal is not broken."""
    parts: list[tuple[str, str]] = []
    used, has_words = 0, False
    for token in _tokens(line):
        size = sum(cell_len(text) for text, _ in token)
        is_word = not token[0][0].startswith(" ")
        if is_word and has_words and used + size > width >= hanging + size:
            yield _without_last_spaces(parts)
            parts, used, has_words = [(" " * hanging, "")], hanging, False
        if not is_word and not has_words and used:
            continue  # drop the space at which the line was broken
        parts += token
        used += size
        has_words |= is_word
    yield _without_last_spaces(parts)


def _tokens(line: Line) -> Iterator[list[tuple[str, str]]]:
    """Words and the spaces between them. A word may have several styles."""
    word: list[tuple[str, str]] = []
    for part in line:
        text, style = (part, "") if isinstance(part, str) else part
        for token in re.findall(r" +|[^ ]+", text):
            if token.startswith(" "):
                if word:
                    yield word
                word = []
                yield [(token, style)]
            else:
                word.append((token, style))
    if word:
        yield word


def _without_last_spaces(parts: Sequence[tuple[str, str]]) -> Line:
    merged: list[tuple[str, str]] = []
    for text, style in parts:
        if merged and merged[-1][1] == style:
            merged[-1] = (merged[-1][0] + text, style)
        else:
            merged.append((text, style))
    while merged and not (text := merged[-1][0].rstrip()):
        merged.pop()
    if merged:
        merged[-1] = (text, merged[-1][1])
    return tuple(merged)


def beside(left: Sequence[Line], right: Sequence[Line], *, width: int | None) -> list[Line]:
    """Two tables side by side if the terminal has room for both, otherwise one below the other."""
    gap = 6
    size = max(map(_size, left), default=0)
    if width is None or size + gap + max(map(_size, right), default=0) > width:
        return [*left, (), *right]
    lines: list[Line] = []
    for at in range(max(len(left), len(right))):
        ours = left[at] if at < len(left) else ()
        theirs = right[at] if at < len(right) else ()
        space = (" " * (size + gap - _size(ours)),) if theirs else ()
        lines.append((*ours, *space, *theirs))
    return lines


def _size(line: Line) -> int:
    return sum(cell_len(part if isinstance(part, str) else part[0]) for part in line)
