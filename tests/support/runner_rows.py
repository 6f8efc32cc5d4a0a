"""What tests read of runners, and the end of one: the services have no use for these."""

from __future__ import annotations

from typing import Any

from paddock.domain.ids import RunnerId
from paddock.domain.recovery.records import RunnerEnd
from paddock.domain.runners.runner import Conflict, Runner
from paddock.domain.runners.vitals import Sample
from paddock.store.store import PgStore
from paddock.store.vitals import series_of


async def read_runner(store: PgStore, runner: RunnerId) -> Runner | None:
    row = await store._database.row("SELECT pod_name FROM runners WHERE id = $1", runner)
    return None if row is None else await store.find_runner(row["pod_name"])


async def conclude_runner(store: PgStore, runner: RunnerId, **how: Any) -> Runner | Conflict:
    ended = await store.conclude_runners([RunnerEnd(runner=runner, **how)])
    if ended:
        return ended[0]
    found = await read_runner(store, runner)
    return Conflict(None, None) if found is None else Conflict(found.state, found.generation)


async def read_samples(store: PgStore, runner: RunnerId) -> list[Sample]:
    row = await store._database.row(
        "SELECT series, recent FROM vitals WHERE runner_id = $1", runner
    )
    return series_of(row)
