"""`paddock runners`"""

from __future__ import annotations

from typing import Annotated, Final

import typer

from paddock.cli.operating import NotFound, Why, with_store
from paddock.cli.options import Config, DataDir, Json
from paddock.cli.output import show, show_json, table
from paddock.domain.endings import Retired
from paddock.domain.runners import Conflict, Runner
from paddock.domain.states import RunnerState
from paddock.store.store import PgStore

app = typer.Typer(
    help="The runners there are, what they do, and sending one away.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

#: It is claimed, hands over, gets its job: nobody moves more often than this in a moment.
_ATTEMPTS: Final = 5


@app.command("list")
def list_(
    pool: Annotated[str | None, typer.Option(metavar="POOL", help="Of this pool alone.")] = None,
    as_json: Json = False,
    config: Config = None,
    data_dir: DataDir = None,
) -> None:
    """List the runners that have not ended."""
    found = with_store(
        lambda store: store.list_runners(pool=pool), config=config, data_dir=data_dir
    )
    if as_json:
        show_json(found)
        return
    table(
        ["POD", "POOL", "STATE", "SINCE", "ACCOUNT", "JOB", "NODE", "WHY"],
        (
            (
                runner.pod,
                runner.pool,
                f"{runner.state} (suspect)" if runner.suspect_since else runner.state,
                f"{runner.since:%Y-%m-%d %H:%M:%S}",
                runner.account,
                runner.job,
                runner.node,
                runner.why,
            )
            for runner in found
        ),
        empty="There are no runners: see `paddock pools list` for what pools want.",
    )


@app.command()
def retire(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Its Pod's name, or its name at GitHub.")
    ],
    why: Why = "retired by hand",
    config: Config = None,
    data_dir: DataDir = None,
) -> None:
    """Send a runner away. One that executes a job finishes it first.

    It gets no more work from now on. Then GitHub removes it, and its Pod is deleted when GitHub, its
    own log and the events agree that no job is on it: within seconds if it was never given work,
    within two minutes otherwise. `paddock serve` or `paddock up` does that; it has to run.
    """
    runner = with_store(lambda store: _retire(store, name, why), config=config, data_dir=data_dir)
    if runner is None:
        show(f"{name} is being retired already")
    else:
        show(f"{runner.pod_name} is being retired; if it executes a job it finishes that first")


async def _retire(store: PgStore, name: str, why: str) -> Runner | None:
    for _ in range(_ATTEMPTS):
        runner = await store.find_runner(name)
        if runner is None:
            raise NotFound(f"There is no runner {name}: see `paddock runners list`.")
        if runner.state is RunnerState.GONE:
            raise NotFound(f"{name} has ended: there is nothing left to retire.")
        if runner.state is RunnerState.RETIRING:
            return None
        fenced = await store.fence_runner(
            runner.id,
            generation=runner.generation,
            state=runner.state,
            why=why,
            retired=Retired.UNWANTED,
        )
        if not isinstance(fenced, Conflict):
            return fenced
    raise NotFound(f"{name} changed {_ATTEMPTS} times while it was looked at: try it once more.")
