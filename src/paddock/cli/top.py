"""`paddock top`"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Annotated, Final

import typer
from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from paddock.cli.listing import with_reading
from paddock.cli.options import Config, DataDir, Json
from paddock.cli.output import console, show_json
from paddock.domain.overview import Overview
from paddock.domain.states import RunnerState
from paddock.ports.reading import Reading
from paddock.store.errors import StoreError
from paddock.stories.story import length

#: A cell for each runner, in the order of its life.
_STYLES: Final = {
    RunnerState.BOOTING: "grey50",
    RunnerState.IDLE: "green",
    RunnerState.CLAIMED: "cyan",
    RunnerState.ARMED: "cyan",
    RunnerState.RUNNING: "bright_cyan",
    RunnerState.BUSY: "bright_blue",
    RunnerState.DONE: "blue",
    RunnerState.RETIRING: "yellow",
    RunnerState.GONE: "grey30",
}
_SUSPECT: Final = "bright_red"
_CELL: Final = "■ "

Every = Annotated[
    float, typer.Option("--every", min=0.2, max=60, metavar="SECONDS", help="How often to look.")
]


def top(
    every: Every = 1.0,
    as_json: Json = False,
    config: Config = None,
    data_dir: DataDir = None,
) -> None:
    """Watch the fleet: every runner a cell, what waits and for how long, what recovery does.

    Ctrl-C ends it. Where there is no terminal, or with --json, it looks once.

    Examples:

        paddock top

        paddock top --json | jq .runners
    """
    if as_json:
        show_json(
            with_reading(lambda reading: reading.overview(), config=config, data_dir=data_dir)
        )
        return
    try:
        with_reading(lambda reading: _watch(reading, every), config=config, data_dir=data_dir)
    except asyncio.CancelledError:
        return


async def _watch(reading: Reading, every: float) -> None:
    if not console.is_terminal:
        console.print(drawn(await reading.overview()))
        return
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            try:
                seen = drawn(await reading.overview())
            except StoreError as error:
                seen = Text(error.message, style="red")
            live.update(seen, refresh=True)
            await asyncio.sleep(every)


def drawn(overview: Overview) -> RenderableType:
    return Group(
        _head(overview),
        Text(),
        _cells(overview),
        Text(),
        *_troubles(overview),
        Columns([_waiting(overview), _queues(overview)], padding=(0, 6)),
        Text(),
        _actions(overview),
    )


def _head(overview: Overview) -> Text:
    jobs = ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in overview.jobs.items())
    done = sum(overview.completed.values())
    parts = [f"jobs: {jobs or 'none open'}, {done} completed in the last hour"]
    oldest = overview.oldest_at
    if oldest is not None:
        parts.append(f"the oldest waits {length(overview.at - oldest)}")
    if overview.to_jit is not None:
        parts.append(
            f"queued to JIT {overview.to_jit.p50 * 1000:.0f} ms, 99th {overview.to_jit.p99 * 1000:.0f}"
        )
    return Text.assemble(("paddock ", "bold"), f"{overview.at:%H:%M:%S}  ", "  |  ".join(parts))


def _cells(overview: Overview) -> Text:
    drawn = Text()
    for cell in overview.cells:
        drawn.append(_CELL, style=_SUSPECT if cell.suspect else _STYLES[cell.state])
    if not overview.cells:
        drawn.append("no runners")
    drawn.append("\n")
    for state, count in overview.runners.items():
        drawn.append(_CELL, style=_STYLES[state])
        drawn.append(f"{count} {state}   ")
    return drawn


def _troubles(overview: Overview) -> Iterable[Text]:
    for pause in overview.pauses:
        what = f"{pause.what} {pause.name}" if pause.name else f"all {pause.what}"
        yield Text(f"paused: {what}, by {pause.by.removeprefix('operator:')}", style="yellow")
    for off in overview.backoffs:
        left = length(off.until - overview.at)
        yield Text(f"backs off: {off.scope} {off.name}, for {left}: {off.reason}", style="yellow")
    if overview.refused:
        yield Text(
            f"no pool takes {overview.refused} queued jobs: paddock jobs --refused", "yellow"
        )
    if overview.dead_deliveries:
        yield Text(f"dead deliveries: {overview.dead_deliveries}", style="yellow")
    if overview.pauses or overview.backoffs or overview.refused or overview.dead_deliveries:
        yield Text()


def _waiting(overview: Overview) -> Table:
    table = _table("WAITING LONGEST", "REPOSITORY", "FOR", "POOL")
    for job in overview.oldest:
        waited = length(overview.at - job.queued_at)
        table.add_row(str(job.id), Text(job.repository), waited, job.pool or job.refusal or "–")
    return table


def _queues(overview: Overview) -> Table:
    table = _table("POOL", "ACCOUNT", "QUEUED", "OLDEST")
    for queue in overview.queues:
        waited = length(overview.at - queue.oldest_at)
        table.add_row(queue.pool, queue.account, str(queue.jobs), waited)
    return table


def _actions(overview: Overview) -> Table:
    table = _table("RECOVERY", "RULE", "ABOUT", "WHY")
    table.expand = True
    for action in overview.actions:
        about = action.pod or f"job {action.job}"
        table.add_row(f"{action.at:%H:%M:%S}", action.rule, about, Text(action.why))
    return table


def _table(*headings: str) -> Table:
    """Names are shown whole; what does not fit is cut from the last column."""
    table = Table(box=None, pad_edge=False, header_style="bold dim")
    *names, last = headings
    for heading in names:
        table.add_column(heading, no_wrap=True, min_width=len(heading))
    table.add_column(last, overflow="ellipsis", no_wrap=True, ratio=1)
    return table
