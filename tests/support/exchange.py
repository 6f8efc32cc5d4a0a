"""One request of any bytes to a real server, and its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

#: Longer than any deadline of a listener. An answer that takes longer is a defect.
PATIENCE = 30.0
#: A complete request is answered sooner.
_PAUSE = 0.03


@dataclass(frozen=True)
class Answered:
    #: 0: the connection was closed without an answer.
    status: int
    body: bytes


async def exchange(url: str, *pieces: bytes, whole: bool = True) -> Answered:
    """Sends the pieces one by one. If they are not a whole request, the sender then closes its side.
    After a whole one uvicorn would take that for a disconnect."""
    parts = urlsplit(url)
    async with asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        received = b""
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            if not whole:
                with suppress(TimeoutError):
                    received = await asyncio.wait_for(reader.read(65536), _PAUSE)
                writer.write_eof()
            received += await reader.read()
        except OSError:
            pass  # the server closed while we were sending
        finally:
            writer.close()
    head, _, body = received.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    return Answered(int(words[1]) if len(words) > 1 else 0, body)


def request(
    path: str, body: bytes = b"", headers: Sequence[tuple[str, str]] = (), *, method: str = "POST"
) -> bytes:
    """A whole request, after whose answer the connection ends. Omits what a header cannot contain."""
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers]
    clean = [line.encode("latin-1", "replace") for line in lines]
    clean = [bytes(each for each in line if each not in b"\r\n\0") for line in clean]
    return b"\r\n".join([*clean, b"Content-Length: %d" % len(body), b"", body])
