"""Network features that real clusters have and this one lacks: Services that lead to Pods, and ways
for Pods to servers of this machine."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path

from tools.cluster.api import Api
from tools.cluster.facts import BRIDGE
from tools.cluster.node import run

#: An address and a port, or a socket's path.
Target = tuple[str, int] | Path
#: Where the API server's own Service is, in every Pod's environment.
KUBERNETES = ("10.242.0.1", 443)


@asynccontextmanager
async def forwarded(
    address: str,
    port: int,
    target: Callable[[], Awaitable[Target | None]],
    *,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    """Passes connections to the port on to the current `target`; refuses them if there is none."""
    open_now: set[asyncio.StreamWriter] = set()

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while some := await reader.read(65536):
                writer.write(some)
                await writer.drain()
        writer.close()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        aim = await target()
        try:
            if aim is None:
                raise ConnectionRefusedError
            if isinstance(aim, Path):
                there, back = await asyncio.open_unix_connection(aim)
            else:
                there, back = await asyncio.open_connection(*aim)
        except OSError:
            # As a kernel does for a Service without endpoints.
            writer.transport.abort()
            return
        both = {writer, back}
        open_now.update(both)
        try:
            await asyncio.gather(pipe(reader, back), pipe(there, writer))
        finally:
            open_now.difference_update(both)

    server = await asyncio.start_server(forward, address, port, ssl=tls)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for writer in list(open_now):
            writer.transport.abort()


def always(target: Target) -> Callable[[], Awaitable[Target]]:
    async def aim() -> Target:
        return target

    return aim


@contextmanager
def addresses(*wanted: str) -> Iterator[None]:
    """These addresses belong to this machine meanwhile, so that Pods reach them."""
    for address in wanted:
        run("ip", "addr", "replace", f"{address}/32", "dev", BRIDGE)
    try:
        yield
    finally:
        for address in wanted:
            run("ip", "addr", "delete", f"{address}/32", "dev", BRIDGE, check=False)


@asynccontextmanager
async def service(api: Api, namespace: str, name: str, address: str) -> AsyncIterator[None]:
    """Leads to the Service's ready Pods in turn."""
    turns = 0

    def aim(port: str) -> Callable[[], Awaitable[Target | None]]:
        async def ready() -> Target | None:
            nonlocal turns
            turns += 1
            found = await _ready(api, namespace, name, port)
            return found[turns % len(found)] if found else None

        return ready

    spec = (await api.get(f"/api/v1/namespaces/{namespace}/services/{name}"))["spec"]
    async with AsyncExitStack() as stack:
        for port in spec["ports"]:
            await stack.enter_async_context(forwarded(address, port["port"], aim(port["name"])))
        yield


@contextmanager
def translated(address: str, port: int, target: tuple[str, int]) -> Iterator[None]:
    """As on a real cluster: packets of Pods to a Service get another address before they are filtered.
    The connections of `service` end on this machine, where policies do not follow them."""
    rule = [
        *("PREROUTING", "--in-interface", BRIDGE, "--destination", address, "--protocol", "tcp"),
        *("--dport", str(port), "--jump", "DNAT", "--to-destination", f"{target[0]}:{target[1]}"),
    ]
    run("iptables", "--table", "nat", "--append", *rule)
    try:
        yield
    finally:
        run("iptables", "--table", "nat", "--delete", *rule)


async def _ready(api: Api, namespace: str, name: str, port: str) -> list[tuple[str, int]]:
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    slices = await api.get(path, labelSelector=f"kubernetes.io/service-name={name}")
    return [
        (address, number["port"])
        for each in slices["items"]
        for number in each["ports"] or ()
        if number["name"] == port
        for endpoint in each["endpoints"] or ()
        if endpoint["conditions"].get("ready")
        for address in endpoint["addresses"]
    ]
