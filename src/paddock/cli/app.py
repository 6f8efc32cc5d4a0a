"""`paddock`: its commands, and the one place where errors become a sentence and an exit code."""

from __future__ import annotations

import asyncio
import os
import sys

import typer

import paddock
from paddock.cli import (
    accounts,
    deliveries,
    doctor,
    drain,
    endings,
    host,
    jobs,
    migrate,
    pausing,
    pools,
    rules,
    runners,
    serve,
    sim,
    top,
    up,
    why,
)
from paddock.cli.address import AlreadyRunning
from paddock.cli.operating import NotFound
from paddock.cli.output import complain
from paddock.pools.spec import PoolFileError
from paddock.settings import SettingsError
from paddock.store.errors import StoreError

EXIT_FAILED = 1  # 2 is for wrong usage, and typer's
EXIT_NOT_FOUND = 3
EXIT_INTERRUPTED = 130  # what a shell makes of Ctrl-C

app = typer.Typer(
    name="paddock",
    help="""A control plane for ephemeral GitHub Actions runners on Kubernetes.

    Try it on this machine, with nothing else installed:

        paddock up

    Settings are PADDOCK_* variables, or a TOML file given with --config. Without
    PADDOCK_DATABASE_URL paddock runs a PostgreSQL of its own, and finds the one that
    `paddock up` runs.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 nothing is known by that name.
    """,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(up.up)
app.command()(serve.serve)
app.command()(migrate.migrate)
app.command()(doctor.doctor)
app.command()(why.why)
app.command()(top.top)
app.command()(rules.rules)
app.command()(drain.drain)
app.command()(pausing.pause)
app.command()(pausing.resume)

app.add_typer(jobs.app, name="jobs")
app.add_typer(runners.app, name="runners")
app.add_typer(endings.app, name="endings")
app.add_typer(pools.app, name="pools")
app.add_typer(accounts.app, name="accounts")
app.add_typer(deliveries.app, name="deliveries")
app.add_typer(host.app, name="host")
app.add_typer(sim.app, name="sim")


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(f"paddock {paddock.__version__}")


def main() -> None:
    try:
        app()
    except StoreError as error:
        _end(error, error.message)
    except NotFound as error:
        _end(error, str(error), code=EXIT_NOT_FOUND)
    except AlreadyRunning as error:
        _end(error, str(error))
    except (PoolFileError, SettingsError) as error:
        _end(error, *error.mistakes)
    except (asyncio.CancelledError, KeyboardInterrupt):
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:
        _end(
            error,
            f"unexpected {type(error).__name__}: {error} (this is a bug in paddock; with "
            "PADDOCK_DEBUG=1 set it shows where)",
        )


def _end(error: Exception, *sentences: str, code: int = EXIT_FAILED) -> None:
    if os.environ.get("PADDOCK_DEBUG"):
        raise error
    for sentence in sentences:
        complain(sentence)
    sys.exit(code)
