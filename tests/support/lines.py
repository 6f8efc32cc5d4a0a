"""A connection to a PostgreSQL server that can be cut at a chosen moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from enum import Enum, auto
from pathlib import Path

# The first bytes of a connection that asks to cancel another one's query.
CANCEL_REQUEST = (80877102).to_bytes(4, "big")


class Fate(Enum):
    """The fate of a client's message."""

    ARRIVES = auto()
    IS_LOST = auto()
    IS_NOT_ANSWERED = auto()  # it arrives, and the connection breaks before the answer is back


@asynccontextmanager
async def line_to(
    server_url: str, directory: Path, fate_of: Callable[[bytes], Fate]
) -> AsyncIterator[str]:
    host = Path(server_url.partition("host=")[2].partition("&")[0])
    calls: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls.add(asyncio.create_task(_carry(reader, writer, host / ".s.PGSQL.5432", fate_of)))

    exchange = await asyncio.start_unix_server(connected, directory / ".s.PGSQL.5432")
    try:
        yield server_url.replace(str(host), str(directory))
    finally:
        exchange.close()
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


async def _carry(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    server: Path,
    fate_of: Callable[[bytes], Fate],
) -> None:
    upstream, up = await asyncio.open_unix_connection(server)
    is_cut = False

    async def answer() -> None:
        while (data := await upstream.read(65536)) and not is_cut:
            writer.write(data)
        writer.close()

    answering = asyncio.create_task(answer())
    try:
        while data := await reader.read(65536):
            fate = fate_of(data)
            is_cut = fate is Fate.IS_NOT_ANSWERED
            if fate is not Fate.IS_LOST:
                up.write(data)
    finally:
        answering.cancel()
        for end in (up, writer):
            end.close()
            with suppress(OSError):
                await end.wait_closed()
