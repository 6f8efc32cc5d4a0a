"""`paddock deliveries`"""

from __future__ import annotations

from typing import Annotated

import typer

from paddock.cli.layout import prose
from paddock.cli.listing import (
    DEFAULT_LIMIT,
    Cursor,
    Limit,
    Listing,
    ago,
    there_is_more,
    with_reading,
)
from paddock.cli.operator_commands import as_operator
from paddock.cli.options import AsJson, Config, DataDir
from paddock.cli.output import show, show_json, table
from paddock.domain.github.deliveries import DeliveryNumber, DeliveryState
from paddock.domain.reading.filters import DeliveryFilter, Paging

app = typer.Typer(
    help="List received webhooks and their states, or retry dead ones.",
    cls=Listing,
    rich_markup_mode=None,
)


@app.command("list")
def list_(
    state: Annotated[DeliveryState | None, typer.Option(help="Only those in this state.")] = None,
    event: Annotated[str | None, typer.Option(metavar="EVENT", help="Like workflow_job.")] = None,
    limit: Limit = DEFAULT_LIMIT,
    after: Cursor = None,
    as_json: AsJson = False,
    config: Config = None,
    data_dir: DataDir = None,
) -> None:
    """List deliveries, the newest first.

    A dead delivery could not be applied; its note says why. Once the cause is removed, try it again
    with `paddock deliveries retry`. It is deleted 30 days after it was set aside.

    Example:

        paddock deliveries --state dead
    """
    wanted = DeliveryFilter(state=state, event=event)
    page = with_reading(
        lambda reading: reading.deliveries(wanted, Paging(limit=limit, cursor=after)),
        config=config,
        data_dir=data_dir,
    )
    there_is_more(page)
    if as_json:
        show_json(page.items)
        return
    table(
        ["NUMBER", "RECEIVED", "EVENT", "STATE", "TRIES", "GUID", prose("NOTE")],
        (
            (
                each.number,
                ago(each.received_at),
                f"{each.event}.{each.action}" if each.action else each.event,
                each.state,
                each.attempts,
                each.guid,
                each.note,
            )
            for each in page.items
        ),
        empty="No delivery matches.",
    )


@app.command()
def retry(
    numbers: Annotated[
        list[int] | None, typer.Argument(metavar="NUMBER", help="As listed.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All that are dead.")] = False,
    config: Config = None,
    data_dir: DataDir = None,
) -> None:
    """Try dead deliveries again: the named ones, or all."""
    if bool(numbers) == every:
        raise typer.BadParameter("name the deliveries to try again, or say --all")
    chosen = None if every else [DeliveryNumber(number) for number in numbers or ()]
    count = as_operator(
        lambda operator: operator.retry_deliveries(chosen), config=config, data_dir=data_dir
    )
    show(f"{count} {'delivery is' if count == 1 else 'deliveries are'} pending again")
