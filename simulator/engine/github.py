"""The fake GitHub in virtual time, and the transport from the product's own client to it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from paddock.fakes.github import FakeGitHub, Reply, Request
from paddock.github.connection import ApiResponse, RequestUnanswered
from simulator.engine.faults import Fault, Faults
from simulator.engine.loop import VirtualLoop
from simulator.engine.replica_process import ReplicaProcess
from simulator.engine.time import BEGINNING

API_URL = "http://github.simulated"

#: A client without an answer gives up after this.
_READ_TIMEOUT = 15.0
#: Longer than any answer takes without faults.
_SLOW = 0.5
_NEXT = re.compile(r'<([^>]+)>; rel="next"')
_TICK = timedelta(microseconds=1)


class GitHubTimers:
    """Runs the model's timers when they are due."""

    def __init__(self, github: FakeGitHub, loop: VirtualLoop) -> None:
        self._github = github
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        github.world.schedule.on_sooner = self._arm
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (due := self._github.next_due) is not None:
            # A microsecond later: time is rounded to microseconds, and must not end just before it.
            when = (due + _TICK - BEGINNING).total_seconds()
            self._timer = self._loop.call_at(max(when, self._loop.time()), self._beat)

    def _beat(self) -> None:
        self._timer = None
        self._github.advance()
        self._arm()


class Wire:
    """The transport from a replica to the fake GitHub and back."""

    def __init__(
        self,
        github: FakeGitHub,
        machine: ReplicaProcess,
        faults: Faults,
        answered: Callable[[str, int, Mapping[str, str]], None],
    ) -> None:
        """`answered` receives the path of every request, its status (0 is no answer) and its
        headers."""
        self._github = github
        self._machine = machine
        self._faults = faults
        self._answered = answered

    async def send(
        self,
        method: str,
        path: str,
        *,
        token: str,
        params: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> ApiResponse:
        address = urlsplit(path)
        query = dict(parse_qsl(address.query)) | {
            name: str(value) for name, value in (params or {}).items()
        }
        await self._machine.turn(f"github {method} {address.path}")
        if self._faults.dark:
            self._answered(address.path, 0, {})
            raise RequestUnanswered("the simulated network is away", sent=False)
        reply = self._github.request(
            Request(
                method,
                address.path,
                query,
                {"authorization": f"Bearer {token}"},
                None if body is None else dict(body),
            )
        )
        self._answered(address.path, 0 if reply.lost else reply.status, reply.headers)
        if reply.lost:
            await asyncio.sleep(_READ_TIMEOUT)
            raise RequestUnanswered("the simulated connection broke", sent=True)
        if reply.latency:
            if reply.latency > _SLOW:
                self._faults.happened(Fault.GITHUB_SLOW)
            await asyncio.sleep(reply.latency)
        return _answer(reply)

    async def aclose(self) -> None: ...


def _answer(reply: Reply) -> ApiResponse:
    body = b""
    if isinstance(reply.body, str):
        body = reply.body.encode()
    elif reply.body is not None:
        body = msgspec.json.encode(reply.body)
    following = _NEXT.search(reply.headers.get("link", ""))
    return ApiResponse(
        status=reply.status,
        headers=reply.headers,
        body=body,
        next=following[1] if following else None,
    )


#: The fake's own name for each fault that it produces.
_COUNTED = {
    Fault.HOOK_LOST: "hook_lost",
    Fault.HOOK_FAILED: "hook_failed",
    Fault.HOOK_DOUBLED: "hook_doubled",
    Fault.HOOK_LATE: "hook_held_back",
    Fault.GITHUB_ERROR: "server_error",
    Fault.GITHUB_REQUEST_LOST: "request_lost",
    Fault.GITHUB_REPLY_LOST: "reply_lost",
    Fault.BUSY_UNSEEN: "busy_unseen",
    Fault.BUSY_DELETED: "busy_deleted",
}


def seen_at_github(github: FakeGitHub) -> dict[Fault, int]:
    happened = github.truth.happened
    return {fault: happened[name] for fault, name in _COUNTED.items()}
