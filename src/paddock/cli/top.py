"""`paddock top`"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated, Final

import typer
from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table

from paddock.cli.listing import with_teller
from paddock.cli.options import Config, DataDir, Json
from paddock.cli.output import Part, console, show_json, text
from paddock.domain.overview import Overview
from paddock.domain.pauses import describe_pause
from paddock.domain.states import RunnerState
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
#: Of an owner and a repository that are longer than most; a longer one leaves room for its neighbours.
_LONGEST_NAME: Final = 64

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
            with_teller(
                lambda reading, teller: teller.overview(reading), config=config, data_dir=data_dir
            )
        )
        return
    try:
        with_teller(
            lambda reading, teller: _watch(lambda: teller.overview(reading), every),
            config=config,
            data_dir=data_dir,
        )
    except asyncio.CancelledError:
        return


async def _watch(look: Callable[[], Awaitable[Overview]], every: float) -> None:
    if not console.is_terminal:
        console.print(drawn(await look()))
        return
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            try:
                seen = drawn(await look())
            except StoreError as error:
                seen = text(error.message, style="red")
            live.update(seen, refresh=True)
            await asyncio.sleep(every)


def drawn(overview: Overview) -> RenderableType:
    return Group(
        _head(overview),
        text(),
        *_cells(overview),
        text(),
        *_troubles(overview),
        Columns([_waiting(overview), _queues(overview)], padding=(0, 6)),
        text(),
        _actions(overview),
    )


def _head(overview: Overview) -> RenderableType:
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
    return text(("paddock ", "bold"), f"{overview.at:%H:%M:%S}  ", "  |  ".join(parts))


def _cells(overview: Overview) -> Iterable[RenderableType]:
    yield (
        text(
            *((_CELL, _SUSPECT if each.suspect else _STYLES[each.state]) for each in overview.cells)
        )
        if overview.cells
        else "no runners"
    )
    counts: list[Part] = []
    for state, count in overview.runners.items():
        counts += ((_CELL, _STYLES[state]), f"{count} {state}   ")
    yield text(*counts)


def _troubles(overview: Overview) -> Iterable[RenderableType]:
    for pause in overview.pauses:
        what = f"{pause.what} {pause.name}" if pause.name else f"all {pause.what}"
        who = describe_pause(pause.at, pause.by, pause.why)
        yield text(f"paused: {what}, {who}", style="yellow")
    for off in overview.backoffs:
        left = length(off.until - overview.at)
        yield text(f"backs off: {off.scope} {off.name}, for {left}: {off.reason}", style="yellow")
    if overview.refused:
        yield text(
            f"no pool takes {overview.refused} queued jobs: paddock jobs --refused", style="yellow"
        )
    if overview.dead_deliveries:
        yield text(f"dead deliveries: {overview.dead_deliveries}", style="yellow")
    if overview.pauses or overview.backoffs or overview.refused or overview.dead_deliveries:
        yield text()


def _waiting(overview: Overview) -> Table:
    table = _table("WAITING LONGEST", "REPOSITORY", "FOR", "POOL")
    for job in overview.oldest:
        waited = length(overview.at - job.queued_at)
        table.add_row(str(job.id), job.repository, waited, job.pool or job.refusal or "–")
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
        table.add_row(f"{action.at:%H:%M:%S}", action.rule, about, action.why)
    return table


def _table(*headings: str) -> Table:
    """Names are shown whole, if they are not longer than GitHub lets them be; what does not fit is cut
    from the last column."""
    table = Table(box=None, pad_edge=False, header_style="bold dim")
    *names, last = headings
    for heading in names:
        table.add_column(heading, no_wrap=True, min_width=len(heading), max_width=_LONGEST_NAME)
    table.add_column(last, overflow="ellipsis", no_wrap=True, ratio=1)
    return table
