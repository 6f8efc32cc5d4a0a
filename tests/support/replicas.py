"""`paddock serve` as a process of its own, and GitHub's bursts of webhooks at it."""

from __future__ import annotations

import asyncio
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from paddock.fakes.github.keys import make_private_key
from tests.support.payloads import workflow_job
from tests.support.processes import COMMAND, clean_environment
from tests.support.webhooks import PATH, encoded, headers

SECRET = "a-word-without-spaces"  # which would start several servers

_KEY = make_private_key()


@dataclass
class Replica:
    process: asyncio.subprocess.Process
    url: str
    log: Path

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        assert parts.port is not None
        return parts.hostname, parts.port

    async def ended(self) -> int:
        async with asyncio.timeout(120):
            return await self.process.wait()


@asynccontextmanager
async def paddock_serve(
    directory: Path,
    database_url: str,
    *arguments: str,
    listen: str = "127.0.0.1:0",
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Replica]:
    """Starts it and waits until it is ready. Its GitHub is away: the tests need only the receiver."""
    key, log = directory / "app.pem", directory / "serve.log"
    key.write_text(_KEY)
    settings = {
        "PADDOCK_DATABASE_URL": database_url,
        "PADDOCK_LISTEN": listen,
        "PADDOCK_GITHUB_API_URL": "http://127.0.0.1:9",
        "PADDOCK_GITHUB_APP_ID": "12",
        "PADDOCK_GITHUB_PRIVATE_KEY_FILE": str(key),
        "PADDOCK_GITHUB_WEBHOOK_SECRET": SECRET,
        "PYTHONUNBUFFERED": "1",
    }
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            "serve",
            *arguments,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=clean_environment({**settings, **(environment or {})}),
            start_new_session=True,
        )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            line = (await process.stdout.readline()).decode()
        assert " answers at " in line, log.read_text()
        yield Replica(process, line.split()[-1], log)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@dataclass
class Burst:
    """Webhooks sent in parallel, each once, and the answer to each."""

    address: tuple[str, int]
    guids: list[str]
    statuses: dict[str, int] = field(default_factory=dict)
    #: Called after each answer.
    heard: Callable[[], None] = lambda: None

    @property
    def acknowledged(self) -> set[str]:
        return {guid for guid, status in self.statuses.items() if 200 <= status < 300}

    @property
    def counted(self) -> Counter[int]:
        """By status; 0 is no answer."""
        return Counter(self.statuses.values())

    async def send(self, connections: int = 50) -> None:
        left = iter(self.guids)

        async def connection() -> None:
            writer: asyncio.StreamWriter | None = None
            for guid in left:
                self.statuses[guid] = 0
                try:
                    if writer is None:
                        reader, writer = await asyncio.open_connection(*self.address)
                    self.statuses[guid] = await _post(reader, writer, guid)
                    self.heard()
                except (OSError, EOFError):
                    if writer is not None:
                        writer.close()
                    writer = None
            if writer is not None:
                writer.close()

        async with asyncio.TaskGroup() as group:
            for _ in range(connections):
                group.create_task(connection())


async def _post(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, guid: str) -> int:
    body = encoded(workflow_job(job=hash(guid) & 0x7FFFFFFF))
    sent = headers(body, guid=guid, secret=SECRET)
    lines = [f"POST {PATH} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in sent.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    await reader.readexactly(int(head.split("content-length: ")[1].split("\r\n")[0]))
    if "connection: close" in head:
        writer.close()
    return int(head.split()[1])
