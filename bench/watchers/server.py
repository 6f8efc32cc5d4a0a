"""The API server of `bench.watch`: `python -m bench.watchers.server PODS EVENTS`, a process of its own.

It renders every byte before the first request and sends the same to all clients. It notes the time of
the first request, so that a client's start-up is not counted. It also notes which share of a core it
needed: near one, it would have been the bottleneck.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Final
from urllib.parse import parse_qs, urlsplit

import uvloop

from bench.watchers.stream import NAMESPACE, Stream, stream

PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
#: Events written at once. The reader gets them one chunk each, as from Kubernetes.
_AT_ONCE: Final = 32


def _kind(name: str, kind: str, *, namespaced: bool) -> dict[str, object]:
    verbs = ["get", "list", "watch", "patch"]
    singular = kind.lower()
    return {
        "name": name,
        "singularName": singular,
        "namespaced": namespaced,
        "kind": kind,
        "verbs": verbs,
    }


#: Clients that discover a server's abilities ask for these.
_DISCOVERY: Final = {
    "/version": {"major": "1", "minor": "34"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [
            _kind("pods", "Pod", namespaced=True),
            _kind("namespaces", "Namespace", namespaced=False),
        ],
    },
}


class Server:
    def __init__(self, content: Stream) -> None:
        self._content = content
        self._chunks = [b"%x\r\n%b\r\n" % (len(line), line) for line in content.events]
        self._asked: float | None = None
        self._cpu = 0.0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                target = head.split(b" ", 2)[1].decode()
                await self._answer(target, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, target: str, writer: asyncio.StreamWriter) -> None:
        split = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(split.query).items()}
        if split.path == PODS:
            if self._asked is None:
                self._asked, self._cpu = time.monotonic(), time.process_time()
            if query.get("watch", "").lower() == "true":
                await self._watch(writer)
            else:
                await _send(writer, self._page(query))
        elif split.path == "/finals":
            await _send(writer, json.dumps(self._content.finals).encode())
        elif split.path == "/asked":
            # The next client starts afresh.
            asked, used = self._asked, time.process_time() - self._cpu
            self._asked = None
            await _send(writer, json.dumps({"at": asked, "cpu": used}).encode())
        elif split.path in _DISCOVERY:
            await _send(writer, json.dumps(_DISCOVERY[split.path]).encode())
        else:
            await _send(writer, b'{"kind":"Status","code":404}', status=b"404 Not Found")

    def _page(self, query: dict[str, str]) -> bytes:
        pods = self._content.pods
        begin = int(query.get("continue", "0"))
        end = begin + (int(query.get("limit", "0")) or len(pods))
        going_on = b',"continue":"%d"' % end if end < len(pods) else b""
        return (
            b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%d"%b},"items":[%b]}\n'
            % (self._content.version, going_on, b",".join(pods[begin:end]))
        )

    async def _watch(self, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        for begin in range(0, len(self._chunks), _AT_ONCE):
            writer.write(b"".join(self._chunks[begin : begin + _AT_ONCE]))
            await writer.drain()
        # It stays open, as a watch does, until the client closes it.
        await asyncio.sleep(3600)


async def _send(writer: asyncio.StreamWriter, body: bytes, *, status: bytes = b"200 OK") -> None:
    writer.write(
        b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        % (status, len(body))
    )
    writer.write(body)
    await writer.drain()


async def main() -> None:
    server = Server(stream(int(sys.argv[1]), int(sys.argv[2])))
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await listening.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
