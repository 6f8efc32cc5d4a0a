"""`paddock runners`"""

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
from paddock.cli.operator_commands import Why, as_operator
from paddock.cli.options import AsJson, Config, DataDir
from paddock.cli.output import show, show_json, table
from paddock.domain.reading.filters import Paging, RunnerFilter
from paddock.domain.reading.rows import RunnerLine
from paddock.domain.states import RunnerState

app = typer.Typer(
    help="List runners and what they do, or retire one.",
    cls=Listing,
    rich_markup_mode=None,
)


@app.command("list")
def list_(
    state: Annotated[RunnerState | None, typer.Option(help="Only those in this state.")] = None,
    pool: Annotated[str | None, typer.Option(metavar="POOL", help="Of this pool alone.")] = None,
    account: Annotated[str | None, typer.Option(metavar="LOGIN")] = None,
    node: Annotated[str | None, typer.Option(metavar="NODE")] = None,
    ended: Annotated[bool, typer.Option("--ended", help="Those that have ended.")] = False,
    limit: Limit = DEFAULT_LIMIT,
    after: Cursor = None,
    as_json: AsJson = False,
    config: Config = None,
    data_dir: DataDir = None,
) -> None:
    """List living runners, or with --ended the ended ones, the newest first.

    Examples:

        paddock runners --state busy --pool linux

        paddock runners --ended -n 20
    """
    live = None if state is RunnerState.GONE else not ended
    wanted = RunnerFilter(state=state, pool=pool, account=account, node=node, live=live)
    page = with_reading(
        lambda reading: reading.runners(wanted, Paging(limit=limit, cursor=after)),
        config=config,
        data_dir=data_dir,
    )
    there_is_more(page)
    if as_json:
        show_json(page.items)
        return
    table(
        ["POD", "POOL", "STATE", "SINCE", "ACCOUNT", "JOB", "NODE", prose("WHY")],
        (
            (
                runner.pod,
                runner.pool,
                _state(runner),
                ago(runner.since),
                runner.account,
                runner.job,
                runner.node,
                runner.why,
            )
            for runner in page.items
        ),
        empty="No runner matches: `paddock pools list` shows the sizes of pools.",
    )


def _state(runner: RunnerLine) -> str:
    if runner.ending is not None:
        return runner.ending
    return f"{runner.state} (suspect)" if runner.suspect_since else runner.state


@app.command()
def retire(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Its Pod's name, or its name at GitHub.")
    ],
    why: Why = "retired by hand",
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="End it now, also in the middle of a job. Nothing undoes this."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before --force.")] = False,
    config: Config = None,
    data_dir: DataDir = None,
) -> None:
    """Retire a runner. A runner with a job finishes it first.

    It gets no more work from now on. Then GitHub removes it, and its Pod is deleted when GitHub, its
    own log and the events agree that no job is on it: within seconds if it was never given work,
    within two minutes otherwise. `paddock serve` or `paddock up` does that, so one must be running.

    With --force its Pod is deleted at once, even in the middle of a job. Use it for a runner that
    will never end by itself, for instance of an account that has removed the App. Its history and its
    verdict record your name.
    """
    if force and not yes:
        typer.confirm(
            f"If {name} executes a job, that job is lost. Nothing undoes this. End it by force?",
            abort=True,
        )
    runner = as_operator(
        lambda operator: operator.retire_runner(name, why=why, force=force),
        config=config,
        data_dir=data_dir,
    )
    if runner is None:
        show(f"{name} is being retired already")
    elif force:
        show(f"{runner.pod_name} is ended by force")
    else:
        show(f"{runner.pod_name} is being retired; if it executes a job it finishes that first")
