"""A simulated internet, in which every address answers: a network namespace of this machine.

All packets of Pods to addresses outside the cluster go there, also those to a cloud's metadata or to
GitHub. None of them leaves this machine, and the machine's own packets keep their routes.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tools.cluster.facts import BRIDGE, POD_RANGE
from tools.cluster.node import run

#: On which every address answers, over TCP.
PORTS = (80, 443)

_NAMESPACE = "paddock-outside"
_HERE, _THERE = "paddock1", "paddock2"
_HERE_ADDRESS, _THERE_ADDRESS = "10.243.0.1", "10.243.0.2"
#: The routing table for packets from Pods, and the rule that chooses it.
_TABLE = "241"

_ANSWER = """
import asyncio, sys

async def answer(reader, writer):
    writer.close()

async def main():
    for port in sys.argv[1:]:
        await asyncio.start_server(answer, "0.0.0.0", int(port))
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@contextmanager
def outside() -> Iterator[None]:
    with ExitStack() as stack:
        _remove()
        stack.callback(_remove)
        run("ip", "netns", "add", _NAMESPACE)
        run("ip", "link", "add", _HERE, "type", "veth", "peer", _THERE, "netns", _NAMESPACE)
        run("ip", "addr", "add", f"{_HERE_ADDRESS}/30", "dev", _HERE)
        run("ip", "link", "set", _HERE, "up")
        # Answers come from addresses that this machine would route elsewhere.
        Path(f"/proc/sys/net/ipv4/conf/{_HERE}/rp_filter").write_text("2")
        for arguments in (
            ["link", "set", "lo", "up"],
            ["addr", "add", f"{_THERE_ADDRESS}/30", "dev", _THERE],
            ["link", "set", _THERE, "up"],
            ["route", "add", POD_RANGE, "via", _HERE_ADDRESS],
            # Every other address is its own.
            ["route", "add", "local", "default", "dev", "lo", "table", "main"],
        ):
            run("ip", "-netns", _NAMESPACE, *arguments)
        run("ip", "route", "add", POD_RANGE, "dev", BRIDGE, "table", _TABLE)
        run("ip", "route", "add", "default", "via", _THERE_ADDRESS, "table", _TABLE)
        run("ip", "rule", "add", "iif", BRIDGE, "lookup", _TABLE, "priority", _TABLE)
        stack.enter_context(_answering())
        yield


@contextmanager
def _answering() -> Iterator[None]:
    command = ["ip", "netns", "exec", _NAMESPACE, sys.executable, "-c", _ANSWER]
    with subprocess.Popen(
        [*command, *map(str, PORTS)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield
        finally:
            process.terminate()


def _remove() -> None:
    """Also removes what a killed test left."""
    run("ip", "rule", "delete", "priority", _TABLE, check=False)
    run("ip", "route", "flush", "table", _TABLE, check=False)
    run("ip", "link", "delete", _HERE, check=False)
    run("ip", "netns", "delete", _NAMESPACE, check=False)
