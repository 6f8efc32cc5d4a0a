"""`paddock`: its commands, and the only place that turns errors into a sentence and an exit code."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Annotated

import typer

import paddock
from paddock.cli.commands import Commands
from paddock.cli.output import complain, guard_streams, show, show_trace

EXIT_FAILED = 1  # typer uses 2 for wrong usage
EXIT_NOT_FOUND = 3
EXIT_INTERRUPTED = 130  # a shell's code for Ctrl-C

app = typer.Typer(
    name="paddock",
    cls=Commands,
    help="""A control plane for ephemeral GitHub Actions runners on Kubernetes.

    Try it on this machine, with nothing else installed:

        paddock up

    Settings are PADDOCK_* variables, or a TOML file given with --config. Without
    PADDOCK_DATABASE_URL `up`, `serve` and `migrate` run a PostgreSQL of their own in
    --data-dir; all other commands find it there, and create nothing.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 nothing is known by that name.
    """,
    no_args_is_help=True,
    # Inherited by every command.
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def version() -> None:
    """Print the version."""
    show(f"paddock {paddock.__version__}")


def _print_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def _all(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None: ...


def main(program: typer.Typer = app) -> None:
    guard_streams()
    try:
        program()
    except (asyncio.CancelledError, KeyboardInterrupt):
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:
        _explain(error)


def _explain(error: Exception) -> None:
    # Imported only here: a command without errors need not load these modules.
    from paddock.cli.address import AlreadyRunning
    from paddock.cli.operator_commands import NoSuchObject
    from paddock.pools.spec import PoolFileError
    from paddock.ports.errors import StoreError
    from paddock.settings import SettingsError

    match error:
        case StoreError():
            _end(error, error.message)
        case NoSuchObject():
            _end(error, str(error), code=EXIT_NOT_FOUND)
        case AlreadyRunning():
            _end(error, str(error))
        case PoolFileError() | SettingsError():
            _end(error, *error.mistakes)
        case _:
            _end(
                error,
                f"unexpected {type(error).__name__}: {error} (this is a bug in paddock; with "
                "PADDOCK_DEBUG=1 set it shows where)",
            )


def _end(error: Exception, *sentences: str, code: int = EXIT_FAILED) -> None:
    if os.environ.get("PADDOCK_DEBUG"):
        show_trace(error)
    for sentence in sentences:
        complain(sentence)
    sys.exit(code)
