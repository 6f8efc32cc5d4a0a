"""All that the command line writes passes through here, and nothing of it is obeyed by a terminal.

Results go to standard output; progress and errors to standard error, so that the first can be piped.
What is shown contains names, labels and logs that others chose. A field is one line, and its control
characters are escaped (`plain_text`). What rich draws is checked again on its way out, and what is
written without rich (usage errors, warnings, traces) passes a guard: no other way is left.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable, Sequence
from typing import Any, Final, TextIO, cast

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from paddock.domain.plain_text import escaped, escaped_lines

_ERROR: Final = "error:"


class _Terminal(Console):
    def __init__(self, *, stderr: bool = False) -> None:
        # No markup and no emoji codes: `[red]` and `:skull:` are as good a name as any.
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False, soft_wrap=True)

    def render_str(self, text: str, **how: Any) -> Text:
        """Every string that is printed or stands in a table."""
        return super().render_str(escaped(text), **how)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """A `Text` that was not made by `text` below; rich's own sequences are control segments."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield segment._replace(text="\n".join(escaped_lines(segment.text)))


console: Final = _Terminal()
errors: Final = _Terminal(stderr=True)


class _Guarded:
    """A standard stream for all that writes without rich: typer, warnings, traces."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write("\n".join(escaped_lines(text)))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":
            raise AttributeError(name)  # typer would write to it past the guard
        return getattr(self._stream, name)


def guard_streams() -> None:
    """Once, before anything is written. rich and structlog keep the streams themselves, for they escape
    what is not theirs."""
    console.file, errors.file = sys.stdout, sys.stderr
    sys.stdout = cast("TextIO", _Guarded(sys.stdout))
    sys.stderr = cast("TextIO", _Guarded(sys.stderr))


Part = str | tuple[str, str]


def text(*parts: Part, style: str = "") -> Text:
    """One line of text, of parts with or without a style."""
    drawn = Text(style=style)
    for part in parts:
        words, how = (part, "") if isinstance(part, str) else part
        drawn.append(escaped(words), how)
    return drawn


def show(*parts: Part, style: str = "") -> None:
    console.print(text(*parts, style=style))


def show_lines(lines: Iterable[str]) -> None:
    for line in lines:
        show(line)


def say(line: str) -> None:
    errors.print(text(line, style="dim"))


def complain(sentence: str) -> None:
    """Further lines are indented: none looks like a second error."""
    first, *rest = escaped_lines(sentence)
    errors.print(text((_ERROR, "bold red"), " ", first))
    for line in rest:
        errors.print(text(" " * len(_ERROR), " ", line))


def show_trace(error: BaseException) -> None:
    for line in escaped_lines("".join(traceback.format_exception(error)).rstrip()):
        errors.print(text(line))


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """Columns for people; where there are no rows, the sentence that says what to do about it."""
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        drawn.add_column(heading, overflow="fold")
    for row in rows:
        drawn.add_row(*("–" if cell is None else str(cell) for cell in row))
    if drawn.row_count:
        console.print(drawn)
    else:
        show(empty)


def show_json(value: object) -> None:
    """What is escaped in it is escaped as JSON wants it, so nothing is lost."""
    show(msgspec.json.encode(value).decode())
