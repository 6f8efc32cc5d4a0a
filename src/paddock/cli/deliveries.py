"""`paddock deliveries`"""

from __future__ import annotations

from typing import Annotated

import typer

from paddock.cli.operating import with_store
from paddock.cli.options import Config, DataDir, Json
from paddock.cli.output import show, show_json, table
from paddock.domain.deliveries import DeliveryNumber, DeliveryState

app = typer.Typer(
    help="Webhooks as they arrived, and what became of them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("list")
def list_(
    state: Annotated[DeliveryState | None, typer.Option(help="Only those in this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many at most.")] = 50,
    as_json: Json = False,
    config: Config = None,
    data_dir: DataDir = None,
) -> None:
    """List deliveries, the newest first.

    A dead one could not be applied; its note says why. After the cause is gone it can be tried
    again with `paddock deliveries retry`.

    Example:

        paddock deliveries list --state dead
    """
    found = with_store(
        lambda store: store.list_deliveries(state=state, limit=limit),
        config=config,
        data_dir=data_dir,
    )
    if as_json:
        show_json(found)
        return
    table(
        ["NUMBER", "RECEIVED", "EVENT", "STATE", "TRIES", "GUID", "NOTE"],
        (
            (
                each.number,
                f"{each.received_at:%Y-%m-%d %H:%M:%S}",
                f"{each.event}.{each.action}" if each.action else each.event,
                each.state,
                each.attempts,
                each.guid,
                each.note,
            )
            for each in found
        ),
        empty="There are no deliveries like that.",
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
    """Try dead deliveries again: those named, or all."""
    if bool(numbers) == every:
        raise typer.BadParameter("name the deliveries to try again, or say --all")
    chosen = None if every else [DeliveryNumber(number) for number in numbers or ()]
    count = with_store(
        lambda store: store.retry_deliveries(chosen), config=config, data_dir=data_dir
    )
    show(f"{count} {'delivery is' if count == 1 else 'deliveries are'} pending again")
