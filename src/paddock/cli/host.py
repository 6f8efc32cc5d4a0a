"""`paddock host …`: the same program as `python3 …/paddock/host`, where all of paddock is installed."""

from __future__ import annotations

from typing import Final

import typer

from paddock.host.command import main

app = typer.Typer(no_args_is_help=True, help="Make a Mac fit to run runners' virtual machines.")

#: Its options are its own: on a Mac it runs without typer.
_AS_THEY_ARE: Final = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "help_option_names": [],
}


@app.command(context_settings=_AS_THEY_ARE)
def bootstrap(context: typer.Context) -> None:
    """Packet-filter rules, what launchd starts, and the word of it to the cluster."""
    raise typer.Exit(main(["bootstrap", *context.args]))
