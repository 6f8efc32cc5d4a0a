"""Formats times, lengths and amounts, in the same way on every page."""

from __future__ import annotations

from datetime import datetime, timedelta

from markupsafe import Markup

from paddock.domain.plain_text import escaped, escaped_lines


def length(time: timedelta | float | None) -> str:
    """`0.4 s`, `48 s`, `3m 12s`, `1h 04m`, `2d 03h`: as exact as a waiting reader needs."""
    if time is None:
        return "–"
    seconds = max(0.0, time.total_seconds() if isinstance(time, timedelta) else time)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02}s"
    if whole < 86_400:
        return f"{whole // 3600}h {whole % 3600 // 60:02}m"
    return f"{whole // 86_400}d {whole % 86_400 // 3600:02}h"


def brief(seconds: float | None) -> str:
    """A length that may be milliseconds."""
    if seconds is None:
        return "–"
    return f"{seconds * 1000:.0f} ms" if seconds < 0.9995 else length(seconds)


def age(moment: datetime | None, now: datetime) -> Markup:
    """How long ago; the browser keeps counting."""
    if moment is None:
        return Markup("–")
    return Markup('<time datetime="{}" title="{}" data-age>{}</time>').format(
        moment.isoformat(), f"{moment:%Y-%m-%d %H:%M:%S} UTC", length(now - moment)
    )


def clock(moment: datetime | None, now: datetime) -> Markup:
    """The time of day; with the date if it is not today."""
    if moment is None:
        return Markup("–")
    shape = "%H:%M:%S" if moment.date() == now.date() else "%b %d, %H:%M:%S"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        moment.isoformat(), f"{moment:%Y-%m-%d %H:%M:%S.%f} UTC", moment.strftime(shape)
    )


def memory(mebibytes: float | None) -> str:
    if mebibytes is None:
        return "–"
    if mebibytes < 1024:
        return f"{mebibytes:.0f} MiB"
    return f"{mebibytes / 1024:.1f}".rstrip("0").rstrip(".") + " GiB"


def cpus(milli: float | None) -> str:
    return "–" if milli is None else f"{milli / 1000:.2f}".rstrip("0").rstrip(".")


def count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def ticked(text: str) -> Markup:
    """`commands` in a sentence, as code."""
    parts = escaped(text).split("`")
    if len(parts) % 2 == 0:
        return Markup.escape(escaped(text))
    return Markup().join(
        Markup("<code>{}</code>").format(part) if number % 2 else Markup.escape(part)
        for number, part in enumerate(parts)
    )


def shown(value: object) -> str:
    """A setting's value as in the settings file."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:g}" if value < 1e6 else f"{value:,.0f}"
        case list():
            return ", ".join(shown(each) for each in value)
        case _:
            return str(value)


def plain(text: str) -> Markup:
    """A log, line by line; each line is escaped."""
    return Markup("\n").join(escaped_lines(text))
