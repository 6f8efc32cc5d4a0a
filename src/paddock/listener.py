"""An HTTP listener with limits on what one peer, or all peers together, may use.

uvicorn by itself reads a request head of any length, waits for its end for ever, and accepts any number
of connections. So one unauthenticated peer could keep the process busy or use up its memory and its
open files. `LimitedProtocol` is uvicorn's protocol with limits
(docs/decisions/0018-limits-around-uvicorn.md).

A connection *waits for its peer* until the peer has sent a whole request, and while the peer does not
read an answer. Only such connections have deadlines, and only they are closed to make room. A held poll
does not count: there the peer waits for the server.

With TLS the same applies from the first moment of a connection: `SecuredConnection` waits for its peer
until the handshake is over.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import resource
import ssl
from asyncio.sslproto import SSLProtocol
from collections import Counter as Tally
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Protocol, cast
from urllib.parse import urlsplit

import httptools
import structlog
import uvicorn
from prometheus_client import Counter
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

_log = structlog.get_logger()

#: Connections that the kernel accepts while the process is busy. A burst opens hundreds of them.
BACKLOG: Final = 4096
#: Bytes given to the parser at a time. Most requests have fewer.
_PIECE: Final = 16 * 1024
#: A request has some twenty headers, forty behind proxies.
_MOST_HEADERS: Final = 256
#: What each costs in memory besides its own bytes: with a limit in bytes alone, heads of empty headers
#: could use thirty times their size.
_HEADER_MEMORY: Final = 150
#: Requests sent ahead of their answers. Browsers, proxies and Pods send none. All of a connection
#: together may have as many bytes as one head, bodies included.
_MOST_PIPELINED: Final = 8
#: Open files for everything else: the database, the cluster, GitHub, pipes to runners.
_OTHER_FILES: Final = 512
#: How often connections that were closed for lack of room are logged, in seconds.
_LOG_EVERY: Final = 60.0
#: No handler reads a body of these, so it is not kept: that would be up to 256 KiB for each connection,
#: for as long as the handler waits for the database.
_WITHOUT_BODY: Final = frozenset({"GET", "HEAD"})
#: A URL's name may stand between these; a Host header has none.
_NOT_IN_HOST: Final = frozenset("@/?#\\")
#: The only paths that are answered while all ordinary connections are in use.
HEALTH_PATHS: Final = frozenset({"/healthz", "/readyz"})

CLOSED = Counter(
    "paddock_connections_closed_total",
    "Connections closed by a limit of the listener, by reason: `handshake`, `head`, `body`, `idle`, "
    "`unread` (a deadline passed), `head_size`, `url_size`, `header_count`, `pipelined`, `malformed`, "
    "`memory`, `peer`, `full`.",
    ["reason"],
)
HANDSHAKE_FAILURES = Counter(
    "paddock_tls_handshakes_failed_total",
    "TLS handshakes that failed, by reason: `certificate` the peer rejected the server's certificate, "
    "`plain` it sent plain HTTP, `other`.",
    ["reason"],
)
#: The peer closes its connection when it has its answer; a missing TLS shutdown loses nothing.
_SHUTDOWN_SECONDS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """The limits of one listener."""

    #: Connections in total: 10,000 Pods that each hold a poll at one replica, and half as many again.
    connections: int = 16_384
    #: Connections of one peer address that wait for it. A Pod has one or two; a proxy's pool of idle
    #: connections some hundreds. Held polls do not count, so thousands of Pods may share an address.
    waiting_per_peer: int = 1_024
    #: Connections beyond the total, on which only health checks are answered.
    reserved: int = 64
    #: A request's bytes that are not its body: its head, sizes of chunks, trailers.
    head_bytes: int = 64 * 1024
    url_bytes: int = 8 * 1024
    #: Memory for all peers together: heads of requests that have not arrived completely, requests that
    #: were sent ahead, and answers that are not read.
    held_bytes: int = 32 * 1024 * 1024
    handshake_seconds: float = 10.0
    head_seconds: float = 10.0
    #: A webhook has less time (`paddock.web.receiver`); no other body is larger than 64 KiB.
    body_seconds: float = 10.0
    #: Longer than the 60 s for which nginx and most load balancers keep idle connections. They must
    #: close first: a request that they send while the server closes would be lost.
    idle_seconds: float = 75.0
    #: For a peer that does not read its answer.
    unread_seconds: float = 30.0
    #: How often deadlines are checked.
    tick_seconds: float = 1.0


class _Part(Enum):
    """The part of a request that is being parsed."""

    NONE = 0
    HEAD = 1
    BODY = 2


class _WaitsFor(StrEnum):
    """What a connection waits for from its peer."""

    HANDSHAKE = "handshake"
    HEAD = "head"
    BODY = "body"
    IDLE = "idle"
    UNREAD = "unread"


class _Connection(Protocol):
    """What the listener needs to know of a connection."""

    waits_for: _WaitsFor | None
    since: float
    peer: str
    transport: asyncio.Transport

    def time_out(self, what: _WaitsFor) -> None: ...


class _ListenerState(ServerState):
    """The state that all connections of a listener share."""

    def __init__(self, limits: ListenerLimits) -> None:
        super().__init__()
        self.limits = limits
        #: The time by which connections wait for their peers. Time while the process was busy is
        #: left out.
        self.time = 0.0
        #: Connections that wait for their peers, the longest-waiting first.
        self.waiting: dict[_Connection, None] = {}
        #: Connections on which only health checks are answered, the oldest first.
        self.reserved: dict[_Connection, None] = {}
        #: The memory that connections use while they wait for their peers, the oldest first.
        self.held: dict[_Connection, int] = {}
        self.held_bytes = 0
        self._closed: Tally[str] = Tally()
        self._log_at = 0.0
        self._deadlines = {
            _WaitsFor.HANDSHAKE: limits.handshake_seconds,
            _WaitsFor.HEAD: limits.head_seconds,
            _WaitsFor.BODY: limits.body_seconds,
            _WaitsFor.IDLE: limits.idle_seconds,
            _WaitsFor.UNREAD: limits.unread_seconds,
        }

    def make_room(self) -> bool:
        """Make room for a new connection; false if only health checks may be answered on it. A new
        connection is preferred to one whose peer has not used it, because an honest peer sends at
        once."""
        if len(self.connections) - len(self.reserved) < self.limits.connections:
            return True
        if self.waiting:
            self.close(next(iter(self.waiting)), "full")
            return True
        if len(self.reserved) >= self.limits.reserved:
            self.close(next(iter(self.reserved)), "full")
        return False

    def wait(self, connection: _Connection, what: _WaitsFor | None) -> None:
        """`None`: the peer waits for the server."""
        connection.waits_for, connection.since = what, self.time
        self.waiting.pop(connection, None)
        if what is not None and connection not in self.reserved:
            self.waiting[connection] = None

    def hold(self, connection: _Connection, size: int) -> None:
        self.held_bytes += size - self.held.get(connection, 0)
        if size:
            self.held[connection] = size
        else:
            self.held.pop(connection, None)
        while self.held_bytes > self.limits.held_bytes:
            self.close(next(iter(self.held)), "memory")

    def close(self, connection: _Connection, reason: str) -> None:
        """Close a connection at once, without an answer."""
        CLOSED.labels(reason).inc()
        self._closed[reason] += 1
        self.forget(connection)
        connection.transport.abort()

    def forget(self, connection: _Connection) -> None:
        self.connections.discard(cast("Any", connection))
        self.waiting.pop(connection, None)
        self.reserved.pop(connection, None)
        self.held_bytes -= self.held.pop(connection, 0)

    def tick(self, elapsed: float) -> None:
        # After being busy, the process has not yet read what its peers sent meanwhile.
        before, self.time = self.time, self.time + min(elapsed, 2 * self.limits.tick_seconds)
        for connection in [*self.waiting, *self.reserved]:
            what = connection.waits_for
            if what is not None and self.time - connection.since >= self._deadlines[what]:
                connection.time_out(what)
        if len(self.waiting) > self.limits.waiting_per_peer:
            self._limit_peers(before)
        self._report(("full", "peer", "memory"))

    def _limit_peers(self, before: float) -> None:
        """Close the longest-waiting connections of a peer that has too many. New connections do not
        count: after a restart thousands of Pods behind one address connect at once, and each sends
        within milliseconds.
        """
        found: Tally[str] = Tally()
        for connection in reversed(list(self.waiting)):
            if connection.since < before:
                found[connection.peer] += 1
                if found[connection.peer] > self.limits.waiting_per_peer:
                    self.close(connection, "peer")

    def _report(self, reasons: tuple[str, ...]) -> None:
        counts = {reason: self._closed[reason] for reason in reasons if self._closed[reason]}
        if counts and self.time >= self._log_at:
            _log.warning("listener.connections_closed", open=len(self.connections), **counts)
            self._closed.clear()
            self._log_at = self.time + _LOG_EVERY


class _Rejected(Exception):
    """Ends the parsing of a request that is rejected."""


class LimitedProtocol(HttpToolsProtocol):
    server_state: _ListenerState
    #: `None` before the first request, unlike uvicorn's annotation.
    cycle: RequestResponseCycle | None  # type: ignore[assignment]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.waits_for: _WaitsFor | None = None
        self.since = 0.0
        self.peer = ""
        self._limits = self.server_state.limits
        self._part = _Part.NONE
        #: Bytes of this request so far, without its body; of requests sent ahead, all bytes.
        self._overhead = 0
        #: Headers of this request, and of those sent ahead.
        self._header_count = 0
        self._rejection = (HTTPStatus.BAD_REQUEST, "malformed")
        #: A request asked for an upgrade: it is the last of its connection.
        self._is_last = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        is_ordinary = self.server_state.make_room()
        super().connection_made(transport)
        self.peer = self.client[0] if self.client else ""
        if not is_ordinary:
            self.server_state.reserved[self] = None
            self.app = _only_health(self.app)
        self._settle()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.server_state.forget(self)

    def data_received(self, data: bytes) -> None:
        if self._is_last:
            return
        try:
            self._feed(data)
        except httptools.HttpParserUpgrade:
            # The request is answered without an upgrade, and without its body. The parser does not
            # read that body as one: it would take it for the next request, which no proxy has seen.
            assert self.cycle is not None
            self._is_last, self.cycle.keep_alive = True, False
        except (httptools.HttpParserError, _Rejected):
            self.end(*self._rejection)
            return
        self._settle()

    def _feed(self, data: bytes) -> None:
        rest: bytes | memoryview = data
        while rest:
            left = self._limits.head_bytes - self._overhead
            if left <= 0:
                reason = "pipelined" if self.pipeline else "head_size"
                self._reject(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, reason)
            size = left if self._part is _Part.HEAD and left < _PIECE else _PIECE
            piece, rest = (rest, b"") if len(rest) <= size else _split(rest, size)
            self.parser.feed_data(piece)
            self._overhead += len(piece)
            if self._part is not _Part.NONE:
                self._check_count()

    def _check_count(self) -> None:
        if len(self.headers) > _MOST_HEADERS:
            self._reject(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "header_count")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._part = _Part.HEAD
        self._count_anew()

    def _count_anew(self) -> None:
        if not self.pipeline:
            self._overhead = self._header_count = 0

    def on_url(self, url: bytes) -> None:
        if len(self.url) + len(url) > self._limits.url_bytes:
            self._reject(HTTPStatus.REQUEST_URI_TOO_LONG, "url_size")
        super().on_url(url)

    def on_headers_complete(self) -> None:
        self._check_count()
        if len(self.pipeline) >= _MOST_PIPELINED:
            self._reject(HTTPStatus.BAD_REQUEST, "pipelined")
        super().on_headers_complete()
        self._part = _Part.BODY
        self._header_count += len(self.headers)
        # uvicorn would add trailers to the headers that the application reads. A proxy that removes or
        # sets a header does not look at trailers.
        self.headers = []

    def on_body(self, body: bytes) -> None:
        if not self.pipeline:
            self._overhead -= len(body)
        if self.scope["method"] not in _WITHOUT_BODY:
            super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._part = _Part.NONE
        self._count_anew()

    def on_response_complete(self) -> None:
        """uvicorn's method starts a timer for the next request; here `tick` checks the deadline."""
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self.flow.resume_reading()
            if self.pipeline:
                self._start_asgi_task(*self.pipeline.pop())
        cycle = self.cycle
        if cycle and cycle.response_complete and self._part is _Part.NONE:
            self._count_anew()
            # A connection may be kept for a minute. Its last request's head is not needed that long.
            self.headers, self.scope = [], {}  # type: ignore[typeddict-item]
            cycle.scope = self.scope
        self._settle()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._settle()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._settle()

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _settle(self) -> None:
        """Report to the listener what the connection waits for now."""
        part, state = self._part, self.server_state
        if part is _Part.BODY:
            what: _WaitsFor | None = _WaitsFor.BODY
        elif self.flow.write_paused:
            what = _WaitsFor.UNREAD
        elif self._is_answering:
            what = None
        elif part is _Part.HEAD or self.cycle is None:
            what = _WaitsFor.HEAD
        else:
            what = _WaitsFor.IDLE
        if what is not self.waits_for:
            state.wait(self, what)
        if part is not _Part.NONE or self.pipeline or self.flow.write_paused:
            state.hold(self, self._memory())
        elif self in state.held:
            state.hold(self, 0)

    def _memory(self) -> int:
        headers = self._header_count + len(self.headers)
        unread = self.transport.get_write_buffer_size() if self.flow.write_paused else 0
        return max(0, self._overhead) + headers * _HEADER_MEMORY + unread

    def expect(self, *, more: bool) -> None:
        """Called by a protocol that has taken the connection over. `more`: the peer has still to send
        the rest of a message, which then has the deadline of a body."""
        self._part = _Part.BODY if more else _Part.NONE
        self._settle()

    def time_out(self, what: _WaitsFor) -> None:
        if self.transport.is_closing() or self._is_answering:
            self.server_state.close(self, what)
        elif self._part is _Part.NONE:
            # Without an answer: a browser that connected early would take it as the answer to its next
            # request.
            CLOSED.labels(what).inc()
            self.transport.close()
        else:
            self.end(HTTPStatus.REQUEST_TIMEOUT, what)

    def _reject(self, status: HTTPStatus, reason: str) -> None:
        self._rejection = status, reason
        raise _Rejected

    def end(self, status: HTTPStatus, reason: str) -> None:
        """Close with an answer, unless the request has one already, or an earlier request is being
        answered."""
        if self._is_answering or self._part is _Part.BODY:
            self.server_state.close(self, reason)
            return
        CLOSED.labels(reason).inc()
        self.server_state.hold(self, 0)
        first = f"HTTP/1.1 {status} {status.phrase}\r\n".encode()
        self.transport.write(first + b"content-length: 0\r\nconnection: close\r\n\r\n")
        self.transport.close()


class SecuredConnection(SSLProtocol):
    """A connection with TLS. It uses asyncio's TLS, even on uvloop: uvloop's TLS reports a connection
    only after its handshake. (With `start_tls`, data that uvloop receives before the call is lost.)"""

    #: asyncio reserves 256 KiB for each connection. A TLS record has at most 16 KiB.
    max_size = 16 * 1024

    def __init__(self, tls: ssl.SSLContext, *, server_state: _ListenerState, **given: Any) -> None:
        self._shaken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        super().__init__(
            asyncio.get_running_loop(),
            _Admission(self, LimitedProtocol(server_state=server_state, **given)),
            tls,
            self._shaken,
            server_side=True,
            ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
        )
        self._shaken.add_done_callback(self._over)
        self._listener = server_state
        self.waits_for: _WaitsFor | None = None
        self.since = 0.0
        self.peer = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is not derived from it
        peer = transport.get_extra_info("peername")
        if peer is None:  # the peer has reset the connection already
            self.transport.abort()
            return
        self.peer = str(peer[0])
        if not self._listener.make_room():
            self._listener.close(self, "full")  # health checks do not use TLS
            return
        self._listener.connections.add(cast("Any", self))
        self._listener.wait(self, _WaitsFor.HANDSHAKE)
        super().connection_made(transport)

    def admitted(self) -> None:
        """From now on the inner protocol counts the connection."""
        self._listener.forget(self)

    def _over(self, shaken: asyncio.Future[None]) -> None:
        self._listener.forget(self)
        if (error := shaken.exception()) is not None:
            HANDSHAKE_FAILURES.labels(_failure(error)).inc()

    def time_out(self, what: _WaitsFor) -> None:
        self._listener.close(self, what)

    def shutdown(self) -> None:
        """uvicorn calls this when the server stops."""
        self.transport.abort()


class _Admission(asyncio.Protocol):
    """Hands a connection to `LimitedProtocol` once its handshake is over."""

    def __init__(self, outer: SecuredConnection, inner: LimitedProtocol) -> None:
        self._outer = outer
        self._inner = inner

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._outer.admitted()
        secured = cast("asyncio.Transport", transport)
        secured.set_protocol(self._inner)
        self._inner.connection_made(secured)


def _failure(error: BaseException) -> str:
    code = getattr(error, "reason", None) or ""
    if code == "HTTP_REQUEST":
        return "plain"
    is_of_certificate = "CERTIFICATE" in code or "UNKNOWN_CA" in code
    return "certificate" if "_ALERT_" in code and is_of_certificate else "other"


def _split(data: bytes | memoryview, size: int) -> tuple[memoryview, memoryview]:
    view = memoryview(data)
    return view[:size], view[size:]


def _only_health(app: ASGIApp) -> ASGIApp:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in HEALTH_PATHS:
            await app(scope, receive, send)
            return
        headers = [(b"content-length", b"0"), (b"retry-after", b"1"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 503, "headers": headers})
        await send({"type": "http.response.body"})

    return answer


class Listener(uvicorn.Server):
    """Leaves signals to the process that runs it, and wakes once a second; uvicorn's server wakes ten
    times a second."""

    def __init__(
        self,
        app: ASGIApp,
        limits: ListenerLimits,
        *,
        tls: ssl.SSLContext | None = None,
        protocol: type[LimitedProtocol] = LimitedProtocol,
        **options: Any,
    ) -> None:
        # uvicorn would log a line for each bad request. The application logs its own errors.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        super().__init__(
            uvicorn.Config(
                app,
                http=cast("Any", partial(SecuredConnection, tls)) if tls else protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=BACKLOG,
                **options,
            )
        )
        self.server_state: _ListenerState = _ListenerState(limits)
        self.leaving = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        loop, state = asyncio.get_running_loop(), self.server_state
        last = loop.time()
        # Every tenth tick of uvicorn sets the `Date` of answers.
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(state.limits.tick_seconds):
                    await self.leaving.wait()
            now = loop.time()
            state.tick(now - last)
            last = now


def fitted(limits: ListenerLimits, *, listeners: int) -> ListenerLimits:
    """The limits of each of `listeners` listeners, so that all fit the process's limit of open files.
    The soft limit is raised as far as needed."""
    wanted = listeners * (limits.connections + limits.reserved) + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # macOS has a limit that it does not report
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return limits
    share = max((soft - _OTHER_FILES) // listeners - limits.reserved, soft // (2 * listeners))
    if share >= limits.connections:
        return limits
    _log.warning("listener.few_open_files", open_files=soft, connections=share)
    return replace(limits, connections=share)


def parsed_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def requested_host(headers: Headers) -> str:
    """The Host header; empty unless there is exactly one."""
    hosts = headers.getlist("host")
    return hosts[0] if len(hosts) == 1 else ""


def hostname(host: str) -> str:
    """The name in a Host header, without its port; empty if it is not a name and perhaps a port."""
    if not _NOT_IN_HOST.isdisjoint(host):
        return ""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine's loopback, unreachable from other machines."""
    address = parsed_address(host)
    return host == "localhost" if address is None else address.is_loopback
