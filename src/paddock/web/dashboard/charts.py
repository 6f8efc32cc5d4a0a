"""Charts as SVG, made on the server.

A plot stretches with its page, so it holds only shapes: text would be stretched too, and the
Content-Security-Policy forbids style attributes. Labels are HTML beside the plot. `label` says in words
what the chart shows, for readers who cannot see it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import log10

from markupsafe import Markup

#: The units in which a plot is drawn; the page decides its size.
WIDTH, HEIGHT = 600.0, 100.0

_ROUND = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)
#: Less and more than any amount that is drawn.
_NOTHING, _BEYOND = 1e-9, 1e30
#: Seconds.
_LENGTHS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 28_800, 86_400)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    svg: Markup
    label: str
    #: The value at the top of the plot.
    top: str
    #: The values at its left and right end.
    left: str = ""
    right: str = ""
    is_empty: bool = False


Points = Sequence[tuple[float, float]]


def area(points: Points, *, span: tuple[float, float], top: float, kind: str) -> Markup:
    """The area below a stepped line."""
    if not points:
        return Markup()
    steps = _steps(points, span, top)
    first, last = steps[0][0], steps[-1][0]
    path = f"M{first:.1f} {HEIGHT:g}" + "".join(f"L{x:.1f} {y:.1f}" for x, y in steps)
    return Markup('<path class="area {}" d="{}L{} {}Z"/>').format(
        kind, path, f"{last:.1f}", f"{HEIGHT:g}"
    ) + _line(steps, kind)


def line(points: Points, *, span: tuple[float, float], top: float, kind: str) -> Markup:
    if not points:
        return Markup()
    if len(points) == 1:
        x, y = _at(points[0], span, top)
        return Markup('<circle class="dot {}" cx="{}" cy="{}" r="2.5"/>').format(
            kind, f"{x:.1f}", f"{y:.1f}"
        )
    return _line([_at(point, span, top) for point in points], kind)


def stepped(points: Points, *, span: tuple[float, float], top: float, kind: str) -> Markup:
    return _line(_steps(points, span, top), kind) if points else Markup()


def level(value: float, *, top: float, kind: str) -> Markup:
    """A limit."""
    y = _height(value, top)
    return Markup('<line class="level {}" x1="0" x2="{}" y1="{}" y2="{}"/>').format(
        kind, f"{WIDTH:g}", f"{y:.1f}", f"{y:.1f}"
    )


def decades(least: float, top: float) -> Markup:
    """A line at every power of ten, for logarithmic plots."""
    drawn, value = Markup(), least * 10
    while value < top:
        drawn += Markup('<line class="grid" x1="0" x2="{}" y1="{}" y2="{}"/>').format(
            f"{WIDTH:g}", *[f"{_height(scaled(value, least, top), 1.0):.1f}"] * 2
        )
        value *= 10
    return drawn


def scaled(value: float, least: float, top: float) -> float:
    """The position of a value between two others on a logarithmic scale, from 0 to 1."""
    return log10(max(value, least) / least) / log10(top / least)


def stacks(columns: Sequence[Mapping[str, int]], order: Sequence[str], *, top: float) -> Markup:
    """Columns side by side, each of parts on top of each other."""
    drawn = Markup()
    width = WIDTH / max(1, len(columns))
    for number, column in enumerate(columns):
        below = 0.0
        for kind in order:
            if not (count := column.get(kind, 0)):
                continue
            height = HEIGHT * count / top
            below += height
            drawn += Markup('<rect class="bar {}" x="{}" y="{}" width="{}" height="{}"/>').format(
                kind,
                f"{number * width + width * 0.12:.1f}",
                f"{HEIGHT - below:.2f}",
                f"{width * 0.76:.1f}",
                f"{height:.2f}",
            )
    return drawn


def segments(parts: Sequence[tuple[float, float, str]], *, span: tuple[float, float]) -> Markup:
    """A time line, coloured by kind."""
    drawn = Markup()
    for start, end, kind in parts:
        left, right = _across(start, span), _across(end, span)
        drawn += Markup('<rect class="bar {}" x="{}" y="0" width="{}" height="{}"/>').format(
            kind, f"{left:.2f}", f"{max(1.2, right - left):.2f}", f"{HEIGHT:g}"
        )
    return drawn


def plot(*shapes: Markup, label: str) -> Markup:
    return Markup(
        '<svg class="plot" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" '
        'aria-label="{}">{}</svg>'
    ).format(f"{WIDTH:g}", f"{HEIGHT:g}", label, Markup().join(shapes))


def bar(value: float, most: float, *, kind: str, label: str) -> Markup:
    """A bar that shows how much of something is used."""
    share = 0.0 if most <= 0 else min(1.0, value / most)
    return Markup(
        '<svg class="gauge" viewBox="0 0 100 6" preserveAspectRatio="none" role="img" '
        'aria-label="{}"><rect class="track" width="100" height="6"/>'
        '<rect class="bar {}" width="{}" height="6"/></svg>'
    ).format(label, kind, f"{100 * share:.1f}")


def shares(parts: Mapping[str, int], *, label: str) -> Markup:
    """One bar of all parts of something."""
    total = sum(parts.values())
    drawn, left = Markup(), 0.0
    for kind, count in parts.items():
        width = 100 * count / total if total else 0.0
        drawn += Markup('<rect class="bar {}" x="{}" width="{}" height="6"/>').format(
            kind, f"{left:.2f}", f"{max(0.0, width - 0.4):.2f}"
        )
        left += width
    return Markup(
        '<svg class="gauge" viewBox="0 0 100 6" preserveAspectRatio="none" role="img" '
        'aria-label="{}"><rect class="track" width="100" height="6"/>{}</svg>'
    ).format(label, drawn)


def nice(value: float) -> float:
    """The next round number above. Values near zero or infinity are limited first: the loops below
    would end at zero, or never."""
    if value <= _NOTHING:
        return 1.0
    value = min(value, _BEYOND)
    power = 1.0
    while power * 10 <= value:
        power *= 10
    while power > value:
        power /= 10
    return next(power * step for step in _ROUND if power * step >= value)


def nice_length(value: float) -> float:
    """The next round length of time above."""
    return next((length for length in _LENGTHS if length >= value), nice(value))


def seconds(moment: datetime) -> float:
    return moment.timestamp()


def _line(points: Points, kind: str) -> Markup:
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return Markup('<path class="line {}" d="{}"/>').format(kind, path)


def _steps(points: Points, span: tuple[float, float], top: float) -> list[tuple[float, float]]:
    """The line in steps: each value holds until the next."""
    found: list[tuple[float, float]] = []
    for at, value in points:
        x, y = _at((at, value), span, top)
        if found:
            found.append((x, found[-1][1]))
        found.append((x, y))
    found.append((WIDTH, found[-1][1]))
    return found


def _at(point: tuple[float, float], span: tuple[float, float], top: float) -> tuple[float, float]:
    return _across(point[0], span), _height(point[1], top)


def _across(at: float, span: tuple[float, float]) -> float:
    start, end = span
    return WIDTH * min(1.0, max(0.0, (at - start) / (end - start))) if end > start else 0.0


def _height(value: float, top: float) -> float:
    return HEIGHT * (1 - min(1.0, max(0.0, value / top))) if top > 0 else HEIGHT
