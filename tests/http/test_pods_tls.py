"""The agent and the server over TLS: real processes, real certificates, real sockets."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import uvloop
from cryptography import x509
from prometheus_client import REGISTRY
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from structlog.testing import capture_logs

import paddock.web.server
import paddock.web.tls
from paddock.agent.options import AgentExit
from paddock.domain.pods.pod import Audience, PodIdentity
from paddock.fakes.github import JobSpec
from paddock.listener import ListenerLimits
from paddock.serve import check_settings
from paddock.settings import Settings, SettingsError
from paddock.store.database import Database
from paddock.system import SystemClock
from paddock.web.server import bind, serving
from paddock.web.tls import CertificateFiles, CertificateRejected, ServerCertificate
from tests.agent.conftest import JIT, TOKEN, Pod
from tests.agent.scripted import PATIENCE, Scripted
from tests.support.certificates import Authority, Issued, SecretVolume, private_pem
from tests.support.pod_gate import pod_gate

NAME = "localhost"
HOUR = timedelta(hours=1)
_OLD = (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1)
WORK = {"delivery": str(UUID(int=1)), "runner_name": "r-1", "jit": JIT}


@dataclass
class Polls:
    """An application that holds polls until it is told to answer them."""

    tokens: list[str] = field(default_factory=list)
    held: int = 0
    answer: asyncio.Event = field(default_factory=asyncio.Event)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def app(self) -> Starlette:
        post = ["POST"]
        return Starlette(
            routes=[
                Route("/v1/dispatch", self._dispatch, methods=post),
                Route("/v1/dispatch/ack", self._taken, methods=post),
                Route("/v1/vitals", self._taken, methods=post),
            ]
        )

    async def _dispatch(self, request: Request) -> Response:
        self._heard(request)
        self.held += 1
        self.news.set()
        await self.answer.wait()
        self.held -= 1
        return JSONResponse(WORK)

    async def _taken(self, request: Request) -> Response:
        self._heard(request)
        return Response(status_code=204)

    def _heard(self, request: Request) -> None:
        assert request.url.scheme == "https"
        self.tokens.append(request.headers["authorization"].removeprefix("Bearer "))

    async def until_held(self, polls: int = 1) -> None:
        async with asyncio.timeout(PATIENCE):
            while self.held < polls:
                self.news.clear()
                await self.news.wait()


@dataclass
class TlsServer:
    port: int
    polls: Polls
    certificate: ServerCertificate
    volume: SecretVolume

    @property
    def url(self) -> str:
        return f"https://{NAME}:{self.port}"


@asynccontextmanager
async def tls_server(directory: Path, issued: Issued, **limits: Any) -> AsyncIterator[TlsServer]:
    volume = SecretVolume(directory / "tls")
    volume.put(issued)
    files = CertificateFiles(certificate=volume.certificate, key=volume.key)
    certificate = ServerCertificate(files, SystemClock())
    polls = Polls()
    with bind(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        given = ListenerLimits(**limits)
        async with serving(polls.app, listener, limits=given, certificate=certificate):
            try:
                yield TlsServer(port, polls, certificate, volume)
            finally:
                polls.answer.set()


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
async def server(directory: Path, authority: Authority) -> AsyncIterator[TlsServer]:
    async with tls_server(directory, authority.issue(NAME)) as server:
        yield server


@pytest.fixture
def ca(directory: Path, authority: Authority) -> Path:
    """The authority's certificate, as a Pod gets it."""
    volume = SecretVolume(directory / "ca")
    volume.write(**{"ca.crt": authority.pem})
    return volume.path / "ca.crt"


@asynccontextmanager
async def a_pod(directory: Path, url: str) -> AsyncIterator[Pod]:
    pod = Pod(Scripted(url=url), directory)
    pod.stage.mkdir()
    pod.token_file.write_text(TOKEN)
    try:
        yield pod
    finally:
        await pod.stop()


@pytest.fixture
async def pod(directory: Path, server: TlsServer) -> AsyncIterator[Pod]:
    async with a_pod(directory, server.url) as pod:
        yield pod


def failures(reason: str) -> float:
    found = REGISTRY.get_sample_value("paddock_tls_handshakes_failed_total", {"reason": reason})
    return found or 0.0


async def presented(port: int) -> int:
    """The serial number of the certificate that a new connection gets."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return x509.load_der_x509_certificate(shown).serial_number


def serial(issued: Issued) -> int:
    return x509.load_pem_x509_certificate(issued.certificate).serial_number


# The agent.


async def test_a_job_is_handed_out_over_tls(
    database: Database, directory: Path, authority: Authority, ca: Path
) -> None:
    """The agent, the endpoints for Pods, the store."""

    known: dict[str, PodIdentity] = {}

    class Reviewer:
        async def review(self, token: str, *, peer: str) -> PodIdentity | None:
            return known.get(token)

    volume = SecretVolume(directory / "tls")
    volume.put(authority.issue(NAME))
    files = CertificateFiles(certificate=volume.certificate, key=volume.key)
    certificate = ServerCertificate(files, SystemClock())
    async with (
        pod_gate(database, Reviewer(), certificate) as gate,
        a_pod(directory, gate.url) as pod,
    ):
        name = await gate.planned()
        known[TOKEN] = PodIdentity(
            pod_name=name,
            pod_uid=str(uuid4()),
            expires_at=datetime.now(UTC) + HOUR,
            audience=Audience.DISPATCH,
        )
        poller = await pod.poll("--ca-file", str(ca))
        gate.scene.fake.jobs.queue_run(gate.scene.site, [JobSpec(labels=("self-hosted", "linux"))])
        await gate.scene.deliver()
        await gate.scene.apply()
        ended = await poller.ends()
        assert ended.code == AgentExit.STAGED
        assert ended.says("acknowledged")
        assert pod.staged == ["jit", "name", "run"]


async def test_the_sidecar_reports_over_tls(pod: Pod, server: TlsServer, ca: Path) -> None:
    vitals = pod.stage / "vitals"
    vitals.mkdir()
    (vitals / "job-started").write_text("1700000000\n")
    sidecar = await pod.agent("vitals", "--ca-file", str(ca))
    await pod.until(lambda: server.polls.tokens == [TOKEN])
    (vitals / "ended").write_text("1700000009 100\n")
    assert (await sidecar.ends()).code == AgentExit.STAGED


@pytest.mark.parametrize(
    ("issuer", "names", "valid", "complaint"),
    [
        ("another", [NAME], (-HOUR, HOUR), "unable to get local issuer certificate"),
        ("ours", ["paddock.elsewhere.svc"], (-HOUR, HOUR), "hostname mismatch"),
        ("ours", ["127.0.0.1"], (-HOUR, HOUR), "hostname mismatch"),
        ("ours", [NAME], (-2 * HOUR, -HOUR), "certificate has expired"),
        ("ours", [NAME], (HOUR, 2 * HOUR), "certificate is not yet valid"),
    ],
    ids=["authority", "name", "address", "expired", "early"],
)
async def test_a_server_that_is_not_ours_is_refused_and_gets_no_token(
    directory: Path,
    authority: Authority,
    ca: Path,
    issuer: str,
    names: list[str],
    valid: tuple[timedelta, timedelta],
    complaint: str,
) -> None:
    """The certificate is verified before anything is sent, every time."""
    by = authority if issuer == "ours" else Authority("another authority")
    issued = by.issue(*names, valid_from=valid[0], valid_to=valid[1])
    before = failures("certificate")
    async with tls_server(directory, issued) as server, a_pod(directory, server.url) as pod:
        poller = await pod.poll("--ca-file", str(ca))
        for _ in range(2):
            await poller.says(f"the server's certificate is rejected: {complaint}")
        assert poller.alive
        assert server.polls.tokens == []
    assert failures("certificate") > before


async def test_without_a_file_of_authorities_the_systems_are_trusted_and_no_others(
    pod: Pod, server: TlsServer
) -> None:
    poller = await pod.poll()
    await poller.says("the server's certificate is rejected")
    assert server.polls.tokens == []


async def test_an_agent_that_was_told_https_never_speaks_without_tls(
    directory: Path, ca: Path
) -> None:
    """Neither its token nor anything else that can be read reaches a server without TLS."""
    received = bytearray()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.extend(await reader.read(65536))
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    plain = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = plain.sockets[0].getsockname()[1]
    async with plain, a_pod(directory, f"https://{NAME}:{port}") as pod:
        poller = await pod.poll("--ca-file", str(ca))
        for _ in range(3):
            await poller.says("the server does not speak tls as it should")
        assert poller.alive
    assert received
    assert TOKEN.encode() not in received
    assert b"HTTP" not in received


async def test_an_agent_without_tls_is_answered_nothing(directory: Path, server: TlsServer) -> None:
    before = failures("plain")
    async with a_pod(directory, f"http://127.0.0.1:{server.port}") as pod:
        poller = await pod.poll()
        await poller.says("lost an answer")
        assert poller.alive
    assert server.polls.tokens == []
    assert failures("plain") > before


async def test_tls_before_1_2_is_refused(server: TlsServer) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    for least, most in ((ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2), _OLD):
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            context.minimum_version, context.maximum_version = least, most
        if (least, most) == _OLD:
            with pytest.raises(OSError):  # noqa: PT011 -- either side may say it
                await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
        else:
            _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
            writer.close()
            await writer.wait_closed()


# Another authority.


async def test_pods_that_trust_both_authorities_notice_nothing(
    pod: Pod, server: TlsServer, authority: Authority, ca: Path
) -> None:
    """First both are trusted, then the server's certificate is replaced."""
    other = Authority("the next authority")
    poller = await pod.poll("--ca-file", str(ca))
    await server.polls.until_held()
    SecretVolume(ca.parent).write(**{"ca.crt": authority.pem + other.pem})
    server.volume.put(other.issue(NAME))
    server.certificate.refresh()
    # Its held poll ends, and the next one gets the other certificate.
    server.polls.answer.set()
    ended = await poller.ends()
    assert ended.code == AgentExit.STAGED
    assert not ended.says("failed")
    assert ended.says("acknowledged")


async def test_a_pod_that_learns_of_the_new_authority_too_late_asks_until_it_does(
    pod: Pod, server: TlsServer, ca: Path
) -> None:
    other = Authority("the next authority")
    server.volume.put(other.issue(NAME))
    server.certificate.refresh()
    poller = await pod.poll("--ca-file", str(ca))
    await poller.says("the server's certificate is rejected")
    SecretVolume(ca.parent).write(**{"ca.crt": other.pem})
    await server.polls.until_held()
    await poller.says("authorities.replaced")
    assert server.polls.tokens == [TOKEN]


@pytest.mark.parametrize("content", [b"", b"rubbish"])
async def test_authorities_that_cannot_be_read_leave_those_of_before(
    pod: Pod, server: TlsServer, ca: Path, content: bytes
) -> None:
    pod.speedup = "20"
    poller = await pod.poll("--ca-file", str(ca), "--wait", "1")
    await server.polls.until_held()
    SecretVolume(ca.parent).write(**{"ca.crt": content})
    server.polls.answer.set()
    ended = await poller.ends()
    assert ended.code == AgentExit.STAGED
    assert ended.says("authorities.rejected")


# Renewal.


async def test_a_renewed_certificate_is_used_while_polls_are_held(
    pod: Pod, server: TlsServer, authority: Authority, ca: Path
) -> None:
    """A held poll stays held, and is answered over its own connection."""
    poller = await pod.poll("--ca-file", str(ca))
    await server.polls.until_held()
    renewed = authority.issue(NAME, valid_to=2 * HOUR)
    server.volume.put(renewed)
    with capture_logs() as logs:
        server.certificate.refresh()
    assert [each["event"] for each in logs] == ["tls.certificate_replaced"]
    assert await presented(server.port) == serial(renewed)
    expiry = x509.load_pem_x509_certificate(renewed.certificate).not_valid_after_utc
    shown = REGISTRY.get_sample_value("paddock_tls_certificate_expiry_timestamp_seconds")
    assert shown == expiry.timestamp()
    assert server.polls.held == 1
    server.polls.answer.set()
    assert (await poller.ends()).code == AgentExit.STAGED


async def test_the_files_are_looked_at_again_and_again(
    server: TlsServer, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paddock.web.tls, "LOOK_EVERY", 0.01)
    task = asyncio.create_task(server.certificate.run())
    renewed = authority.issue(NAME)
    server.volume.put(renewed)
    async with asyncio.timeout(PATIENCE):
        while await presented(server.port) != serial(renewed):  # noqa: ASYNC110 -- a loop's doing
            await asyncio.sleep(0.05)
    task.cancel()


def broken(authority: Authority) -> Iterator[tuple[str, dict[str, bytes], str]]:
    good, other = authority.issue(NAME), authority.issue(NAME)
    old = authority.issue(NAME, valid_from=-2 * HOUR, valid_to=-HOUR)
    early = authority.issue(NAME, valid_from=HOUR, valid_to=2 * HOUR)
    yield "rubbish", {"tls.crt": b"rubbish", "tls.key": good.key}, "holds no certificate"
    yield "empty", {"tls.crt": b"", "tls.key": good.key}, "holds no certificate"
    yield "cut", {"tls.crt": good.certificate[:200], "tls.key": good.key}, "holds no certificate"
    yield "key", {"tls.crt": good.certificate, "tls.key": b"rubbish"}, "holds no private key"
    locked = private_pem(authority.key, b"password")
    yield "locked", {"tls.crt": good.certificate, "tls.key": locked}, "is encrypted"
    yield "pair", {"tls.crt": good.certificate, "tls.key": other.key}, "does not belong to"
    yield "absent", {"tls.crt": good.certificate}, "cannot be read: No such file"
    yield "expired", {"tls.crt": old.certificate, "tls.key": old.key}, "is valid from"
    yield "early", {"tls.crt": early.certificate, "tls.key": early.key}, "is valid from"


@pytest.mark.parametrize("case", [name for name, _, _ in broken(Authority())])
async def test_a_broken_renewal_keeps_the_certificate_of_before(
    server: TlsServer, authority: Authority, case: str
) -> None:
    [(files, complaint)] = [
        (files, complaint) for name, files, complaint in broken(authority) if name == case
    ]
    before = await presented(server.port)
    server.volume.write(**files)
    with capture_logs() as logs:
        server.certificate.refresh()
        server.certificate.refresh()
    [line] = logs
    assert line["event"] == "tls.certificate_rejected"
    assert complaint in line["reason"]
    assert str(server.volume.path) in line["reason"]
    assert await presented(server.port) == before

    good = authority.issue(NAME)
    server.volume.put(good)
    server.certificate.refresh()
    assert await presented(server.port) == serial(good)


@pytest.mark.parametrize(
    "case", [name for name, _, _ in broken(Authority()) if name not in ("expired", "early")]
)
def test_a_server_does_not_start_with_a_broken_certificate(
    directory: Path, authority: Authority, case: str
) -> None:
    [(files, complaint)] = [
        (files, complaint) for name, files, complaint in broken(authority) if name == case
    ]
    volume = SecretVolume(directory / "tls")
    volume.write(**files)
    with pytest.raises(CertificateRejected, match=complaint):
        ServerCertificate(
            CertificateFiles(certificate=volume.certificate, key=volume.key), SystemClock()
        )


@pytest.mark.parametrize(
    ("missing", "sentence"),
    [
        ("pods_key_file", "PADDOCK_PODS_CERTIFICATE_FILE and PADDOCK_PODS_KEY_FILE go together"),
        ("pods_certificate_file", "PADDOCK_PODS_CERTIFICATE_FILE and PADDOCK_PODS_KEY_FILE go"),
        ("pods_listen", "PADDOCK_PODS_CERTIFICATE_FILE is for PADDOCK_PODS_LISTEN"),
        ("", "tls.crt cannot be read: No such file"),
    ],
)
def test_what_is_wrong_with_the_settings_is_told_before_anything_starts(
    directory: Path, missing: str, sentence: str
) -> None:
    given: dict[str, Any] = {
        "pods_listen": "127.0.0.1:0",
        "pods_certificate_file": directory / "tls.crt",
        "pods_key_file": directory / "tls.key",
    }
    given.pop(missing, None)
    with pytest.raises(SettingsError) as raised:
        check_settings(Settings(**given))
    assert any(sentence in mistake for mistake in raised.value.mistakes)


def test_a_server_starts_with_an_expired_certificate_and_says_so(
    directory: Path, authority: Authority
) -> None:
    """The server also has other work than to serve Pods."""
    volume = SecretVolume(directory / "tls")
    volume.put(authority.issue(NAME, valid_from=-2 * HOUR, valid_to=-HOUR))
    with capture_logs() as logs:
        ServerCertificate(
            CertificateFiles(certificate=volume.certificate, key=volume.key), SystemClock()
        )
    assert [each["event"] for each in logs] == ["tls.certificate_expired"]


# Handshakes.


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_request_that_comes_with_the_end_of_the_handshake_is_answered(
    directory: Path, authority: Authority, loop: Any, version: ssl.TLSVersion
) -> None:
    """On both event loops: `paddock serve` uses uvloop."""
    context = ssl.create_default_context(cadata=authority.pem.decode())
    context.minimum_version = context.maximum_version = version

    def ask(port: int) -> bytes:
        """The last message of the handshake and the request go out in one segment."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_hostname=NAME)
        request = b"POST /v1/vitals HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t\r\n"
        request += b"Content-Length: 0\r\nConnection: close\r\n\r\n"

        def receive(connection: socket.socket) -> None:
            if not (received := connection.recv(65536)):
                raise ConnectionError("the server ended the connection")
            incoming.write(received)

        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    connection.sendall(outgoing.read())
                    receive(connection)
            tls.write(request)
            connection.sendall(outgoing.read())
            while True:
                try:
                    return tls.read(4096)
                except ssl.SSLWantReadError:
                    receive(connection)

    async def scenario() -> bytes:
        # With room for one: its handshake does not count beside it.
        async with tls_server(directory, authority.issue(NAME), connections=1) as server:
            return await asyncio.to_thread(ask, server.port)

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(scenario()).startswith(b"HTTP/1.1 204")


@contextmanager
def silent(port: int) -> Iterator[socket.socket]:
    """A connection on which no handshake begins."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setblocking(False)
        yield connection


async def ended(connection: socket.socket) -> bool:
    """Whether the server ends it."""
    async with asyncio.timeout(PATIENCE):
        try:
            return await asyncio.get_running_loop().sock_recv(connection, 1) == b""
        except ConnectionResetError:
            return True


def closed(reason: str) -> float:
    found = REGISTRY.get_sample_value("paddock_connections_closed_total", {"reason": reason})
    return found or 0.0


def test_connections_that_were_reset_before_they_were_accepted_raise_nothing(
    directory: Path, authority: Authority
) -> None:
    """On uvloop, as `paddock serve`: such a connection has no peer's name."""
    raised: list[object] = []

    def reset(port: int) -> None:
        for _ in range(200):
            with socket.socket() as connection:
                linger = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                connection.connect(("127.0.0.1", port))

    async def attack() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: raised.append(context))
        async with tls_server(directory, authority.issue(NAME)) as server:
            reset(server.port)  # while the loop accepts nothing
            await presented(server.port)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(attack())
    assert raised == []


async def test_a_handshake_that_does_not_begin_is_ended(
    directory: Path, authority: Authority
) -> None:
    before = closed("handshake")
    async with tls_server(
        directory, authority.issue(NAME), handshake_seconds=0.1, tick_seconds=0.05
    ) as server:
        with silent(server.port) as connection:
            assert await ended(connection)
    assert closed("handshake") == before + 1


async def test_handshakes_of_a_peer_have_a_limit(directory: Path, authority: Authority) -> None:
    before = closed("peer")
    async with tls_server(
        directory,
        authority.issue(NAME),
        handshake_seconds=3600,
        tick_seconds=0.05,
        waiting_per_peer=5,
    ) as server:
        with ExitStack() as held:
            opened = [held.enter_context(silent(server.port)) for _ in range(8)]
            # Those that have waited longest.
            for connection in opened[:3]:
                assert await ended(connection)
            await presented(server.port)
    assert closed("peer") == before + 3


async def test_a_full_listener_closes_handshakes_and_no_held_poll(
    directory: Path, authority: Authority, ca: Path
) -> None:
    before = closed("full")
    async with (
        tls_server(
            directory, authority.issue(NAME), handshake_seconds=3600, connections=2
        ) as server,
        a_pod(directory, server.url) as pod,
    ):
        poller = await pod.poll("--ca-file", str(ca))
        await server.polls.until_held()
        with ExitStack() as held:
            opened = [held.enter_context(silent(server.port)) for _ in range(4)]
            for connection in opened[:3]:
                assert await ended(connection)
            assert closed("full") == before + 3
            assert server.polls.held == 1
            server.polls.answer.set()
            assert (await poller.ends()).code == AgentExit.STAGED


async def test_handshakes_that_are_over_are_not_counted(
    directory: Path, authority: Authority
) -> None:
    """Neither those that succeeded nor those that failed."""
    async with tls_server(directory, authority.issue(NAME), connections=2) as server:
        before = closed("full")
        for _ in range(5):
            await presented(server.port)
            with silent(server.port) as connection:
                connection.send(b"GET / HTTP/1.1\r\n\r\n")
                assert await ended(connection)
        assert closed("full") == before


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_server_that_stops_waits_for_no_handshake(
    directory: Path, authority: Authority, loop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paddock.web.server, "FINISH_WITHIN", 3600)

    async def scenario() -> None:
        async with asyncio.timeout(PATIENCE):
            with ExitStack() as held:
                async with tls_server(
                    directory, authority.issue(NAME), handshake_seconds=3600
                ) as server:
                    connection = held.enter_context(silent(server.port))
                    await presented(server.port)
                assert await ended(connection)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(scenario())
