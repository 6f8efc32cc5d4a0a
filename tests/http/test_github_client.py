"""The App client over real HTTP, against a loopback server with scripted answers."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import logging
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import jwt
import pytest
import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from pydantic import SecretStr

from paddock.domain.github.budgets import BudgetLimits
from paddock.domain.github.errors import BackOff, Failure, GitHubError, Kind
from paddock.domain.github.objects import (
    Absent,
    AppKey,
    ConflictAction,
    DeliveryId,
    GitHubAppId,
    GitHubHost,
    GitHubRepositoryId,
    InstallationId,
    InstallationKey,
    Removal,
    RunId,
    RunnerGroupId,
    RunnerRecord,
    Scope,
)
from paddock.domain.ids import GitHubRunnerId, JobId
from paddock.domain.states import JobState
from paddock.github import connection
from paddock.github.apps import Apps, GitHubApp
from paddock.github.budget import MemoryBudget
from paddock.github.client import JOB_PAGES, RUN_PAGES, GitHubClient
from paddock.ports import GitHub
from tests.support.time import ManualClock

HOST = GitHubHost("github.test")
APP = AppKey(host=HOST, app=GitHubAppId(12))
WHO = InstallationKey(host=HOST, app=APP.app, installation=InstallationId(34))
ACME = Scope(host=HOST, owner="acme")
SITE = Scope(host=HOST, owner="acme", repository="site")

TOKENS = "/app/installations/34/access_tokens"
RUNNERS = "/orgs/acme/actions/runners"
MINT = "/orgs/acme/actions/runners/generate-jitconfig"
JIT = "eyJydW5uZXIiOiJvbmx5LW9uY2UifQ=="


# -- a server that answers as it is told to


@dataclass(frozen=True)
class Seen:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any

    @property
    def token(self) -> str:
        return self.headers["authorization"].removeprefix("Bearer ")


@dataclass(frozen=True)
class Reply:
    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    silent: bool = False  # the request is read, and nothing is ever said
    cut: bool = False  # the request is read, and the connection closed


Answering = Reply | Callable[[Seen], Reply]


class Script:
    """Answers by method and path. Of several answers each is given once, the last one repeatedly."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.reached = asyncio.Event()
        self.url = ""
        self._answers: dict[tuple[str, str], list[Answering]] = {}
        self._connections: set[asyncio.StreamWriter] = set()

    def on(self, method: str, path: str, *answers: Answering) -> None:
        self._answers[method, path] = list(answers)

    def asked(self, method: str, path: str) -> list[Seen]:
        return [seen for seen in self.seen if (seen.method, seen.path) == (method, path)]

    def _reply(self, seen: Seen) -> Reply:
        answers = self._answers.get((seen.method, seen.path))
        if not answers:
            return Reply(404, {"message": "Not Found"})
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        return answer if isinstance(answer, Reply) else answer(seen)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while not writer.is_closing():
                seen = await _read_request(reader)
                self.seen.append(seen)
                self.reached.set()
                reply = self._reply(seen)
                if reply.silent:
                    await reader.read()
                if reply.silent or reply.cut:
                    break
                writer.write(_written(reply))
                await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        self._connections.discard(writer)

    def disconnect(self) -> None:
        for writer in self._connections:
            writer.close()


async def _read_request(reader: asyncio.StreamReader) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    line, *lines = head.rstrip().split("\r\n")
    method, target, _ = line.split(" ")
    headers = {
        name.lower(): value.strip()
        for name, _, value in (header.partition(":") for header in lines)
    }
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    url = urlsplit(target)
    return Seen(method, url.path, dict(parse_qsl(url.query)), headers, json.loads(body or "null"))


def _written(reply: Reply) -> bytes:
    body = reply.raw
    if body is None:
        body = b"" if reply.body is None else json.dumps(reply.body).encode()
    headers = {"content-type": "application/json", "content-length": len(body)} | reply.headers
    lines = [
        f"HTTP/1.1 {reply.status} OK",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


@asynccontextmanager
async def serving(script: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[Script]:
    server = await asyncio.start_server(script.handle, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    script.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    try:
        yield script
    finally:
        server.close()
        script.disconnect()
        await server.wait_closed()


# -- what it says


def token_reply(seen: Seen, clock: ManualClock, value: str) -> Reply:
    expires = (clock.now() + timedelta(hours=1)).isoformat().replace("+00:00", "Z")
    return Reply(201, {"token": value, "expires_at": expires, "permissions": {}})


def runner(number: int = 7, name: str = "linux-x7k2-1", **changed: Any) -> dict[str, Any]:
    record = {
        "id": number,
        "name": name,
        "os": "unknown",
        "status": "offline",
        "busy": False,
        "labels": [{"id": 0, "name": "linux", "type": "custom"}],
        "runner_group_id": 1,
    }
    return record | changed


def runners(*found: dict[str, Any]) -> Reply:
    return Reply(200, {"total_count": len(found), "runners": list(found)})


def minted() -> Reply:
    return Reply(201, {"runner": runner(), "encoded_jit_config": JIT})


def job(number: int = 99, **changed: Any) -> dict[str, Any]:
    record = {
        "id": number,
        "run_id": 5,
        "run_attempt": 2,
        "name": "build",
        "workflow_name": "CI",
        "status": "queued",
        "conclusion": None,
        "labels": ["linux", "large"],
        "runner_id": 0,
        "runner_name": "",
        "runner_group_id": 0,
        "created_at": "2026-01-05T08:59:00Z",
        "started_at": "2026-01-05T08:59:00Z",
        "completed_at": None,
        "steps": [],
    }
    return record | changed


def run(number: int = 5, head: int | None = 1, **changed: Any) -> dict[str, Any]:
    record = {
        "id": number,
        "name": "CI",
        "event": "pull_request",
        "status": "in_progress",
        "conclusion": None,
        "run_attempt": 1,
        "repository": {"id": 1, "full_name": "acme/site"},
        "head_repository": {"id": head, "full_name": "x/site"} if head else None,
        "created_at": "2026-01-05T08:58:00Z",
    }
    return record | changed


def refusal(status: int, message: str = "", **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(
        status, {"message": message, "documentation_url": "https://docs.github.com"}, named
    )


NOT_FOUND = refusal(404, "Not Found")


# -- the client


@cache
def rsa_key(number: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def claims_of(seen: Seen, key: int) -> dict[str, Any]:
    """The claims of a request's JWT, if it was signed with that key."""
    return jwt.decode(
        seen.token,
        rsa_key(key).public_key(),
        algorithms=["RS256"],
        options={"verify_exp": False, "verify_iat": False},
    )


def pem(
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, password: bytes | None = None
) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password)
        if password
        else serialization.NoEncryption(),
    )


def write(file: Path, content: bytes | None) -> None:
    file.unlink(missing_ok=True)
    if content is not None:
        file.write_bytes(content)


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "app.pem"
    write(file, pem(rsa_key(0)))
    return file


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
async def script(clock: ManualClock) -> AsyncIterator[Script]:
    async with serving(Script()) as script:
        script.on("POST", TOKENS, lambda seen: token_reply(seen, clock, "ghs_firsttoken0000"))
        yield script


def app(
    url: str, key_file: Path, host: GitHubHost = HOST, limits: BudgetLimits | None = None
) -> GitHubApp:
    return GitHubApp(
        host=host,
        app_id=APP.app,
        api_url=url,
        private_key_file=key_file,
        webhook_secrets=(SecretStr("hook-secret"),),
        limits=limits or BudgetLimits(),
    )


@asynccontextmanager
async def client_of(clock: ManualClock, *apps: GitHubApp) -> AsyncIterator[GitHubClient]:
    registry = Apps(apps)
    client = GitHubClient(registry, clock=clock, budget=MemoryBudget(clock, registry.limits))
    try:
        yield client
    finally:
        await client.aclose()


@pytest.fixture
async def github(script: Script, key_file: Path, clock: ManualClock) -> AsyncIterator[GitHub]:
    async with client_of(clock, app(script.url, key_file)) as client:
        yield client


async def mint(github: GitHub, scope: Scope = ACME, who: InstallationKey = WHO) -> Any:
    return await github.mint_jit(
        who, scope, name="linux-x7k2-1", runner_group_id=RunnerGroupId(1), labels=["linux"]
    )


async def failing(call: Awaitable[Any]) -> Failure:
    with pytest.raises(GitHubError) as raised:
        await call
    return raised.value.failure


# -- credentials


async def test_the_app_signs_with_its_key_backdated_and_for_ten_minutes(
    script: Script, github: GitHub, clock: ManualClock
) -> None:
    script.on("GET", "/app/installations", Reply(200, []))
    await github.list_installations(APP)
    now = int(clock.now().timestamp())
    assert claims_of(script.seen[0], 0) == {"iss": "12", "iat": now - 60, "exp": now + 540}


async def test_a_hundred_calls_at_once_ask_for_one_token(script: Script, github: GitHub) -> None:
    script.on("GET", f"{RUNNERS}/7", Reply(200, runner()))
    await asyncio.gather(*(github.get_runner(WHO, ACME, GitHubRunnerId(7)) for _ in range(100)))
    assert len(script.asked("POST", TOKENS)) == 1
    assert len(script.asked("GET", f"{RUNNERS}/7")) == 100


async def test_a_caller_that_stops_waiting_takes_the_token_from_no_other(
    script: Script, github: GitHub, clock: ManualClock
) -> None:
    script.on("GET", f"{RUNNERS}/7", Reply(200, runner()))
    first = asyncio.create_task(github.get_runner(WHO, ACME, GitHubRunnerId(7)))
    second = asyncio.create_task(github.get_runner(WHO, ACME, GitHubRunnerId(7)))
    await script.reached.wait()
    first.cancel()
    assert isinstance(await second, RunnerRecord)
    assert len(script.asked("POST", TOKENS)) == 1


async def test_a_token_is_used_until_five_minutes_before_its_end(
    script: Script, github: GitHub, clock: ManualClock
) -> None:
    script.on("GET", RUNNERS, runners())
    for minutes in (0, 54, 2):
        clock.advance(minutes * 60)
        await github.control_read(WHO, ACME)
    assert len(script.asked("POST", TOKENS)) == 2


async def test_an_old_token_bridges_a_moment_in_which_github_gives_no_new_one(
    script: Script, github: GitHub, clock: ManualClock
) -> None:
    script.on("GET", RUNNERS, runners())
    await github.control_read(WHO, ACME)
    script.on("POST", TOKENS, Reply(502))
    clock.advance(56 * 60)
    await github.control_read(WHO, ACME)
    clock.advance(3.5 * 60)
    assert (await failing(github.control_read(WHO, ACME))).kind is Kind.SERVER_ERROR


async def test_a_token_that_was_refused_is_asked_for_again(
    script: Script, github: GitHub, clock: ManualClock
) -> None:
    """I9: a suspended installation works again as soon as it is resumed."""
    script.on("GET", RUNNERS, runners())
    script.on(
        "POST",
        TOKENS,
        refusal(403, "This installation has been suspended"),
        lambda seen: token_reply(seen, clock, "ghs_afterwards0000"),
    )
    failure = await failing(github.control_read(WHO, ACME))
    assert (failure.kind, failure.backs_off) == (Kind.INSTALLATION_SUSPENDED, BackOff.ACCOUNT)
    await github.control_read(WHO, ACME)


async def test_a_token_github_no_longer_takes_is_replaced_once(
    script: Script, github: GitHub, clock: ManualClock
) -> None:
    script.on(
        "POST",
        TOKENS,
        lambda seen: token_reply(seen, clock, "ghs_firsttoken0000"),
        lambda seen: token_reply(seen, clock, "ghs_secondtoken000"),
    )
    script.on("POST", MINT, refusal(401, "Bad credentials"), minted())
    assert (await mint(github)).runner.id == 7
    used = [seen.token for seen in script.asked("POST", MINT)]
    assert used == ["ghs_firsttoken0000", "ghs_secondtoken000"]


async def test_a_token_github_never_takes_is_a_failure_after_the_second_attempt(
    script: Script, github: GitHub
) -> None:
    script.on("GET", RUNNERS, refusal(401, "Bad credentials"))
    failure = await failing(github.control_read(WHO, ACME))
    assert (failure.kind, failure.backs_off) == (Kind.BAD_CREDENTIALS, BackOff.ACCOUNT)
    assert len(script.asked("GET", RUNNERS)) == 2


async def test_a_new_key_is_used_without_a_restart(
    script: Script, github: GitHub, key_file: Path
) -> None:
    script.on("GET", "/app/installations", Reply(200, []))
    await github.list_installations(APP)
    write(key_file, pem(rsa_key(1)))
    await github.list_installations(APP)
    assert claims_of(script.seen[0], 0)
    assert claims_of(script.seen[1], 1)


async def test_a_key_file_that_is_being_replaced_does_not_stop_anything(
    script: Script, github: GitHub, key_file: Path
) -> None:
    script.on("GET", "/app/installations", Reply(200, []))
    await github.list_installations(APP)
    write(key_file, pem(rsa_key(1))[:200])
    with structlog.testing.capture_logs() as logs:
        await github.list_installations(APP)
    assert claims_of(script.seen[1], 0)
    assert [entry["event"] for entry in logs] == ["github.key_kept"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file"),
        (b"", "not a private key"),
        (pem(rsa_key(0), b"secret"), "protected by a password"),
        (pem(ec.generate_private_key(ec.SECP256R1())), "not an RSA key"),
    ],
    # Every process makes new keys, but test names must not change.
    ids=["missing", "empty", "encrypted", "of another kind"],
)
async def test_a_key_that_cannot_be_used_is_named_with_its_file(
    github: GitHub, key_file: Path, content: bytes | None, why: str
) -> None:
    write(key_file, content)
    failure = await failing(github.list_installations(APP))
    assert (failure.kind, failure.backs_off) == (Kind.KEY_UNREADABLE, BackOff.APP)
    assert why in failure.sentence
    assert str(key_file) in failure.sentence


async def test_an_installation_that_is_gone_is_told_apart_from_an_app_that_sees_nothing(
    script: Script, github: GitHub
) -> None:
    """I66"""
    script.on("POST", TOKENS, NOT_FOUND)
    assert (await failing(github.control_read(WHO, ACME))).kind is Kind.NOT_FOUND
    script.on("GET", "/app", Reply(200, {"id": 12}))
    failure = await failing(github.control_read(WHO, ACME))
    assert (failure.kind, failure.backs_off) == (Kind.NOT_FOUND_PROVEN, BackOff.ACCOUNT)


# -- minting


async def test_a_mint_sends_the_name_group_and_labels_and_brings_a_jit(
    script: Script, github: GitHub
) -> None:
    script.on("POST", MINT, minted())
    jit = await mint(github)
    assert script.seen[-1].body == {
        "name": "linux-x7k2-1",
        "runner_group_id": 1,
        "labels": ["linux"],
        "work_folder": "_work",
    }
    assert jit.encoded_jit_config == JIT
    assert jit.runner == RunnerRecord(
        host=HOST,
        id=GitHubRunnerId(7),
        name="linux-x7k2-1",
        status="offline",
        busy=False,
        labels=("linux",),
        group_id=RunnerGroupId(1),
    )


async def test_a_repositorys_runner_is_registered_under_its_owner(
    script: Script, github: GitHub
) -> None:
    """I18"""
    script.on("POST", "/repos/acme/site/actions/runners/generate-jitconfig", minted())
    await mint(github, SITE)


async def test_every_request_says_who_asks_in_which_version(script: Script, github: GitHub) -> None:
    script.on("POST", MINT, minted())
    await mint(github)
    for seen in script.seen:
        assert seen.headers["user-agent"].startswith("paddock/")
        assert seen.headers["x-github-api-version"] == "2022-11-28"
        assert seen.headers["accept"] == "application/vnd.github+json"


@pytest.mark.parametrize(
    "lost",
    [
        Reply(silent=True),
        Reply(cut=True),
        Reply(502),
        Reply(201, raw=b'{"runner": {"id": 7'),
        Reply(201, {"runner": runner(), "encoded_jit_config": ""}),
    ],
    ids=["time-out", "connection cut", "502", "half an answer", "empty JIT"],
)
async def test_a_mint_whose_answer_is_lost_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch, script: Script, key_file: Path, clock: ManualClock, lost: Reply
) -> None:
    """I19, I41: the name is left as a debt."""
    monkeypatch.setattr(connection, "READ_TIMEOUT_S", 0.1)
    script.on("POST", MINT, lost)
    async with client_of(clock, app(script.url, key_file)) as github:
        failure = await failing(mint(github))
    assert failure.kind is Kind.OUTCOME_UNKNOWN
    assert failure.unsettled
    assert len(script.asked("POST", MINT)) == 1


async def test_a_mint_that_could_not_be_sent_is_settled(key_file: Path, clock: ManualClock) -> None:
    async with contextlib.AsyncExitStack() as clients:
        async with serving(Script()) as script:
            script.on("POST", TOKENS, lambda seen: token_reply(seen, clock, "ghs_firsttoken0000"))
            script.on("GET", RUNNERS, Reply(200, {"runners": []}, {"connection": "close"}))
            github = await clients.enter_async_context(client_of(clock, app(script.url, key_file)))
            await github.control_read(WHO, ACME)
        failure = await failing(mint(github))
    assert (failure.kind, failure.backs_off) == (Kind.NO_ANSWER, BackOff.APP)
    assert not failure.unsettled


async def test_a_name_that_exists_is_resolved_by_one_look(script: Script, github: GitHub) -> None:
    """I19, runs-on#546: find the record, say what to do with it, never loop."""
    script.on("POST", MINT, refusal(409, "Already exists - A runner with the name *** exists."))
    script.on("GET", RUNNERS, runners(runner(number=41)))
    assert (await failing(mint(github))).kind is Kind.NAME_EXISTS
    asked = len(script.seen)
    conflict = await github.resolve_name_conflict(WHO, ACME, name="linux-x7k2-1")
    assert conflict.action is ConflictAction.DELETE_AND_RENAME
    assert conflict.record is not None
    assert conflict.record.id == 41
    assert len(script.seen) == asked + 1
    assert not [seen for seen in script.seen if seen.method == "DELETE"]


@pytest.mark.parametrize("state", [{"busy": True}, {"status": "online"}])
async def test_a_runner_in_use_under_the_same_name_is_left_alone(
    script: Script, github: GitHub, state: dict[str, Any]
) -> None:
    script.on("GET", RUNNERS, runners(runner(**state)))
    conflict = await github.resolve_name_conflict(WHO, ACME, name="linux-x7k2-1")
    assert conflict.action is ConflictAction.RENAME


@pytest.mark.parametrize(
    ("name", "labels"), [("", ["linux"]), ("x" * 65, ["linux"]), ("x", []), ("x", ["l"] * 101)]
)
async def test_a_mint_github_would_refuse_is_not_sent(
    script: Script, github: GitHub, name: str, labels: list[str]
) -> None:
    """I19"""
    with pytest.raises(ValueError, match=r"runner"):
        await github.mint_jit(WHO, ACME, name=name, runner_group_id=RunnerGroupId(1), labels=labels)
    assert not script.seen


# -- deleting and looking up


async def test_a_runner_is_removed(script: Script, github: GitHub) -> None:
    script.on("DELETE", f"{RUNNERS}/7", Reply(204))
    assert await github.delete_runner(WHO, ACME, GitHubRunnerId(7)) is Removal.REMOVED


async def test_a_busy_runner_is_left(script: Script, github: GitHub) -> None:
    """I35"""
    script.on("DELETE", f"{RUNNERS}/7", refusal(422, 'Runner "x" is still running a job'))
    assert await github.delete_runner(WHO, ACME, GitHubRunnerId(7)) is Removal.BUSY
    assert len(script.asked("DELETE", f"{RUNNERS}/7")) == 1


async def test_a_404_counts_if_the_same_token_can_read_the_scope(
    script: Script, github: GitHub
) -> None:
    """I66"""
    script.on("GET", RUNNERS, runners())
    assert await github.delete_runner(WHO, ACME, GitHubRunnerId(7)) is Removal.ABSENT
    deletion, control, again = script.seen[-3:]
    assert (control.method, control.path) == ("GET", RUNNERS)
    assert (again.method, again.path) == (deletion.method, deletion.path)
    assert control.token == deletion.token == again.token


async def test_a_404_that_was_the_last_word_of_an_outage_proves_nothing(
    script: Script, github: GitHub
) -> None:
    """I66: the scope may be readable again at the time of the control read."""
    script.on("GET", RUNNERS, runners())
    script.on("DELETE", f"{RUNNERS}/7", NOT_FOUND, Reply(204))
    assert await github.delete_runner(WHO, ACME, GitHubRunnerId(7)) is Removal.REMOVED
    script.on("GET", f"{RUNNERS}/7", NOT_FOUND, Reply(200, runner(7)))
    assert not isinstance(await github.get_runner(WHO, ACME, GitHubRunnerId(7)), Absent)


@pytest.mark.parametrize(
    ("control", "kind"),
    [
        (NOT_FOUND, Kind.NOT_FOUND),
        (refusal(403, "This installation has been suspended"), Kind.INSTALLATION_SUSPENDED),
        (refusal(401, "Bad credentials"), Kind.BAD_CREDENTIALS),
        (Reply(502), Kind.SERVER_ERROR),
    ],
)
async def test_a_404_without_a_successful_control_read_proves_nothing(
    script: Script, github: GitHub, control: Reply, kind: Kind
) -> None:
    """I66"""
    script.on("GET", RUNNERS, control)
    script.on("GET", "/repos/acme/site/actions/runs", control)
    for call in (
        github.delete_runner(WHO, ACME, GitHubRunnerId(7)),
        github.get_runner(WHO, ACME, GitHubRunnerId(7)),
        github.get_job(WHO, SITE, JobId(99)),
        github.get_run(WHO, SITE, RunId(5)),
    ):
        assert (await failing(call)).kind is kind


async def test_a_control_read_never_borrows_a_fresh_token(
    script: Script, github: GitHub, clock: ManualClock
) -> None:
    """I66: another token may have other permissions than the one that got the 404."""
    script.on(
        "POST",
        TOKENS,
        lambda seen: token_reply(seen, clock, "ghs_firsttoken0000"),
        lambda seen: token_reply(seen, clock, "ghs_secondtoken000"),
    )
    script.on("GET", RUNNERS, refusal(401, "Bad credentials"), runners())
    failure = await failing(github.get_runner(WHO, ACME, GitHubRunnerId(7)))
    assert failure.kind is Kind.BAD_CREDENTIALS
    assert len(script.asked("POST", TOKENS)) == 1


async def test_what_is_proven_absent_says_by_what(script: Script, github: GitHub) -> None:
    script.on("GET", RUNNERS, runners())
    script.on("GET", "/repos/acme/site/actions/runs", Reply(200, {"workflow_runs": []}))
    script.on("GET", "/app", Reply(200, {"id": 12}))
    for found, path in (
        (await github.get_runner(WHO, ACME, GitHubRunnerId(7)), RUNNERS),
        (await github.get_job(WHO, SITE, JobId(99)), "/repos/acme/site/actions/runs"),
        (await github.get_run(WHO, SITE, RunId(5)), "/repos/acme/site/actions/runs"),
        (await github.get_installation(APP, InstallationId(9)), "/app"),
    ):
        assert isinstance(found, Absent)
        assert f"404, while {path} could be read" in found.proof


async def test_a_deletion_is_repeated_until_it_is_answered(script: Script, github: GitHub) -> None:
    """A deletion whose answer was lost has happened: the repetition finds nothing."""
    script.on("GET", RUNNERS, runners())
    script.on("DELETE", f"{RUNNERS}/7", Reply(cut=True), Reply(503), NOT_FOUND)
    assert await github.delete_runner(WHO, ACME, GitHubRunnerId(7)) is Removal.ABSENT
    # Three times until it is answered, and once more to believe the answer.
    assert len(script.asked("DELETE", f"{RUNNERS}/7")) == 4


async def test_a_request_is_repeated_twice_at_most(script: Script, github: GitHub) -> None:
    script.on("GET", f"{RUNNERS}/7", Reply(503))
    failure = await failing(github.get_runner(WHO, ACME, GitHubRunnerId(7)))
    assert failure.kind is Kind.SERVER_ERROR
    assert len(script.asked("GET", f"{RUNNERS}/7")) == 3


async def test_a_refusal_is_not_repeated(script: Script, github: GitHub) -> None:
    script.on("GET", f"{RUNNERS}/7", refusal(403, "Resource not accessible by integration"))
    failure = await failing(github.get_runner(WHO, ACME, GitHubRunnerId(7)))
    assert failure.kind is Kind.NOT_ACCESSIBLE
    assert len(script.asked("GET", f"{RUNNERS}/7")) == 1


async def test_a_runner_is_found_by_its_exact_name(script: Script, github: GitHub) -> None:
    script.on("GET", RUNNERS, runners(runner(1, "linux-x7k2-10"), runner(2, "linux-x7k2-1")))
    found = await github.find_runner(WHO, ACME, name="linux-x7k2-1")
    assert isinstance(found, RunnerRecord)
    assert found.id == 2
    assert script.seen[-1].query["name"] == "linux-x7k2-1"
    assert isinstance(await github.find_runner(WHO, ACME, name="linux"), Absent)


async def test_a_job_is_read_with_its_executor(script: Script, github: GitHub) -> None:
    path = "/repos/acme/site/actions/jobs/99"
    script.on("GET", path, Reply(200, job()))
    queued = await github.get_job(WHO, SITE, JobId(99))
    assert not isinstance(queued, Absent)
    assert queued.state is JobState.QUEUED
    assert (queued.runner_id, queued.runner_name, queued.runner_group_id) == (None, None, None)
    started = job(status="in_progress", runner_id=7, runner_name="linux-x7k2-1")
    script.on("GET", path, Reply(200, started))
    running = await github.get_job(WHO, SITE, JobId(99))
    assert not isinstance(running, Absent)
    assert (running.runner_id, running.run_attempt, running.host) == (7, 2, HOST)
    assert running.created_at == datetime(2026, 1, 5, 8, 59, tzinfo=UTC)


@pytest.mark.parametrize(("head", "fork"), [(1, False), (2, True), (None, True)])
async def test_a_run_says_whether_it_may_come_from_a_fork(
    script: Script, github: GitHub, head: int | None, fork: bool
) -> None:
    """I62: a deleted head repository is a doubt."""
    script.on("GET", "/repos/acme/site/actions/runs/5", Reply(200, run(head=head)))
    found = await github.get_run(WHO, SITE, RunId(5))
    assert not isinstance(found, Absent)
    assert found.fork is fork


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"id": "seven"}', b"\xff", b"[" * 100_000]
)
async def test_an_answer_that_is_not_one_is_a_failure(
    script: Script, github: GitHub, body: bytes
) -> None:
    script.on("GET", f"{RUNNERS}/7", Reply(200, raw=body))
    failure = await failing(github.get_runner(WHO, ACME, GitHubRunnerId(7)))
    assert failure.kind is Kind.MALFORMED


async def test_an_answer_without_end_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, script: Script, github: GitHub
) -> None:
    monkeypatch.setattr(connection, "MAX_BODY_BYTES", 1000)
    script.on("GET", f"{RUNNERS}/7", Reply(200, raw=b" " * 2000))
    failure = await failing(github.get_runner(WHO, ACME, GitHubRunnerId(7)))
    assert failure.kind is Kind.MALFORMED


def moved(to: str) -> Reply:
    return Reply(301, {"message": "Moved Permanently"}, {"location": to})


async def test_what_a_renamed_repository_has_is_looked_up_where_it_is_now(
    script: Script, github: GitHub
) -> None:
    """I66: its next webhook, which tells the new name, may never come."""
    now = f"{script.url}/repositories/1/actions"
    script.on("GET", "/repos/acme/site/actions/jobs/99", moved(f"{now}/jobs/99"))
    script.on("GET", "/repositories/1/actions/jobs/99", Reply(200, job()))
    found = await github.get_job(WHO, SITE, JobId(99))
    assert not isinstance(found, Absent)
    script.on("DELETE", "/repos/acme/site/actions/runners/7", moved(f"{now}/runners/7"))
    script.on("DELETE", "/repositories/1/actions/runners/7", Reply(204))
    assert await github.delete_runner(WHO, SITE, GitHubRunnerId(7)) is Removal.REMOVED


async def test_a_job_that_a_renamed_repository_does_not_have_is_absent(
    script: Script, github: GitHub
) -> None:
    """I66: the control read follows the same redirect."""
    now = f"{script.url}/repositories/1/actions"
    script.on("GET", "/repos/acme/site/actions/jobs/99", moved(f"{now}/jobs/99"))
    script.on("GET", "/repos/acme/site/actions/runs", moved(f"{now}/runs?per_page=1"))
    script.on("GET", "/repositories/1/actions/runs", Reply(200, {"workflow_runs": []}))
    assert isinstance(await github.get_job(WHO, SITE, JobId(99)), Absent)
    assert script.asked("GET", "/repositories/1/actions/runs")[0].query == {"per_page": "1"}


async def test_redirects_are_followed_once_and_to_the_same_host(
    script: Script, github: GitHub
) -> None:
    """The token would go with the request."""
    job = "/repos/acme/site/actions/jobs/99"
    for elsewhere in ("http://evil.test/x", script.url + job):
        script.on("GET", job, moved(elsewhere))
        failure = await failing(github.get_job(WHO, SITE, JobId(99)))
        assert (failure.kind, failure.backs_off) == (Kind.MOVED, BackOff.REPOSITORY)
    assert len(script.asked("GET", job)) == 3


async def test_a_mint_follows_no_redirect(script: Script, github: GitHub) -> None:
    """I19: it is sent once, and its claim waits no longer for two."""
    script.on("POST", MINT, moved(f"{script.url}/organizations/1/generate-jitconfig"))
    failure = await failing(
        github.mint_jit(
            WHO, ACME, name="one", runner_group_id=RunnerGroupId(1), labels=["self-hosted"]
        )
    )
    assert failure.kind is Kind.MOVED
    assert script.seen[-1].path == MINT


# -- lists


def page(script: Script, seen: Seen, pages: list[Any]) -> Reply:
    number = int(seen.query.get("page", "1"))
    link = f'<{script.url}{seen.path}?page={number + 1}&per_page=100>; rel="next"'
    headers = {"link": link} if number < len(pages) else {}
    return Reply(200, pages[number - 1], headers)


async def test_a_list_is_read_to_its_end(script: Script, github: GitHub) -> None:
    pages = [
        {"repositories": [repository(1, "acme/site"), repository(2, "acme/api")]},
        {"repositories": [repository(3, "acme/old")]},
    ]
    script.on("GET", "/installation/repositories", lambda seen: page(script, seen, pages))
    found = await github.list_repositories(WHO)
    assert [repository.full_name for repository in found] == ["acme/site", "acme/api", "acme/old"]


def repository(number: int, full_name: str) -> dict[str, Any]:
    owner = {"id": 500, "login": full_name.split("/")[0], "type": "Organization"}
    return {"id": number, "full_name": full_name, "owner": owner, "private": True}


async def test_a_list_of_which_a_part_fails_fails(script: Script, github: GitHub) -> None:
    """I29"""

    def answer(seen: Seen) -> Reply:
        pages = [{"repositories": [repository(1, "acme/site")]}, {}]
        return Reply(502) if "page" in seen.query else page(script, seen, pages)

    script.on("GET", "/installation/repositories", answer)
    assert (await failing(github.list_repositories(WHO))).kind is Kind.SERVER_ERROR


@pytest.mark.parametrize("elsewhere", ["http://evil.test/x?page=2", "http://127.0.0.1:1/x?page=2"])
async def test_a_next_page_on_another_host_is_not_asked_for(
    script: Script, github: GitHub, elsewhere: str
) -> None:
    """The token would go with the request."""
    script.on(
        "GET",
        "/installation/repositories",
        Reply(200, {"repositories": []}, {"link": f'<{elsewhere}>; rel="next"'}),
    )
    assert (await failing(github.list_repositories(WHO))).kind is Kind.MALFORMED


async def test_a_list_that_never_ends_is_given_up(
    monkeypatch: pytest.MonkeyPatch, script: Script, github: GitHub
) -> None:
    monkeypatch.setattr("paddock.github.caller.MAX_PAGES", 3)
    endless: list[Any] = [{"repositories": []}] * 100
    script.on("GET", "/installation/repositories", lambda seen: page(script, seen, endless))
    assert (await failing(github.list_repositories(WHO))).kind is Kind.MALFORMED
    assert len(script.asked("GET", "/installation/repositories")) == 3


async def test_installations_are_read_with_their_account_and_state(
    script: Script, github: GitHub
) -> None:
    """I4"""
    installation = {
        "id": 34,
        "app_id": 12,
        "account": {"login": "acme", "id": 500, "type": "Organization"},
        "target_id": 500,
        "target_type": "Organization",
        "repository_selection": "selected",
        "permissions": {"administration": "write", "actions": "read"},
        "events": ["workflow_job"],
        "suspended_at": "2026-01-04T00:00:00Z",
    }
    script.on("GET", "/app/installations", Reply(200, [installation]))
    script.on("GET", "/app/installations/34", Reply(200, installation))
    [listed] = await github.list_installations(APP)
    assert listed == await github.get_installation(APP, InstallationId(34))
    assert (listed.account_id, listed.account_login, listed.all_repositories) == (
        500,
        "acme",
        False,
    )
    assert listed.suspended_at == datetime(2026, 1, 4, tzinfo=UTC)
    assert ("administration", "write") in listed.permissions


async def test_an_installation_without_an_account_does_not_hide_the_others(
    script: Script, github: GitHub
) -> None:
    """I13"""
    bare: dict[str, Any] = {
        "id": 1,
        "app_id": 12,
        "account": None,
        "target_id": 9,
        "target_type": "Enterprise",
        "repository_selection": "all",
        "permissions": {},
        "events": [],
        "suspended_at": None,
    }
    script.on("GET", "/app/installations", Reply(200, [bare, bare | {"id": 2}]))
    assert [found.id for found in await github.list_installations(APP)] == [1, 2]


async def test_runner_groups_are_an_organisations(script: Script, github: GitHub) -> None:
    group = {
        "id": 3,
        "name": "paddock",
        "visibility": "selected",
        "default": False,
        "inherited": False,
        "allows_public_repositories": False,
    }
    script.on("GET", "/orgs/acme/actions/runner-groups", Reply(200, {"runner_groups": [group]}))
    [found] = await github.list_runner_groups(WHO, ACME)
    assert (found.id, found.name, found.visibility) == (3, "paddock", "selected")
    with pytest.raises(ValueError, match="only organisations"):
        await github.list_runner_groups(WHO, SITE)


def active(script: Script, **runs: list[dict[str, Any]]) -> None:
    script.on(
        "GET",
        "/repos/acme/site/actions/runs",
        lambda seen: Reply(200, {"workflow_runs": runs.get(seen.query["status"], [])}),
    )


async def test_queued_jobs_are_found_in_queued_and_in_started_runs(
    script: Script, github: GitHub
) -> None:
    """I8: a run with one started job is in_progress while its others still wait."""
    active(script, queued=[run(5), run(6)], in_progress=[run(6), run(7)])
    for number in (5, 6, 7):
        jobs = {"jobs": [job(number * 10, run_id=number)]}
        script.on("GET", f"/repos/acme/site/actions/runs/{number}/jobs", Reply(200, jobs))
    found = await github.list_active_runs(WHO, SITE)
    assert [(run.id, [job.id for job in jobs]) for run, jobs in found.runs] == [
        (5, [50]),
        (6, [60]),
        (7, [70]),
    ]
    assert found.complete
    assert [
        seen.query["status"] for seen in script.asked("GET", "/repos/acme/site/actions/runs")
    ] == [
        "queued",
        "in_progress",
    ]


async def test_a_run_that_vanished_meanwhile_makes_the_look_incomplete(
    script: Script, github: GitHub
) -> None:
    """I29"""
    active(script, queued=[run(5)])
    found = await github.list_active_runs(WHO, SITE)
    assert [jobs for _, jobs in found.runs] == [()]
    assert not found.complete


async def test_more_runs_or_jobs_than_are_read_make_the_look_incomplete(
    script: Script, github: GitHub
) -> None:
    many: list[Any] = [{"workflow_runs": []}] * (RUN_PAGES + 1)
    script.on("GET", "/repos/acme/site/actions/runs", lambda seen: page(script, seen, many))
    assert not (await github.list_active_runs(WHO, SITE)).complete
    active(script, queued=[run(5)])
    jobs = [{"jobs": [job()]}] * (JOB_PAGES + 1)
    script.on("GET", "/repos/acme/site/actions/runs/5/jobs", lambda seen: page(script, seen, jobs))
    assert not (await github.list_active_runs(WHO, SITE)).complete


async def test_deliveries_are_read_page_by_page_from_a_cursor(
    script: Script, github: GitHub
) -> None:
    """I8"""
    delivery = {
        "id": 1001,
        "guid": "0b989ba4-242f-11e5-81e1-c7b6966d2516",
        "delivered_at": "2026-01-05T08:59:58.123Z",
        "redelivery": False,
        "duration": 0.27,
        "status": "Service Unavailable",
        "status_code": 503,
        "event": "workflow_job",
        "action": "queued",
        "installation_id": 34,
        "repository_id": 1,
    }
    link = {"link": f'<{script.url}/app/hook/deliveries?per_page=100&cursor=v1_1000>; rel="next"'}
    script.on(
        "GET",
        "/app/hook/deliveries",
        lambda seen: Reply(200, [delivery], {} if "cursor" in seen.query else link),
    )
    first = await github.list_deliveries(APP)
    assert first.next == "v1_1000"
    [found] = first.deliveries
    assert not found.succeeded
    assert (found.repository_id, found.guid) == (GitHubRepositoryId(1), delivery["guid"])
    last = await github.list_deliveries(APP, cursor=first.next)
    assert last.next is None
    assert script.seen[-1].query["cursor"] == "v1_1000"


async def test_a_delivery_is_repeated_once_and_as_the_app(script: Script, github: GitHub) -> None:
    path = "/app/hook/deliveries/1001/attempts"
    script.on("POST", path, Reply(202, {}))
    await github.redeliver(APP, DeliveryId(1001))
    script.on("POST", path, Reply(502))
    assert (await failing(github.redeliver(APP, DeliveryId(1001)))).kind is Kind.OUTCOME_UNKNOWN
    assert len(script.asked("POST", path)) == 2
    assert not script.asked("POST", TOKENS)


# -- limits


async def test_nothing_is_sent_while_the_hourly_quota_is_used_up(
    script: Script, github: GitHub, clock: ManualClock
) -> None:
    reset = str(int(clock.now().timestamp()) + 600)
    script.on(
        "GET",
        RUNNERS,
        refusal(
            403,
            "API rate limit exceeded for installation ID 34.",
            x_ratelimit_remaining="0",
            x_ratelimit_reset=reset,
            x_ratelimit_resource="core",
        ),
        runners(),
    )
    failure = await failing(github.control_read(WHO, ACME))
    assert (failure.kind, failure.backs_off, failure.backoff_s) == (
        Kind.PRIMARY_LIMIT,
        BackOff.ACCOUNT,
        600,
    )
    sent = len(script.seen)
    spent = await failing(github.control_read(WHO, ACME))
    assert (spent.kind, spent.backs_off) == (Kind.BUDGET_SPENT, BackOff.ACCOUNT)
    assert len(script.seen) == sent
    clock.advance(601)
    await github.control_read(WHO, ACME)


async def test_the_mint_quota_is_its_own(
    script: Script, github: GitHub, clock: ManualClock
) -> None:
    reset = str(int(clock.now().timestamp()) + 600)
    script.on("GET", RUNNERS, runners())
    script.on(
        "POST",
        MINT,
        refusal(
            403,
            "API rate limit exceeded for installation ID 34.",
            x_ratelimit_remaining="0",
            x_ratelimit_reset=reset,
            x_ratelimit_resource="actions_runner_registration",
        ),
    )
    await failing(mint(github))
    await github.control_read(WHO, ACME)
    assert (await failing(mint(github))).kind is Kind.BUDGET_SPENT
    assert len(script.asked("POST", MINT)) == 1


async def test_one_accounts_spent_quota_does_not_stop_another(
    script: Script, github: GitHub, clock: ManualClock
) -> None:
    """I17, I26"""
    other = InstallationKey(host=HOST, app=APP.app, installation=InstallationId(35))
    script.on(
        "POST",
        "/app/installations/35/access_tokens",
        lambda seen: token_reply(seen, clock, "ghs_othertoken0000"),
    )
    reset = str(int(clock.now().timestamp()) + 600)
    spent = refusal(
        403, "API rate limit exceeded", x_ratelimit_remaining="0", x_ratelimit_reset=reset
    )
    script.on("GET", RUNNERS, spent, runners())
    await failing(github.control_read(WHO, ACME))
    await github.control_read(other, ACME)


async def test_an_account_that_waits_for_its_first_token_stops_no_other(
    script: Script, key_file: Path, clock: ManualClock
) -> None:
    """I17, I26: after a cold start many accounts need a token at once, and an App may ask for two a
    second. An account that has its token goes on; one that has none backs off alone."""
    script.on("GET", RUNNERS, runners(), runners())
    other = InstallationKey(host=HOST, app=APP.app, installation=InstallationId(35))
    slow = BudgetLimits(points_per_minute=10)
    async with client_of(clock, app(script.url, key_file, limits=slow)) as github:
        await github.control_read(WHO, ACME)
        spent = await failing(github.control_read(other, ACME))
        assert (spent.kind, spent.backs_off) == (Kind.BUDGET_SPENT, BackOff.ACCOUNT)
        await github.control_read(WHO, ACME)


async def test_a_secondary_limit_stops_this_kind_of_request_of_its_installation_only(
    script: Script, github: GitHub, clock: ManualClock
) -> None:
    """I26"""
    other = InstallationKey(host=HOST, app=APP.app, installation=InstallationId(35))
    script.on(
        "POST",
        "/app/installations/35/access_tokens",
        lambda seen: token_reply(seen, clock, "ghs_othertoken0000"),
    )
    script.on(
        "POST",
        MINT,
        refusal(403, "You have exceeded a secondary rate limit.", retry_after="40"),
        minted(),
    )
    failure = await failing(mint(github))
    assert (failure.kind, failure.backs_off, failure.backoff_s) == (
        Kind.SECONDARY_LIMIT,
        BackOff.ACCOUNT,
        40,
    )
    clock.advance(20)
    assert (await failing(mint(github))).kind is Kind.BUDGET_SPENT
    await mint(github, who=other)
    clock.advance(21)
    await mint(github)


async def test_a_host_without_rate_headers_is_fine(script: Script, github: GitHub) -> None:
    script.on("GET", RUNNERS, Reply(200, {"runners": []}, {"x-ratelimit-remaining": "lots"}))
    await github.control_read(WHO, ACME)


# -- hosts, proxies, certificates


async def test_the_same_ids_on_two_hosts_are_two_things(
    script: Script, key_file: Path, clock: ManualClock
) -> None:
    """I18, I71"""
    elsewhere = GitHubHost("github.example.org")
    async with serving(Script()) as other:
        for server, token in ((script, "ghs_here0000000000"), (other, "ghs_there000000000")):
            server.on("POST", f"/api/v3{TOKENS}", partial(token_reply, clock=clock, value=token))
            server.on("GET", f"/api/v3{RUNNERS}", runners(runner()))
        async with client_of(
            clock,
            app(f"{script.url}/api/v3", key_file),
            app(f"{other.url}/api/v3", key_file, host=elsewhere),
        ) as github:
            here = await github.find_runner(WHO, ACME, name="linux-x7k2-1")
            there = await github.find_runner(
                InstallationKey(host=elsewhere, app=WHO.app, installation=WHO.installation),
                Scope(host=elsewhere, owner="acme"),
                name="linux-x7k2-1",
            )
        assert here != there
        assert [seen.token for seen in script.seen[1:]] == ["ghs_here0000000000"]
        assert [seen.token for seen in other.seen[1:]] == ["ghs_there000000000"]


async def test_a_scope_of_another_host_is_a_mistake_that_is_not_sent(
    script: Script, github: GitHub
) -> None:
    """I71"""
    stranger = Scope(host=GitHubHost("github.example.org"), owner="acme")
    with pytest.raises(ValueError, match=re.escape("is on github.example.org")):
        await github.delete_runner(WHO, stranger, GitHubRunnerId(7))
    assert not script.seen


async def test_an_app_that_is_not_configured_is_named(github: GitHub) -> None:
    with pytest.raises(GitHubError, match=r"App 99 .* is not configured") as raised:
        await github.list_installations(AppKey(host=HOST, app=GitHubAppId(99)))
    failure = raised.value.failure
    assert (failure.kind, failure.backs_off) == (Kind.NOT_CONFIGURED, BackOff.APP)


async def test_requests_go_through_the_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, key_file: Path, clock: ManualClock
) -> None:
    async with serving(Script()) as proxy:
        proxy.on("GET", "/app/installations", Reply(200, []))
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        async with client_of(clock, app("http://github.invalid", key_file)) as github:
            await github.list_installations(APP)
        assert proxy.seen[0].headers["host"] == "github.invalid"


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A self-signed certificate for 127.0.0.1, with its key."""
    key = rsa_key(2)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    file = tmp_path / "certificate.pem"
    file.write_bytes(pem(key) + certificate.public_bytes(serialization.Encoding.PEM))
    return file


async def test_a_certificate_is_trusted_if_the_environment_names_it(
    monkeypatch: pytest.MonkeyPatch, certificate: Path, key_file: Path, clock: ManualClock
) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    async with serving(Script(), tls) as script:
        script.on("GET", "/app/installations", Reply(200, []))
        async with client_of(clock, app(script.url, key_file)) as github:
            failure = await failing(github.list_installations(APP))
            assert failure.kind is Kind.NO_ANSWER
            assert "certificate" in failure.sentence.lower()
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        async with client_of(clock, app(script.url, key_file)) as github:
            await github.list_installations(APP)


async def test_a_ca_bundle_that_is_not_there_is_said_at_the_start(
    monkeypatch: pytest.MonkeyPatch, key_file: Path, clock: ManualClock
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/no/such/file")
    with pytest.raises(ValueError, match="SSL_CERT_FILE"):
        async with client_of(clock, app("http://127.0.0.1:1", key_file)):
            pass


# -- secrets


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG)
    return caplog


async def test_no_secret_is_in_any_log_record_error_or_value(
    script: Script, github: GitHub, logged: pytest.LogCaptureFixture
) -> None:
    script.on("POST", MINT, minted(), Reply(201, raw=b'{"encoded_jit_config": "' + JIT.encode()))
    script.on("GET", RUNNERS, refusal(401, "Bad credentials: Bearer ghs_firsttoken0000"))
    script.on("GET", "/app/installations", Reply(200, []))
    told = [repr(await mint(github))]
    for call in (mint(github), github.control_read(WHO, ACME)):
        with pytest.raises(GitHubError) as raised:
            await call
        told += [str(raised.value), repr(raised.value), repr(raised.value.failure)]
    await github.list_installations(APP)
    told += [repr(github), repr(github._caller), repr(github._caller._tokens._tokens)]  # type: ignore[attr-defined]
    told += [record.getMessage() for record in logged.records]
    assert len(logged.records) > 10  # the HTTP library's own, which show what it was given
    secrets = {JIT, pem(rsa_key(0)).decode()[40:80]} | {seen.token for seen in script.seen}
    for text in told:
        assert not [secret for secret in secrets if secret in text]
