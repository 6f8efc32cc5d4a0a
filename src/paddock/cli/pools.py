"""`paddock pools`"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from paddock.cli import pool_explanations
from paddock.cli.layout import prose
from paddock.cli.listing import Listing
from paddock.cli.operator_commands import (
    NoSuchObject,
    Why,
    as_operator,
    paused,
    tell_dispatch_pause,
    with_store,
)
from paddock.cli.options import AsJson, Config, DataDir
from paddock.cli.output import show, show_json, show_lines, table
from paddock.domain.pauses import Pause
from paddock.domain.pools.pool import PoolSummary
from paddock.domain.pools.surveys import PoolExplanation
from paddock.pools.spec import read_pool_file
from paddock.store.store import PgStore
from paddock.system import SystemClock

app = typer.Typer(
    help="List, change, pause and explain pools.",
    cls=Listing,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(metavar="POOL")]


@app.command()
def apply(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="YAML, a RunnerPool per document.")],
    config: Config = None,
    data_dir: DataDir = None,
) -> None:
    """Create the pools that a file describes, or change those of the same names.

    A file with a mistake in it changes nothing. Jobs that waited because no pool fitted them are
    matched again at once.

    Example of a file:

    \b
        apiVersion: paddock.dev/v1alpha1
        kind: RunnerPool
        metadata: {name: linux}
        spec:
          labels: [self-hosted, linux, x64]
          resources: {vcpu: 2, memory: 4Gi}
          minIdle: 2
          maxRunners: 20
    """
    pools = read_pool_file(file)
    as_operator(lambda operator: operator.apply_pools(pools), config=config, data_dir=data_dir)
    for pool in pools:
        show(f"applied {pool.name}: {', '.join(pool.labels)}")


@app.command("list")
def list_(as_json: AsJson = False, config: Config = None, data_dir: DataDir = None) -> None:
    """List pools with their labels and their runners."""

    async def work(store: PgStore) -> tuple[Sequence[PoolSummary], Pause | None]:
        return await store.list_pools(), await store.dispatch_pause()

    pools, pause = with_store(work, config=config, data_dir=data_dir)
    tell_dispatch_pause(pause)
    if as_json:
        show_json(pools)
        return
    table(
        ["POOL", "STATE", "LABELS", "GROUP", "RUNNERS", "IDLE", "QUEUED", prose("PAUSED")],
        (
            (
                pool.name,
                pool.state,
                ", ".join(pool.labels),
                pool.runner_group or "default",
                pool.runners
                if pool.max_runners is None
                else f"{pool.runners} of {pool.max_runners}",
                pool.idle,
                pool.queued,
                paused(pool),
            )
            for pool in pools
        ),
        empty="There are no pools yet: describe one in a file and `paddock pools apply FILE`.",
    )


@app.command()
def pause(
    name: Name, why: Why = "paused by hand", config: Config = None, data_dir: DataDir = None
) -> None:
    """Claim no runners of a pool. Running jobs go on; waiting jobs keep their place in the queue."""
    done = as_operator(
        lambda operator: operator.pause_pool(name, why=why), config=config, data_dir=data_dir
    )
    show(f"{name} is paused" if done else f"{name} was paused already")


@app.command()
def resume(
    name: Name, why: Why = "resumed by hand", config: Config = None, data_dir: DataDir = None
) -> None:
    """Claim runners of a paused pool again."""
    done = as_operator(
        lambda operator: operator.resume_pool(name, why=why), config=config, data_dir=data_dir
    )
    show(f"{name} gives out runners again" if done else f"{name} was not paused")


@app.command()
def explain(
    name: Name, as_json: AsJson = False, config: Config = None, data_dir: DataDir = None
) -> None:
    """Tell why a pool has its size: term by term, and what keeps it from having more.

    Also which runners are starting, which are stale and about to be replaced, which are leaving and
    why, and which jobs wait for the pool.
    """

    async def work(store: PgStore) -> PoolExplanation:
        pool = await store.find_pool(name)
        found = None if pool is None else await store.explain_pool(pool)
        if found is None:
            raise NoSuchObject(f"There is no pool {name}: see `paddock pools list`.")
        return found

    explanation = with_store(work, config=config, data_dir=data_dir)
    if as_json:
        show_json(pool_explanations.as_json(explanation))
    else:
        show_lines(pool_explanations.told(explanation, now=SystemClock().now()))


@app.command()
def delete(
    name: Name, why: Why = "deleted by hand", config: Config = None, data_dir: DataDir = None
) -> None:
    """Delete a pool. Runners with a job finish it; idle runners leave at once.

    Jobs that wait for the pool go to another pool with their labels, as soon as there is one. To
    rename a pool, delete it and apply it under its new name.
    """
    done = as_operator(
        lambda operator: operator.delete_pool(name, why=why), config=config, data_dir=data_dir
    )
    show(
        f"{name} is being deleted, and is gone when its last runner is"
        if done
        else f"{name} is being deleted already"
    )
