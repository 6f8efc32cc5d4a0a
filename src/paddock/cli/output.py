"""All output of the command line passes through here, so that it cannot control the terminal.

Results go to standard output; progress and errors go to standard error, so that results can be piped.
The output contains names, labels and logs that others chose. A field is one line, and its control
characters are escaped (`plain_text`). Text that rich draws is checked again before it is written. Text
that is written without rich (usage errors, warnings, traces) passes a guard. There is no other way out.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, Final, TextIO, cast

import msgspec
from rich.cells import chop_cells
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.text import Text

from paddock.cli.layout import Column, Line, Part, lay_out, wrap
from paddock.domain.plain_text import escaped, escaped_lines

_ERROR: Final = "error:"
_HANGING: Final = 2


class _Terminal(Console):
    def __init__(self, *, stderr: bool = False) -> None:
        # No markup and no emoji codes: `[red]` and `:skull:` may be names.
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False, soft_wrap=True)

    def render_str(self, text: str, **how: Any) -> Text:
        """Called for every string that is printed or put into a table."""
        return super().render_str(escaped(text), **how)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Escape a `Text` that `text` below did not make; rich's own sequences are control segments."""
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield segment._replace(text="\n".join(escaped_lines(segment.text)))


console: Final = _Terminal()
errors: Final = _Terminal(stderr=True)


class _Guarded:
    """A standard stream for output without rich: typer, warnings, traces."""

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
    """Called once, before any output. rich and structlog keep the original streams: they get foreign
    text only escaped."""
    console.file, errors.file = sys.stdout, sys.stderr
    sys.stdout = cast("TextIO", _Guarded(sys.stdout))
    sys.stderr = cast("TextIO", _Guarded(sys.stderr))


def room() -> int | None:
    """How many columns a line may have; `None` if standard output is no terminal. FORCE_COLOR asks for
    colours in a pipe, but a pipe has no width to which lines should be shortened."""
    return _room(console)


def _room(terminal: Console) -> int | None:
    return terminal.width if terminal.file.isatty() else None


def text(*parts: Part, style: str = "") -> Text:
    """One line of text, made of parts with or without a style."""
    drawn = Text(style=style)
    for part in parts:
        words, how = (part, "") if isinstance(part, str) else part
        drawn.append(escaped(words), how)
    return drawn


def _write(terminal: Console, line: Line, *, style: str = "", hanging: int = _HANGING) -> None:
    """Write a sentence, wrapped at spaces: a terminal would also break the names in it. Further lines
    are always indented, so that none looks like a new line of paddock's."""
    width = _room(terminal)
    if width is None:
        terminal.print(text(*line, style=style))
        return
    for each in wrap(_escaped(line), width, hanging=hanging):
        terminal.print(text(*each, style=style))


def _escaped(line: Line) -> Line:
    return tuple(
        escaped(part) if isinstance(part, str) else (escaped(part[0]), part[1]) for part in line
    )


def show(*parts: Part, style: str = "", hanging: int = _HANGING) -> None:
    """`hanging`: the indentation of further lines, if the terminal is too narrow for one line."""
    _write(console, parts, style=style, hanging=hanging)


def show_lines(lines: Iterable[str]) -> None:
    """Show lines and keep their indentation."""
    for line in lines:
        show(line, hanging=len(line) - len(line.lstrip()) + _HANGING)


def say(line: str) -> None:
    _write(errors, (line,), style="dim")


def complain(sentence: str) -> None:
    """Further lines are indented, so that none looks like a second error."""
    first, *rest = escaped_lines(sentence)
    indent = len(_ERROR) + 1
    _write(errors, ((_ERROR, "bold red"), " ", first), hanging=indent)
    for line in rest:
        _write(errors, (" " * indent, line), hanging=indent)


def screen(lines: Iterable[Line]) -> Group:
    """For a live screen, which cuts off lines that are too wide; a terminal would wrap them."""
    drawn: list[Text] = []
    for line in lines:
        whole = text(*line)
        ends = accumulate(map(len, chop_cells(whole.plain, console.width)))
        drawn += whole.divide([end for end in ends if end < len(whole)])
    return Group(*drawn)


def show_trace(error: BaseException) -> None:
    for line in escaped_lines("".join(traceback.format_exception(error)).rstrip()):
        errors.print(text(line))


def table(
    headings: Sequence[str | Column], rows: Iterable[Sequence[object]], *, empty: str
) -> None:
    """Columns for people; without rows, the sentence `empty`, which says what to do."""
    found = list(rows)
    if not found:
        show(empty)
        return
    for line in lay_out(headings, found, width=room()):
        console.print(text(*line))


def show_json(value: object) -> None:
    """JSON has its own escapes, so no character is lost."""
    console.print(text(msgspec.json.encode(value).decode()))
