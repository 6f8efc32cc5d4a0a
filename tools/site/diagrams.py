"""Draws the diagrams of the pages as SVG, at build time and without a browser.

Pages hold diagrams as Mermaid text, which code forges draw themselves; the site must not load a script
for it. This reads the part of Mermaid's language that the pages use. A line that it does not
understand is an error, so no diagram is published with a part missing.
"""

from __future__ import annotations

import re
import textwrap
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

#: Pixels: the height of a line of text, and the average width of a character. They wrap the text, so
#: they are on the large side.
LINE: Final = 15.0
CHARACTER: Final = 6.4
#: From one column of a sequence to the next, and from one column of blocks to the next.
STEP: Final = 132.0
#: With more participants than this, columns are narrower.
MANY: Final = 8
NARROW_STEP: Final = 104.0
CELL: Final = 140.0
PAD: Final = 12.0
SPACE: Final = 36.0
#: A diagram that is wider than its page is drawn smaller down to this, and scrolled from there on.
SMALLEST: Final = 0.75


class DiagramError(Exception):
    """A diagram cannot be drawn; one sentence."""


def draw(text: str) -> str:
    lines = [
        line for line in map(str.strip, text.splitlines()) if line and not line.startswith("%%")
    ]
    kind, *rest = lines or [""]
    match kind:
        case "sequenceDiagram":
            return _sequence(rest)
        case "stateDiagram-v2":
            return _sequence(list(_states_as_sequence(rest)))
        case "block-beta":
            return _blocks(rest)
        case _:
            raise DiagramError(f"`{kind}` is a kind of diagram that cannot be drawn.")


# Sequences: one column for each participant, one row for each message.

_PARTICIPANT: Final = re.compile(r"participant (?P<id>\w+)(?: as (?P<label>.+))?")
_MESSAGE: Final = re.compile(r"(?P<a>\w+)(?P<dash>--?)>>(?P<b>\w+): (?P<text>.+)")
_NOTE: Final = re.compile(r"Note over (?P<ids>\w+(?:, *\w+)*): (?P<text>.+)")
_FRAME: Final = re.compile(r"(?P<kind>loop|opt|alt) (?P<text>.+)")
_ELSE: Final = re.compile(r"else (?P<text>.+)")


_ARROWHEAD: Final = "url(#arrow)"


class _Svg:
    def __init__(self) -> None:
        self.parts: list[str] = []

    def line(self, kind: str, *points: tuple[float, float]) -> None:
        joined = " L".join(f"{x:g} {y:g}" for x, y in points)
        self.parts.append(f'<path class="{kind}" d="M{joined}"/>')

    def arrow(self, kind: str, *points: tuple[float, float]) -> None:
        self.line(kind, *points)
        self.parts[-1] = self.parts[-1].replace("/>", f' marker-end="{_ARROWHEAD}"/>')

    def box(self, kind: str, x: float, y: float, width: float, height: float) -> None:
        self.parts.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4"/>'
        )

    def text(
        self, x: float, y: float, lines: Sequence[str], kind: str = "text", anchor: str = "middle"
    ) -> None:
        """`y` is the top of the first line."""
        for number, line in enumerate(lines):
            place = f'x="{x:g}" y="{y + LINE * number + 11:g}" text-anchor="{anchor}"'
            self.parts.append(f'<text class="{kind}" {place}>{escape(line)}</text>')

    def behind(self, x: float, y: float, lines: Sequence[str]) -> None:
        """Moves it so that a line across the text does not strike it out."""
        width = max(map(len, lines)) * CHARACTER
        self.box("behind", x - width / 2, y, width, LINE * len(lines))

    def done(self, width: float, height: float) -> str:
        body = "\n".join(self.parts)
        # All diagrams of a page share one name space.
        arrow = f"arrow-{zlib.crc32(body.encode()):08x}"
        return (
            f'<svg class="diagram" xmlns="http://www.w3.org/2000/svg" role="img" '
            f'viewBox="0 0 {width:g} {height:g}" '
            f'style="max-width:{width:g}px;min-width:{SMALLEST * width:g}px">\n'
            f'<defs><marker id="{arrow}" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="8" '
            f'markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>\n'
            f"{body.replace(_ARROWHEAD, f'url(#{arrow})')}\n</svg>"
        )


def _wrapped(text: str, width: float) -> list[str]:
    most = max(8, int(width / CHARACTER))
    return [
        line
        for part in re.split(r"<br ?/?>", text)
        for line in textwrap.wrap(part, most, break_long_words=False) or [""]
    ]


def _states_as_sequence(lines: Sequence[str]) -> Iterator[str]:
    """A state is a column, a step a message: the labels of steps are too long for a graph."""
    named: dict[str, str] = {}
    steps = []
    for line in lines:
        if found := re.fullmatch(r'state "(.+)" as (\w+)', line):
            named[found[2]] = found[1]
        elif found := re.fullmatch(r"(\w+) --> (\w+): (.+)", line):
            steps.append((found[1], found[2], found[3]))
        elif not re.fullmatch(r"\[\*\] --> \w+|\w+ --> \[\*\]", line):
            raise DiagramError(f"`{line}` is not understood in a diagram of states.")
    for state in dict.fromkeys(state for step in steps for state in step[:2]):
        yield f"participant {state} as {named.get(state, state)}"
    yield from (f"{before}->>{after}: {text}" for before, after, text in steps)


def _sequence(lines: Sequence[str]) -> str:
    many = sum(bool(_PARTICIPANT.fullmatch(line)) for line in lines) > MANY
    drawing = _Sequence(NARROW_STEP if many else STEP)
    for line in lines:
        if found := _PARTICIPANT.fullmatch(line):
            drawing.add_column(found["id"], found["label"] or found["id"])
        elif found := _MESSAGE.fullmatch(line):
            kind = "reply" if found["dash"] == "--" else "message"
            drawing.add_message(found["a"], found["b"], found["text"], kind)
        elif found := _NOTE.fullmatch(line):
            drawing.add_note(re.split(", *", found["ids"]), found["text"])
        elif found := _FRAME.fullmatch(line):
            drawing.open_frame(found["kind"], found["text"])
        elif found := _ELSE.fullmatch(line):
            drawing.divide_frame(found["text"])
        elif line == "end":
            drawing.close_frame()
        else:
            raise DiagramError(f"`{line}` is not understood in a sequence.")
    return drawing.done()


class _Sequence:
    def __init__(self, step: float) -> None:
        self._step = step
        self._svg = _Svg()
        self._columns: dict[str, list[str]] = {}
        self._frames: list[float] = []
        #: How far down it is drawn, below the head.
        self._y = PAD

    @property
    def _width(self) -> float:
        return self._step * len(self._columns)

    def _x(self, name: str) -> float:
        if name not in self._columns:
            raise DiagramError(f"`{name}` is used before it is a participant.")
        return self._step * (list(self._columns).index(name) + 0.5)

    def add_column(self, name: str, label: str) -> None:
        self._columns[name] = _wrapped(label, self._step - 3 * PAD)

    def add_message(self, before: str, after: str, text: str, kind: str) -> None:
        a, b = self._x(before), self._x(after)
        if a == b:
            self._add_message_to_self(a, text, kind)
            return
        lines = _wrapped(text, abs(a - b) - PAD)
        self._svg.behind((a + b) / 2, self._y, lines)
        self._svg.text((a + b) / 2, self._y, lines)
        self._y += LINE * len(lines) + 3
        self._svg.arrow(kind, (a, self._y), (b - 1 if a < b else b + 1, self._y))
        self._y += PAD

    def _add_message_to_self(self, x: float, text: str, kind: str) -> None:
        # Its text stands to the right of it, or to the left if there is no room.
        side = -1 if x + self._step > self._width else 1
        lines = _wrapped(text, self._step - 3 * PAD)
        bottom = self._y + LINE * len(lines)
        turn = x + side * 18
        self._svg.arrow(kind, (x, self._y), (turn, self._y), (turn, bottom), (x + side, bottom))
        self._svg.text(x + side * 24, self._y, lines, anchor="start" if side > 0 else "end")
        self._y = bottom + PAD

    def add_note(self, names: Sequence[str], text: str) -> None:
        over = [self._x(name) for name in names]
        left, width = min(over) - self._step / 2 + PAD / 2, max(over) - min(over) + self._step - PAD
        lines = _wrapped(text, width - PAD)
        self._svg.box("note", left, self._y, width, LINE * len(lines) + PAD)
        self._svg.text(left + width / 2, self._y + PAD / 2, lines)
        self._y += LINE * len(lines) + 2 * PAD

    def open_frame(self, kind: str, text: str) -> None:
        self._frames.append(self._y)
        self._add_tag(f"{kind}: {text}")

    def divide_frame(self, text: str) -> None:
        if not self._frames:
            raise DiagramError("`else` stands outside of a frame.")
        self._svg.line("frame", (PAD, self._y), (self._width - PAD, self._y))
        self._add_tag(f"else: {text}")

    def close_frame(self) -> None:
        if not self._frames:
            raise DiagramError("`end` stands outside of a frame.")
        inset = PAD * len(self._frames)
        top = self._frames.pop()
        self._svg.box("frame", inset, top, self._width - 2 * inset, self._y - top)
        self._y += PAD

    def _add_tag(self, text: str) -> None:
        x = PAD * (len(self._frames) + 1)
        self._svg.behind(x + len(text) * CHARACTER / 2, self._y + PAD / 2, [text])
        self._svg.text(x, self._y + PAD / 2, [text], "tag", "start")
        self._y += LINE + PAD

    def done(self) -> str:
        if self._frames:
            raise DiagramError("A frame of a sequence has no `end`.")
        head = max((len(label) for label in self._columns.values()), default=1) * LINE + PAD
        svg = _Svg()
        for name, label in self._columns.items():
            x = self._x(name)
            svg.line("life", (x, head), (x, head + self._y))
            svg.box("participant", x - self._step / 2 + PAD / 2, 0.5, self._step - PAD, head)
            svg.text(x, (head - LINE * len(label)) / 2, label, "name")
        svg.parts += [f'<g transform="translate(0 {head:g})">', *self._svg.parts, "</g>"]
        return svg.done(self._width, head + self._y)


# Blocks: on a grid, in the order in which they are written; arrows between them.

_COLUMNS: Final = re.compile(r"columns (?P<count>\d+)")
_OPEN: Final = re.compile(r"block:(?P<id>\w+)(?::(?P<span>\d+))?")
_BLOCK: Final = re.compile(r'(?P<id>\w+)\["(?P<label>[^"]+)"\](?::(?P<span>\d+))?')
_GAP: Final = re.compile(r"space(?::(?P<span>\d+))?")
_ARROW: Final = re.compile(r'(?P<a>\w+) (?:-- "(?P<label>[^"]+)" )?--> (?P<b>\w+)')


#: Left, top, width, height.
_Place = tuple[float, float, float, float]


@dataclass(slots=True)
class _Block:
    label: str = ""
    span: int = 1
    columns: int = 1
    inner: list[tuple[str, _Block]] = field(default_factory=list)

    def rows(self) -> list[list[tuple[int, str, _Block]]]:
        """With the column in which each begins. Mermaid needs a row of spaces to make room for arrows;
        here there is room between any two rows."""
        rows: list[list[tuple[int, str, _Block]]] = [[]]
        column = 0
        for name, block in self.inner:
            if column + block.span > self.columns:
                rows.append([])
                column = 0
            rows[-1].append((column, name, block))
            column += block.span
        return [row for row in rows if any(name for _, name, _ in row)]

    def width(self, cell: float) -> float:
        return self.span * cell + (self.span - 1) * SPACE

    def cell(self, cell: float) -> float:
        """Of the blocks in it, which have the width of the group less its margins."""
        return (self.width(cell) - 2 * PAD - (self.columns - 1) * SPACE) / self.columns

    def height(self, cell: float) -> float:
        if not self.inner:
            return LINE * len(_wrapped(self.label, self.width(cell) - 2 * PAD)) + 2 * PAD
        within = self.cell(cell)
        heights = [max(block.height(within) for _, _, block in row) for row in self.rows()]
        return sum(heights) + SPACE * (len(heights) - 1) + 2 * PAD


def _blocks(lines: Sequence[str]) -> str:
    stack = [_Block()]
    arrows = []
    for line in lines:
        if found := _COLUMNS.fullmatch(line):
            stack[-1].columns = int(found["count"])
        elif found := _OPEN.fullmatch(line):
            group = _Block(span=int(found["span"] or 1))
            stack[-1].inner.append((found["id"], group))
            stack.append(group)
        elif line == "end" and len(stack) > 1:
            stack.pop()
        elif found := _GAP.fullmatch(line):
            stack[-1].inner.append(("", _Block(span=int(found["span"] or 1))))
        elif found := _BLOCK.fullmatch(line):
            block = _Block(label=found["label"], span=int(found["span"] or 1))
            stack[-1].inner.append((found["id"], block))
        elif found := _ARROW.fullmatch(line):
            arrows.append((found["a"], found["b"], found["label"] or ""))
        else:
            raise DiagramError(f"`{line}` is not understood in a diagram of blocks.")
    if len(stack) > 1:
        raise DiagramError("A group of blocks has no `end`.")
    whole = stack[0]
    whole.span = whole.columns
    svg = _Svg()
    places: dict[str, _Place] = {}
    _place(svg, whole, CELL, 0.0, 0.0, places)
    for a, b, label in arrows:
        if a not in places or b not in places:
            raise DiagramError(f"An arrow leads from `{a}` to `{b}`, and one of them is no block.")
        _arrow(svg, places[a], places[b], label)
    return svg.done(whole.width(CELL), whole.height(CELL))


def _place(
    svg: _Svg, group: _Block, cell: float, left: float, top: float, places: dict[str, _Place]
) -> None:
    within = group.cell(cell)
    y = top + PAD
    for row in group.rows():
        tallest = max(block.height(within) for _, _, block in row)
        for column, name, block in row:
            if not name:
                continue
            x, width = left + PAD + column * (within + SPACE), block.width(within)
            places[name] = x, y, width, tallest
            if block.inner:
                svg.box("group", x, y, width, tallest)
                _place(svg, block, within, x, y, places)
                continue
            title, *more = _wrapped(block.label, width - 2 * PAD)
            upper = y + (tallest - LINE * (len(more) + 1)) / 2
            svg.box("block", x, y, width, tallest)
            svg.text(x + width / 2, upper, [title], "name")
            svg.text(x + width / 2, upper + LINE, more)
        y += tallest + SPACE


def _arrow(svg: _Svg, a: _Place, b: _Place, label: str) -> None:
    """Straight down, up or across, through the middle of the part that both have in common."""
    (ax, ay, aw, ah), (bx, by, bw, bh) = a, b
    low, high = max(ax, bx), min(ax + aw, bx + bw)
    if low < high:
        x = (low + high) / 2
        y1, y2 = (ay + ah, by) if ay < by else (ay, by + bh)
        svg.arrow("message", (x, y1), (x, y2))
        where = (x, (y1 + y2) / 2)
    else:
        low, high = max(ay, by), min(ay + ah, by + bh)
        y = (low + high) / 2
        x1, x2 = (ax + aw, bx) if ax < bx else (ax, bx + bw)
        svg.arrow("message", (x1, y), (x2, y))
        where = ((x1 + x2) / 2, y)
    if label:
        text = _wrapped(label, CELL)
        svg.behind(where[0], where[1] - LINE * len(text) / 2, text)
        svg.text(where[0], where[1] - LINE * len(text) / 2, text, "label")
