"""paddock's receiver alone: `python -m bench.receivers.ours`.

It only stores deliveries; `paddock serve` would also apply them.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal

import uvloop

from paddock.serve import serve, tune_garbage_collection
from paddock.settings import load
from paddock.store.database import Database


async def main() -> None:
    settings = load()
    assert settings.database_url is not None
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    database = await Database.connect(settings.database_url.get_secret_value())
    try:
        await serve(database, settings, ready=_ready, services=lambda _: ())
    finally:
        await database.close()


def _ready(url: str) -> None:
    tune_garbage_collection()
    print(url, flush=True)


if __name__ == "__main__":
    with contextlib.suppress(asyncio.CancelledError):
        uvloop.run(main())
