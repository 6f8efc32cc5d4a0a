"""Shared by the commands that list things: `paddock jobs` is `paddock jobs list`."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup

from paddock.cli.operator_commands import with_database
from paddock.cli.output import say
from paddock.domain.reading.filters import LONGEST_PAGE, PAGE, BadCursor, Page
from paddock.ports import Clock
from paddock.ports.reading import Reading
from paddock.settings import load
from paddock.store.clock import DatabaseClock, asking
from paddock.store.database import Database
from paddock.store.reading import PgReading
from paddock.stories.story import length
from paddock.system import SystemClock
from paddock.web.explanations import Explanations

R = TypeVar("R")

Limit = Annotated[
    int, typer.Option("--limit", "-n", min=1, max=LONGEST_PAGE, help="How many at most.")
]
Cursor = Annotated[
    str | None,
    typer.Option("--after", metavar="CURSOR", help="Continue where the last page ended."),
]

DEFAULT_LIMIT = PAGE


class Listing(TyperGroup):
    """A group whose `list` may be left out, with or without options of its own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


def with_reading(
    work: Callable[[Reading], Awaitable[R]], *, config: Path | None, data_dir: Path | None
) -> R:
    """Read the database without changing it."""
    return _read(lambda reading, _: work(reading), config=config, data_dir=data_dir)


def with_explanations(
    work: Callable[[Explanations], Awaitable[R]], *, config: Path | None, data_dir: Path | None
) -> R:
    """Read the database, with explanations that give the reasons."""
    thresholds = load(config, data_dir=data_dir).recovery.thresholds
    return _read(
        lambda reading, clock: work(Explanations(reading, clock, thresholds)),
        config=config,
        data_dir=data_dir,
    )


def _read(
    work: Callable[[Reading, Clock], Awaitable[R]], *, config: Path | None, data_dir: Path | None
) -> R:
    async def read(database: Database) -> R:
        clock = await DatabaseClock.measured(asking(database), SystemClock())
        return await work(PgReading(database, clock), clock)

    try:
        return with_database(read, config=config, data_dir=data_dir)
    except BadCursor:
        raise typer.BadParameter("--after is not what a page of this list ended with") from None


def there_is_more(page: Page[Any]) -> None:
    """Written to standard error: a pipe gets only the rows."""
    if page.next is not None:
        say(f"there are more: --after {page.next}")


def ago(then: datetime | None) -> str | None:
    return None if then is None else f"{length(SystemClock().now() - then)} ago"


def time_ago(text: str) -> datetime:
    """The time that is `90s`, `30m`, `24h` or `7d` ago."""
    found = re.fullmatch(r"([0-9]{1,5}d|[0-9]{1,6}[smh])", text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is no length of time: write 90s, 30m, 24h or 7d")
    unit = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}[text[-1]]
    return SystemClock().now() - timedelta(**{unit: int(text[:-1])})
