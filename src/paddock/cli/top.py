"""`paddock top`"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Annotated, Final

import typer
from rich.live import Live

from paddock.cli.layout import Line, Part, beside, lay_out, prose, wrap
from paddock.cli.listing import with_explanations
from paddock.cli.options import AsJson, Config, DataDir
from paddock.cli.output import console, room, screen, show, show_json
from paddock.domain.pauses import describe_pause
from paddock.domain.plain_text import escaped
from paddock.domain.reading.overview import Overview
from paddock.domain.states import RunnerState
from paddock.ports.errors import StoreError
from paddock.stories.story import length

#: The style of a runner's cell by state, in the order of a runner's life.
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
    float,
    typer.Option("--every", min=0.2, max=60, metavar="SECONDS", help="Seconds between updates."),
]


def top(
    every: Every = 1.0,
    as_json: AsJson = False,
    config: Config = None,
    data_dir: DataDir = None,
) -> None:
    """Watch the fleet: every runner a cell, what waits and for how long, what recovery does.

    Ctrl-C ends it. Without a terminal, or with --json, it prints the state once.

    Examples:

        paddock top

        paddock top --json | jq .runners
    """
    if as_json:
        show_json(
            with_explanations(
                lambda explanations: explanations.overview(), config=config, data_dir=data_dir
            )
        )
        return
    try:
        with_explanations(
            lambda explanations: _watch(explanations.overview, every),
            config=config,
            data_dir=data_dir,
        )
    except asyncio.CancelledError:
        return


async def _watch(look: Callable[[], Awaitable[Overview]], every: float) -> None:
    if room() is None:
        for line in drawn(await look(), None):
            show(*line)
        return
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            try:
                seen = screen(drawn(await look(), room()))
            except StoreError as error:
                seen = screen([((error.message, "red"),)])
            live.update(seen, refresh=True)
            await asyncio.sleep(every)


def drawn(overview: Overview, width: int | None) -> list[Line]:
    """`width` as in `lay_out`."""
    return [
        *_sentences([_head(overview)], width),
        (),
        *_runners(overview, width),
        (),
        *_sentences([*_troubles(overview)], width),
        *beside(_waiting(overview, width), _queues(overview, width), width=width),
        (),
        *_actions(overview, width),
    ]


def _sentences(lines: Iterable[Line], width: int | None) -> Iterator[Line]:
    for line in lines:
        if width is None:
            yield line
        else:
            yield from wrap(line, width, hanging=2)


def _head(overview: Overview) -> Line:
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
    return (("paddock ", "bold"), f"{overview.at:%H:%M:%S}  ", "  |  ".join(parts))


def _runners(overview: Overview, width: int | None) -> Iterator[Line]:
    """A cell per runner, and the number of runners in each state. In a pipe cells have no colour."""
    if not overview.runners:
        yield ("no runners",)
    elif width is None:
        yield (", ".join(f"{count} {state}" for state, count in overview.runners.items()),)
    else:
        cells = (
            (_CELL, _SUSPECT if each.suspect else _STYLES[each.state]) for each in overview.cells
        )
        yield from wrap(tuple(cells), width, hanging=0)
        counts: list[Part] = []
        for state, count in overview.runners.items():
            counts += (
                ("■\N{NO-BREAK SPACE}", _STYLES[state]),
                f"{count}\N{NO-BREAK SPACE}{state}   ",
            )
        yield from wrap(tuple(counts), width, hanging=0)


def _troubles(overview: Overview) -> Iterable[Line]:
    for pause in overview.pauses:
        what = f"{pause.what} {pause.name}" if pause.name else f"all {pause.what}"
        who = describe_pause(pause.at, pause.by, pause.why)
        yield ((escaped(f"paused: {what}, {who}"), "yellow"),)
    for off in overview.backoffs:
        left = length(off.until - overview.at)
        said = f"backs off: {off.scope} {off.name}, for {left}: {off.reason}"
        yield ((escaped(said), "yellow"),)
    if overview.refused:
        said = f"no pool takes {overview.refused} queued jobs: paddock jobs --refused"
        yield ((said, "yellow"),)
    if overview.dead_deliveries:
        yield ((f"dead deliveries: {overview.dead_deliveries}", "yellow"),)
    if overview.pauses or overview.backoffs or overview.refused or overview.dead_deliveries:
        yield ()


def _waiting(overview: Overview, width: int | None) -> list[Line]:
    return lay_out(
        ["WAITING LONGEST", "REPOSITORY", "FOR", "POOL", prose("WHY")],
        (
            (
                job.id,
                job.repository,
                length(overview.at - job.queued_at),
                job.pool,
                job.waits_because,
            )
            for job in overview.oldest
        ),
        width=width,
    )


def _queues(overview: Overview, width: int | None) -> list[Line]:
    return lay_out(
        ["POOL", "ACCOUNT", "QUEUED", "OLDEST"],
        (
            (queue.pool, queue.account, queue.jobs, length(overview.at - queue.oldest_at))
            for queue in overview.queues
        ),
        width=width,
    )


def _actions(overview: Overview, width: int | None) -> list[Line]:
    return lay_out(
        ["RECOVERY", "RULE", "ABOUT", prose("WHY")],
        (
            (f"{each.at:%H:%M:%S}", each.rule, each.pod or f"job {each.job}", each.why)
            for each in overview.actions
        ),
        width=width,
    )
