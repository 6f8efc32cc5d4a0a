"""What an unauthenticated peer can do to a listener: each attack, on a real socket, under both event
loops (I85)."""

from __future__ import annotations

import asyncio
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import uvloop
from starlette.types import Receive, Scope, Send

from paddock.listener import CLOSED, Listener, ListenerLimits, fitted
from paddock.web.server import bind, serving

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
#: Deadlines that do not pass while a test runs, and others that do at once.
NEVER = 3600.0
SOON = 0.2
LIMITS = ListenerLimits(
    head_seconds=NEVER,
    body_seconds=NEVER,
    idle_seconds=NEVER,
    unread_seconds=NEVER,
    tick_seconds=0.05,
)
#: The time-out for expected events, on a machine with much other load.
PATIENCE = 60
ANSWER = b"x" * (8 * 1024 * 1024)


@dataclass
class App:
    """`/hold` is answered when the test says so, `/read` reads the body, `/long` sends much."""

    release: asyncio.Event = field(default_factory=asyncio.Event)
    held: int = 0
    disconnected: int = 0
    headers: list[bytes] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b"ok"
        if scope["path"] == "/hold":
            self.held += 1
            await self.release.wait()
        elif scope["path"] == "/read":
            while (message := await receive()).get("more_body"):
                pass
            self.disconnected += message["type"] == "http.disconnect"
            self.headers = [name for name, _ in scope["headers"]]
        elif scope["path"] == "/long":
            body = ANSWER
        length = str(len(body)).encode()
        headers = [(b"content-length", length)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@dataclass
class Target:
    """A listener in a thread of its own, so that attackers may block."""

    port: int
    app: App
    listener: Listener
    loop: asyncio.AbstractEventLoop
    closing: ExitStack

    @property
    def state(self) -> Any:
        return self.listener.server_state

    def connect(self, address: str = "127.0.0.1", *, buffer: int | None = None) -> socket.socket:
        peer = socket.socket()
        if buffer is not None:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        peer.settimeout(PATIENCE)
        peer.bind((address, 0))
        peer.connect(("127.0.0.1", self.port))
        return self.closing.enter_context(peer)

    def send(self, data: bytes, **how: Any) -> socket.socket:
        peer = self.connect(**how)
        peer.sendall(data)
        return peer

    def ask(self, path: str) -> int:
        return status(self.send(request(path, "Connection: close")))

    def look(self, see: Callable[[], Any]) -> Any:
        """Runs in the listener's own thread, where no step is half done."""

        async def seen() -> Any:
            return see()

        return asyncio.run_coroutine_threadsafe(seen(), self.loop).result(PATIENCE)

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self.look(holds):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def let_time_pass(self, seconds: float) -> None:
        began = self.state.time
        self.until(lambda: self.state.time > began + seconds)

    def release(self) -> None:
        self.loop.call_soon_threadsafe(self.app.release.set)


@contextmanager
def listening(limits: ListenerLimits, loop: str) -> Iterator[Target]:
    ready: list[Target] = []
    is_ready = threading.Event()
    stop = asyncio.Event()
    closing = ExitStack()

    async def main() -> None:
        listener = bind(("127.0.0.1", 0))
        app = App()
        async with serving(app, listener, limits=limits) as server:
            running = asyncio.get_running_loop()
            ready.append(Target(listener.getsockname()[1], app, server, running, closing))
            is_ready.set()
            await stop.wait()
            app.release.set()

    def run() -> None:
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(main())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert is_ready.wait(PATIENCE)
        [target] = ready
        with closing:
            yield target
    finally:
        target.loop.call_soon_threadsafe(stop.set)
        thread.join()


Listen = Callable[..., Target]


@pytest.fixture(params=list(LOOPS))
def listen(request: pytest.FixtureRequest) -> Iterator[Listen]:
    with ExitStack() as stack:

        def listen(**limits: Any) -> Target:
            target = listening(replace(LIMITS, **limits), request.param)
            return stack.enter_context(target)

        yield listen


def request(path: str, *headers: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


def status(peer: socket.socket) -> int:
    """The status of the next answer; 0 if the connection ends without one."""
    line = b""
    with suppress(ConnectionError):
        while not line.endswith(b"\r\n") and (byte := peer.recv(1)):
            line += byte
    return int(line.split()[1]) if line else 0


def rest_of(peer: socket.socket) -> bytes:
    """All that comes until the server closes the connection."""
    read = b""
    with suppress(ConnectionError):
        while more := peer.recv(65536):
            read += more
    return read


def is_closed(peer: socket.socket) -> bool:
    rest_of(peer)
    return True


def is_closed_while_sending(peer: socket.socket) -> bool:
    deadline = time.monotonic() + PATIENCE
    try:
        while time.monotonic() < deadline:
            peer.sendall(b"a")
            time.sleep(0.02)
    except ConnectionError:
        return True
    return False


def still_open(peers: list[socket.socket]) -> int:
    count = 0
    for peer in peers:
        peer.setblocking(False)
        try:
            count += bool(peer.recv(1))
        except BlockingIOError:
            count += 1
        except ConnectionError:
            pass
        peer.settimeout(PATIENCE)
    return count


def closed(reason: str) -> float:
    return CLOSED.labels(reason)._value.get()  # type: ignore[no-any-return]


def taken(peer: socket.socket, data: bytes, *, most: int) -> int:
    """How much the server reads before it closes; the kernel's buffers hold some megabytes."""
    sent = 0
    with suppress(ConnectionError):
        while sent < most:
            sent += peer.send(data)
    return sent


MUCH = 64 * 1024 * 1024


@pytest.mark.parametrize(
    ("begin", "answer"),
    [
        (b"GET / HTTP/1.1\r\nX-A: ", 431),
        (b"GET / HTTP/1.1\r\n", 431),
        (b"GET /", 414),
        (b"POST /read HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-A: ", 0),
        (b"POST /read HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;", 0),
    ],
    ids=["header", "header name", "url", "trailer", "chunk extension"],
)
def test_what_has_no_end_is_not_taken(listen: Listen, begin: bytes, answer: int) -> None:
    target = listen()
    peer = target.send(begin)
    assert taken(peer, b"a" * 65536, most=MUCH) < MUCH
    assert status(peer) == answer
    assert is_closed(peer)
    assert target.ask("/healthz") == 200


def test_empty_lines_without_end_are_not_taken(listen: Listen) -> None:
    """Before the first request, and between two."""
    target = listen()
    for begin in (b"", request("/")):
        peer = target.send(begin)
        assert taken(peer, b"\r\n" * 32768, most=MUCH) < MUCH
        assert is_closed(peer)


def head_of(size: int) -> bytes:
    rest = size - len(request("/", "Connection: close", "X-A: "))
    return request("/", "Connection: close", "X-A: " + "a" * rest)


@pytest.mark.parametrize("pieces", [1_000_000, 5_000])
def test_a_head_may_have_64_kib_and_no_more(listen: Listen, pieces: int) -> None:
    target = listen()
    for size, answer in ((65536, 200), (65537, 431)):
        head = head_of(size)
        assert len(head) == size
        peer = target.connect()
        with suppress(ConnectionError):
            for start in range(0, size, pieces):
                peer.sendall(head[start : start + pieces])
        assert status(peer) == answer


def test_every_head_of_a_connection_may_have_64_kib(listen: Listen) -> None:
    target = listen()
    rest = 65536 - len(request("/", "X-A: "))
    peer = target.connect()
    for _ in range(3):
        peer.sendall(request("/", "X-A: " + "a" * rest))
        assert status(peer) == 200
        read = b""
        while not read.endswith(b"\r\n\r\nok"):
            read += peer.recv(1000)


def test_a_url_may_have_8_kib_and_no_more(listen: Listen) -> None:
    target = listen()
    for size, answer in ((8192, 200), (8193, 414)):
        assert target.ask("/" + "a" * (size - 1)) == answer


def test_a_head_may_have_256_headers_and_no_more(listen: Listen) -> None:
    """A head of empty headers uses thirty times its size in memory."""
    target = listen()
    for more, answer in ((255, 200), (256, 431)):
        assert status(target.send(request("/", *["a:"] * more))) == answer


def test_headers_are_counted_before_a_head_is_whole(listen: Listen) -> None:
    """And in trailers too."""
    target = listen()
    many = b"a:b\r\n" * 300
    assert status(target.send(b"GET / HTTP/1.1\r\n" + many)) == 431
    chunks = request("/read", "Transfer-Encoding: chunked", method="POST") + b"1\r\na\r\n0\r\n"
    assert status(target.send(chunks + many)) == 0


def test_a_large_body_is_none_of_the_head(listen: Listen) -> None:
    target = listen()
    body = b"a" * 1_000_000
    whole = request("/read", f"Content-Length: {len(body)}", method="POST") + body
    assert status(target.send(whole)) == 200
    chunks = b"1000\r\n%b\r\n" % (b"a" * 4096) * 1000 + b"0\r\n\r\n"
    assert status(
        target.send(request("/read", "Transfer-Encoding: chunked", method="POST") + chunks)
    )


def test_a_head_that_comes_slowly_is_not_waited_for(listen: Listen) -> None:
    target = listen(head_seconds=SOON)
    peer = target.send(b"GET / HTTP/1.1\r\nX-A: ")
    assert is_closed_while_sending(peer)
    assert target.ask("/") == 200


def test_a_connection_on_which_nothing_is_asked_is_closed_without_an_answer(listen: Listen) -> None:
    target = listen(head_seconds=SOON)
    assert target.connect().recv(1) == b""


def test_the_second_head_has_a_deadline_like_the_first(listen: Listen) -> None:
    target = listen(head_seconds=SOON)
    peer = target.send(request("/"))
    assert status(peer) == 200
    peer.sendall(b"GET / HT")
    assert b" 408 " in rest_of(peer)


@pytest.mark.parametrize("path", ["/read", "/"])
def test_a_body_that_comes_slowly_is_not_waited_for(listen: Listen, path: str) -> None:
    """Whether the application reads it, or has answered already."""
    target = listen(body_seconds=SOON)
    peer = target.send(request(path, "Content-Length: 1000", method="POST"))
    assert status(peer) == (0 if path == "/read" else 200)
    assert b"408" not in rest_of(peer)
    target.until(lambda: target.app.disconnected == (path == "/read"))


def test_an_idle_connection_is_closed(listen: Listen) -> None:
    target = listen(idle_seconds=SOON)
    peer = target.send(request("/"))
    assert status(peer) == 200
    assert is_closed(peer)


def test_a_request_for_an_upgrade_is_answered_as_any_other_and_ends_its_connection(
    listen: Listen,
) -> None:
    target = listen()
    peer = target.send(request("/", "Connection: Upgrade", "Upgrade: websocket"))
    assert status(peer) == 200
    assert is_closed(peer)


@pytest.mark.parametrize("length", ["Content-Length: 999", "Transfer-Encoding: chunked"])
def test_what_follows_a_request_for_an_upgrade_is_no_request(listen: Listen, length: str) -> None:
    """A proxy that passes `Upgrade` on sends the body behind it. As a request of its own that body
    could name a user, a host or a path that the proxy would have refused."""
    target = listen()
    head = request("/hold", "Connection: Upgrade", "Upgrade: x", length, method="POST")
    peer = target.send(head)
    target.until(lambda: target.app.held == 1)
    for _ in range(2):
        peer.sendall(request("/hold", "X-Remote-User: root", method="POST"))
        time.sleep(SOON)
    target.release()
    assert status(peer) == 200
    assert is_closed(peer)
    assert target.app.held == 1


@pytest.mark.parametrize("cut", [0, 6])
def test_a_trailer_is_no_header(listen: Listen, cut: int) -> None:
    """A proxy that decides who a user is removes that header from requests, and passes trailers on."""
    target = listen()
    head = request("/read", "Transfer-Encoding: chunked", method="POST")
    body = b"2\r\nok\r\n0\r\nX-Remote-User: root\r\nHost: 127.0.0.1\r\n\r\n"
    peer = target.send(head + body[:cut])
    if cut:
        target.until(lambda: bool(target.state.waiting))
    peer.sendall(body[cut:])
    assert status(peer) == 200
    assert target.app.headers == [b"host", b"transfer-encoding"]


def test_an_answer_that_is_not_read_is_not_kept(listen: Listen) -> None:
    target = listen(unread_seconds=SOON)
    target.send(request("/long"), buffer=4096)
    target.until(lambda: closed("unread") > 0 and not target.state.connections)


def test_a_held_poll_is_cut_by_no_deadline(listen: Listen) -> None:
    target = listen(head_seconds=SOON, body_seconds=SOON, idle_seconds=SOON, unread_seconds=SOON)
    peer = target.send(request("/hold", "Content-Length: 0", method="POST"))
    target.until(lambda: target.app.held == 1)
    target.let_time_pass(5 * SOON)
    target.release()
    assert status(peer) == 200


def test_a_process_that_was_busy_cuts_no_peer_off(listen: Listen) -> None:
    """It has not read what its peers sent meanwhile."""
    target = listen(head_seconds=60.0)
    peer = target.send(b"GET / HTTP/1.1\r\n")
    target.until(lambda: target.state.held_bytes > 0)
    before = target.state.time
    target.loop.call_soon_threadsafe(target.state.tick, 3600.0)
    target.until(lambda: target.state.time > before)
    peer.sendall(b"\r\n")
    assert status(peer) == 200


needs_files = pytest.mark.skipif(
    0 <= resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 8192, reason="too few open files"
)


@needs_files
def test_health_is_told_while_idle_connections_fill_the_listener(listen: Listen) -> None:
    """So is any other request: the longest idle connections are closed."""
    fitted(LIMITS, listeners=1)
    target = listen(connections=1000)
    first = target.connect()
    for _ in range(1500):
        target.connect()
    for path in ("/healthz", "/readyz", "/"):
        assert target.ask(path) == 200
    assert is_closed(first)
    assert len(target.state.connections) <= 1000


def test_a_slow_body_makes_room_like_an_idle_connection(listen: Listen) -> None:
    target = listen(connections=5, reserved=1)
    for _ in range(20):
        target.send(request("/read", "Content-Length: 9", method="POST"))
    assert target.ask("/") == 200


def test_an_answer_that_is_not_read_makes_room(listen: Listen) -> None:
    target = listen(connections=5, reserved=1, held_bytes=10 * len(ANSWER))
    for _ in range(5):
        target.send(request("/long"), buffer=4096)
    target.until(lambda: len(target.state.waiting) == 5)
    assert target.ask("/") == 200


def test_health_is_told_while_held_polls_fill_the_listener(listen: Listen) -> None:
    target = listen(connections=20, reserved=4)
    polls = [target.send(request("/hold")) for _ in range(20)]
    target.until(lambda: target.app.held == 20)
    assert target.ask("/healthz") == 200
    assert target.ask("/readyz") == 200
    assert target.ask("/") == 503
    for _ in range(50):
        target.connect()
    assert target.ask("/healthz") == 200
    assert len(target.state.connections) <= 24
    target.release()
    assert [status(poll) for poll in polls] == [200] * 20
    for poll in polls:
        poll.close()
    target.until(lambda: not target.state.waiting)
    assert target.ask("/") == 200


def test_one_peer_cannot_keep_many_connections_waiting(listen: Listen) -> None:
    target = listen(waiting_per_peer=10)
    other = target.connect("127.0.0.2")
    hostile = [target.connect("127.0.0.3") for _ in range(60)]
    hostile += [target.send(b"GET / HT", address="127.0.0.3") for _ in range(60)]
    target.until(lambda: still_open(hostile) == 10)
    assert still_open(hostile[-10:]) == 10
    target.let_time_pass(0.5)
    assert still_open([other]) == 1
    assert target.ask("/") == 200


def test_many_pods_may_hold_polls_from_one_address(listen: Listen) -> None:
    target = listen(waiting_per_peer=10)
    polls = [target.send(request("/hold")) for _ in range(200)]
    idle = [target.connect() for _ in range(20)]
    target.until(lambda: target.app.held == 200 and still_open(idle) == 10)
    target.let_time_pass(0.5)
    target.release()
    assert [status(poll) for poll in polls] == [200] * 200


@pytest.mark.parametrize(
    ("begin", "size"),
    [
        (b"POST /read HTTP/1.1\r\nX-A: " + b"a" * 60_000, 60_000),
        (
            b"POST /read HTTP/1.1\r\nX-A: " + b"a" * 60_000 + b"\r\nContent-Length: 9\r\n\r\n",
            60_000,
        ),
        (b"POST /read HTTP/1.1\r\n" + b"a:\r\n" * 250, 30_000),
        (b"POST /read HTTP/1.1\r\nContent-Length: 9\r\n" + b"a:\r\n" * 250 + b"\r\n", 30_000),
    ],
    ids=["head", "body", "empty headers", "body after empty headers"],
)
def test_incomplete_requests_together_use_little_memory(
    listen: Listen, begin: bytes, size: int
) -> None:
    """Heads that have no end, and whole heads whose bodies do not come. Small headers need much more
    memory than they have bytes."""
    most = 1024 * 1024
    target = listen(held_bytes=most)
    peers = []
    for _ in range(100):
        peers.append(target.send(begin))
        assert target.look(lambda: target.state.held_bytes) <= most
    target.until(lambda: len(target.state.connections) <= most // size)
    held, counted = target.look(lambda: (target.state.held_bytes, sum(target.state.held.values())))
    assert size < held <= most
    assert held == counted
    assert target.ask("/") == 200
    for peer in peers:
        peer.close()
    target.until(lambda: target.state.held_bytes == 0 and not target.state.held)


def test_a_slow_head_that_fits_uses_memory_until_it_is_whole(listen: Listen) -> None:
    target = listen()
    peer = target.send(b"GET / HTTP/1.1\r\nX-A: " + b"a" * 10_000)
    target.until(lambda: target.state.held_bytes > 10_000)
    peer.sendall(b"\r\n\r\n")
    assert status(peer) == 200
    assert target.look(lambda: target.state.held_bytes) == 0


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_body_that_no_handler_reads_is_not_kept(listen: Listen, method: str) -> None:
    """The handler may wait for a database that does not answer."""
    target = listen()
    peer = target.send(request("/hold", "Content-Length: 200000", method=method) + b"x" * 200_000)
    target.until(lambda: target.app.held == 1)
    [connection] = target.state.connections
    target.until(lambda: not connection.cycle.more_body)
    assert target.look(lambda: len(connection.cycle.body)) == 0
    target.release()
    assert status(peer) == 200


def test_an_idle_connection_keeps_nothing_of_its_last_request(listen: Listen) -> None:
    target = listen()
    peer = target.send(request("/", "X-A: " + "a" * 60_000))
    assert status(peer) == 200
    [connection] = target.state.connections
    target.until(lambda: connection.headers == [] and not connection.scope)
    assert not connection.cycle.scope


def test_requests_sent_ahead_are_answered_in_order_up_to_a_number(listen: Listen) -> None:
    target = listen()
    peer = target.send(request("/hold") + request("/") * 8)
    target.release()
    answers = b""
    while answers.count(b"\r\n\r\nok") < 9:
        answers += peer.recv(1000)
    assert answers.count(b"HTTP/1.1 200 ") == 9


def test_many_requests_sent_ahead_end_the_connection(listen: Listen) -> None:
    target = listen()
    peer = target.send(request("/hold"))
    target.until(lambda: target.app.held == 1)
    assert taken(peer, request("/") * 1000, most=MUCH) < MUCH
    assert status(peer) == 0
    target.until(lambda: not target.state.connections)


AHEAD = {
    "head": request("/", "X-A: " + "a" * 40_000),
    "body": request("/read", "Content-Length: 40000", method="POST") + b"a" * 40_000,
    "headers": request("/", *["a:"] * 200),
}


@pytest.mark.parametrize("ahead", ["head", "body"])
def test_requests_sent_ahead_together_may_have_64_kib(listen: Listen, ahead: str) -> None:
    """All of it arrives at once, as if the server had been busy meanwhile. Otherwise the server stops
    reading at the first request that is sent ahead, and holds less."""
    target = listen()
    peer = target.send(request("/hold"))
    target.until(lambda: target.app.held == 1)
    [connection] = target.state.connections
    target.look(lambda: connection.data_received(AHEAD[ahead]))
    assert target.look(lambda: target.state.held_bytes) > 40_000
    target.release()
    read = b""
    while read.count(b"HTTP/1.1 200 ") < 2:
        read += peer.recv(1000)
    target.until(lambda: target.state.held_bytes == 0)


@pytest.mark.parametrize("ahead", ["head", "body"])
def test_more_than_64_kib_sent_ahead_end_the_connection(listen: Listen, ahead: str) -> None:
    target = listen()
    peer = target.send(request("/hold"))
    target.until(lambda: target.app.held == 1)
    [connection] = target.state.connections
    target.look(lambda: connection.data_received(AHEAD[ahead] * 2))
    assert rest_of(peer) == b""
    assert target.look(lambda: target.state.held_bytes) == 0


@pytest.mark.parametrize("ahead", list(AHEAD))
def test_requests_sent_ahead_by_all_peers_use_little_memory(listen: Listen, ahead: str) -> None:
    most = 1024 * 1024
    target = listen(held_bytes=most)
    peers = []
    for number in range(60):
        peers.append(target.send(request("/hold")))
        target.until(lambda number=number: target.app.held > number)  # type: ignore[misc]
        peers[-1].sendall(AHEAD[ahead])
    target.until(lambda: len(target.state.connections) <= most // 30_000)
    held = target.look(lambda: (target.state.held_bytes, sum(target.state.held.values())))
    assert held[0] == held[1]
    assert held[0] > most // 2


def test_answers_that_are_not_read_use_little_memory_together(listen: Listen) -> None:
    """The kernel has buffers of its own, beside the one of the process."""
    target = listen(held_bytes=len(ANSWER))
    for _ in range(6):
        target.send(request("/long"), buffer=4096)
    target.until(lambda: len(target.state.connections) < 6)
    assert target.look(lambda: target.state.held_bytes) <= len(ANSWER)


def test_rubbish_behind_a_request_is_no_part_of_its_answer(listen: Listen) -> None:
    target = listen()
    for rubbish in (b"\x00\xff rubbish\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"a" * 100_000):
        held = target.app.held
        peer = target.send(request("/hold"))
        target.until(lambda held=held: target.app.held > held)  # type: ignore[misc]
        with suppress(ConnectionError):
            peer.sendall(rubbish)
        assert status(peer) == 0


def test_rubbish_is_answered_400(listen: Listen) -> None:
    target = listen()
    for rubbish in (
        b"\x00\xff rubbish\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\n\r\n",
        b"\r\n\r\nxyz\r\n",
    ):
        assert status(target.send(rubbish)) == 400
    assert target.ask("/") == 200


#: What proxies and servers read differently: where a body ends, which header it is, where a line ends.
AMBIGUOUS = {
    "two lengths": b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a length twice": b"Content-Length: 3\r\nContent-Length: 5\r\n\r\nhello",
    "a list of lengths": b"Content-Length: 5, 5\r\n\r\nhello",
    "a signed length": b"Content-Length: +5\r\n\r\nhello",
    "a length behind a space": b"X: y\r\n Content-Length: 5\r\n\r\nhello",
    "a length before a space": b"Content-Length : 5\r\n\r\nhello",
    "a folded header": b"X: a\r\n b\r\n\r\n",
    "a header without a name": b": a\r\n\r\n",
    "a line that ends with LF": b"X: a\nContent-Length: 5\r\n\r\nhello",
    "a line that ends with CR": b"X: a\rContent-Length: 5\r\n\r\nhello",
    "NUL": b"X: a\x00b\r\n\r\n",
    "another coding": b"Transfer-Encoding: xchunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "chunked twice": b"Transfer-Encoding: chunked, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "chunked, then not": b"Transfer-Encoding: chunked, identity\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "a chunk size of another base": b"Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
    "a chunk size that ends with CR": b"Transfer-Encoding: chunked\r\n\r\n5\rXhello\r\n0\r\n\r\n",
    "a chunk size that ends with LF": b"Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
    "a chunk longer than its size": b"Transfer-Encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n",
}


@pytest.mark.parametrize("rest", AMBIGUOUS.values(), ids=list(AMBIGUOUS))
def test_what_a_proxy_may_read_differently_is_refused(listen: Listen, rest: bytes) -> None:
    """The end of one request that is the next to another reader carries what a proxy removes."""
    target = listen()
    peer = target.send(b"POST /read HTTP/1.1\r\nHost: x\r\n" + rest)
    assert status(peer) in (0, 400)
    assert is_closed(peer)


FITTED = """
import resource
from paddock.listener import ListenerLimits, fitted
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
limits = fitted(ListenerLimits(connections=1000, reserved=10), listeners={listeners})
print(limits.connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(
    ("soft", "hard", "listeners", "connections", "raised"),
    [
        (256, 4096, 1, 1000, 1522),  # as far as it is needed
        (256, 4096, 3, 1000, 3542),
        (2048, 4096, 1, 1000, 2048),  # never lowered
        (256, 1400, 1, 878, 1400),  # as far as it may be
        (256, 1024, 2, 256, 1024),  # half of the files at least
    ],
)
def test_the_soft_limit_of_open_files_is_raised_as_far_as_connections_need_it(
    soft: int, hard: int, listeners: int, connections: int, raised: int
) -> None:
    program = FITTED.format(soft=soft, hard=hard, listeners=listeners)
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines()[-1] == f"{connections} {raised}"
