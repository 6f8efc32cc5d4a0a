"""What TLS between Pods and the server costs the server.

One server answers at two addresses, with TLS and without. Pods poll as the agent does: one connection
per poll, and so one handshake. The two kinds take turns, so that other load on the machine hits both
alike. Then many polls of one kind are held open, and as many of the other kind beside them.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from rich.console import RenderableType

from bench.common import Neighbours, Report, environment, median, postgres, say, table
from bench.dispatch_site import Http, Site, site
from tests.support.certificates import Authority, SecretVolume

#: Enough to keep the server busy.
AT_ONCE = 8
#: An idle Pod polls about every 40 s: `paddock.agent.poll` waits for 25 to 50.
POLL_SECONDS = 37.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    polls: int
    rounds: int
    held: int


FULL = Effort(polls=3000, rounds=5, held=500)
QUICK = Effort(polls=1000, rounds=3, held=300)


@dataclass(frozen=True, slots=True)
class Door:
    name: str
    port: int
    tls: ssl.SSLContext | None


async def run(*, quick: bool) -> Report:
    effort, others = QUICK if quick else FULL, Neighbours()
    with tempfile.TemporaryDirectory() as directory:
        authority, volume = Authority(), SecretVolume(Path(directory) / "tls")
        volume.put(authority.issue("localhost"))
        trusting = ssl.create_default_context(cadata=authority.pem.decode())
        port = _free()
        settings = (
            f'pods_listen = "127.0.0.1:{port}"\n'
            f'pods_certificate_file = "{volume.certificate}"\npods_key_file = "{volume.key}"\n'
        )
        async with postgres() as server:
            about = await environment(server.url)
            async with site(server, settings) as place:
                doors = (Door("plain", place.port, None), Door("TLS", port, trusting))
                tokens = await place.tokens(2 * effort.held)
                await _polls(place, doors[0], tokens, len(tokens))  # in which each becomes idle
                cpu: dict[str, list[float]] = {door.name: [] for door in doors}
                for number in range(effort.rounds):
                    for door in doors:
                        say(f"{effort.polls} polls, {door.name}, round {number + 1}")
                        cpu[door.name].append(await _polls(place, door, tokens, effort.polls))
                say(f"{effort.held} held polls of each kind")
                memory = await _held(place, doors, tokens, effort.held)
    data = {
        "cpu_ms_per_poll": {name: round(median(each), 3) for name, each in cpu.items()},
        "cpu_ms_per_poll_rounds": {
            name: [round(one, 3) for one in each] for name, each in cpu.items()
        },
        "memory_kib_per_held_poll": {name: round(each, 1) for name, each in memory.items()},
    }
    return Report(
        environment={**about, "neighbours": others.share()},
        data=data,
        show=lambda: _shown(cpu, memory),
    )


async def _polls(place: Site, door: Door, tokens: Sequence[str], count: int) -> float:
    """Milliseconds of the server's processor time for each."""
    asking = cycle(tokens)

    async def ask(share: Sequence[str]) -> None:
        for token in share:
            http = await Http.open(door.port, door.tls)
            headers = {"Authorization": f"Bearer {token}", "Connection": "close"}
            status, _ = await http.post("/v1/dispatch?wait=0", headers)
            assert status == 204, status
            http.close()

    shares = [list(islice(asking, count // AT_ONCE)) for _ in range(AT_ONCE)]
    before = place.cpu()
    await asyncio.gather(*map(ask, shares))
    return (place.cpu().server - before.server) / (count // AT_ONCE * AT_ONCE) * 1e3


async def _held(
    place: Site, doors: Sequence[Door], tokens: Sequence[str], count: int
) -> dict[str, float]:
    """KiB of the server's memory for each."""
    found = {}
    async with AsyncExitStack() as stack:
        for number, door in enumerate(doors):
            before = _resident(place.pid)
            for token in tokens[number * count : (number + 1) * count]:
                http = await Http.open(door.port, door.tls)
                stack.callback(http.close)
                headers = {"Authorization": f"Bearer {token}"}
                task = asyncio.create_task(http.post("/v1/dispatch?wait=50", headers))
                stack.callback(task.cancel)
            await asyncio.sleep(3)  # until all of them are heard
            found[door.name] = (_resident(place.pid) - before) / count
    return found


def _resident(pid: int) -> int:
    """In KiB."""
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0])


def _free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _shown(cpu: dict[str, list[float]], memory: dict[str, float]) -> list[RenderableType]:
    pods = POLL_SECONDS * 10  # of a core's 1000 ms in a second, in per cent
    rows = [
        (
            name,
            "a connection each",
            f"{median(each):.2f}",
            f"{1000 * median(each) / pods:.1f}",
            f"{memory[name]:.0f}",
        )
        for name, each in cpu.items()
    ]
    columns = ("kind", "", "ms per poll", "% of a core, 1,000 idle Pods", "KiB per held poll")
    return [table("What a poll costs the server", *columns, rows=rows)]
