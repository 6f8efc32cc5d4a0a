"""`paddock host …`: the same program as `python3 …/paddock/host`, for a full installation."""

from __future__ import annotations

from typing import Final

import typer

from paddock.host.command import main

app = typer.Typer(no_args_is_help=True, help="Set up a Mac to run runners' virtual machines.")

#: `paddock.host` parses its own options: on a Mac it runs without typer.
_AS_THEY_ARE: Final = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "help_option_names": [],
}


@app.command(context_settings=_AS_THEY_ARE)
def bootstrap(context: typer.Context) -> None:
    """Set up packet-filter rules and launchd jobs, and report the result to the cluster."""
    raise typer.Exit(main(["bootstrap", *context.args]))
