"""GitHub's webhooks in a burst, as a receiver sees them: `python -m bench.receivers.load`, a process
of its own.

Every request is signed and rendered before the first is sent. Of an answer only the end is looked for.
So the receiver is measured. The result includes the share of a core that this program took: near one,
it would have been the bottleneck.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import time
from collections import Counter, deque
from collections.abc import Iterator
from datetime import UTC, datetime
from random import Random
from typing import cast

import uvloop

from paddock.fakes.github import FakeGitHub, JobSpec, Outgoing

PATH = "/webhooks/github"
MATRIX = 256
#: Fixed: the same seed makes the same deliveries.
MOMENT = datetime(2026, 1, 5, 9, tzinfo=UTC)
_END = b"\r\n\r\n"
_LENGTH = b"content-length: "


def deliveries(count: int, *, seed: int, secret: str) -> Iterator[Outgoing]:
    """`workflow_job` events of whole matrices, in full size, signed."""
    github = FakeGitHub(now=lambda: MOMENT, rng=Random(seed))
    accounts = github.accounts
    app = accounts.add_app("paddock", webhook_secret=secret)
    organization = accounts.add_organization("octo-org")
    repository = accounts.add_repository(organization, "hello")
    accounts.install(app, organization)
    github.hooks.take()
    while count > 0:
        size = min(count, MATRIX)
        github.jobs.queue_run(repository, [JobSpec(labels=("self-hosted", "linux"))] * size)
        yield from github.hooks.take()
        count -= size


def rendered(outgoing: Outgoing) -> bytes:
    headers = {"Host": "localhost", **outgoing.headers, "Content-Length": str(len(outgoing.body))}
    lines = [f"POST {PATH} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode() + _END + outgoing.body


class Burst:
    def __init__(self, requests: list[bytes]) -> None:
        self.requests = deque(requests)
        self.open = 0
        self.seconds: list[float] = []
        self.statuses: Counter[str] = Counter()
        self.done = asyncio.get_running_loop().create_future()

    def over(self) -> None:
        self.open -= 1
        if self.open == 0 and not self.done.done():
            self.done.set_result(None)


class Connection(asyncio.Protocol):
    """Sends one request after the other on an open connection."""

    def __init__(self, burst: Burst) -> None:
        self._burst = burst
        self._answer = b""
        self._sent_at = 0.0
        self._is_waiting = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def send(self) -> None:
        if not self._burst.requests:
            self._transport.close()
            return
        self._is_waiting = True
        self._sent_at = time.perf_counter()
        self._transport.write(self._burst.requests.popleft())

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, end, body = self._answer.partition(_END)
        if not end:
            return
        lowered = head.lower()
        at = lowered.find(_LENGTH)
        length = int(lowered[at + len(_LENGTH) :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(body) < length:
            return
        self._burst.seconds.append(time.perf_counter() - self._sent_at)
        self._burst.statuses[head[9:12].decode()] += 1
        self._answer = b""
        self._is_waiting = False
        self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._is_waiting:
            self._burst.statuses["none"] += 1
        self._burst.over()


async def run(ports: list[int], requests: list[bytes], connections: int) -> dict[str, object]:
    loop = asyncio.get_running_loop()
    burst = Burst(requests)
    opened = [
        (await loop.create_connection(lambda: Connection(burst), "127.0.0.1", port))[1]
        for port in itertools.islice(itertools.cycle(ports), connections)
    ]
    burst.open = connections
    began, cpu = time.perf_counter(), time.process_time()
    for connection in opened:
        connection.send()
    await burst.done
    seconds = time.perf_counter() - began
    return {
        "seconds": seconds,
        "waits": burst.seconds,
        "statuses": dict(burst.statuses),
        "cpu_share": (time.process_time() - cpu) / seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ports", type=int, nargs="+", required=True)
    for name in ("--connections", "--count", "--seed"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--secret", required=True)
    options = parser.parse_args()
    requests = [
        rendered(outgoing)
        for outgoing in deliveries(options.count, seed=options.seed, secret=options.secret)
    ]
    print(json.dumps(uvloop.run(run(options.ports, requests, options.connections))))


if __name__ == "__main__":
    main()
