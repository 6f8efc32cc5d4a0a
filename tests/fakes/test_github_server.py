"""The fake GitHub over HTTP: webhooks that travel, replies that get lost, and a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import httpx2
import jwt
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.fakes.github import FakeGitHub, FaultKind, Faults, control
from paddock.fakes.github.control import SECRET_HEADER
from paddock.fakes.github.server import plain_http, serving, wall_clock
from tests.fakes.conftest import CONTROL_SECRET, World


class Receiver:
    """A webhook endpoint."""

    def __init__(self) -> None:
        self.status = 200
        self.got: list[tuple[str, str]] = []

    async def receive(self, request: Request) -> Response:
        payload = await request.json()
        self.got.append((request.headers["x-github-delivery"], str(payload.get("action"))))
        return Response(status_code=self.status)


@pytest.fixture
async def receiver(world: World) -> AsyncIterator[Receiver]:
    receiver = Receiver()
    app = Starlette(routes=[Route("/hooks", receiver.receive, methods=["POST"])])
    config = uvicorn.Config(app, port=0, log_config=None, lifespan="off")
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    port = server.servers[0].sockets[0].getsockname()[1]
    for one in world.github.world.apps.values():
        one.webhook_url = f"http://127.0.0.1:{port}/hooks"
    yield receiver
    await server.shutdown()


@pytest.fixture
async def client(world: World) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(
        base_url=world.url, trust_env=False, verify=plain_http()
    ) as client:
        client.headers["authorization"] = f"Bearer {world.github.token_for(world.installation)}"
        client.headers[SECRET_HEADER] = CONTROL_SECRET
        yield client


async def test_webhooks_are_posted_and_their_answers_listed(
    world: World, receiver: Receiver
) -> None:
    world.queue("true")
    await world.until(lambda: len(receiver.got) == 1)
    ((guid, action),) = receiver.got
    assert action == "queued"
    newest = list(world.github.world.deliveries.values())[-1]
    await world.until(lambda: newest.status_code == 200)
    assert newest.guid == guid


async def test_the_next_page_is_at_the_address_that_was_asked(
    world: World, client: httpx2.AsyncClient
) -> None:
    """A client that reaches it at another address sends its token to no other host."""
    for name in ("r1", "r2"):
        world.mint(name)
    path = f"/orgs/{world.installation.account.login}/actions/runners"
    asked = await client.get(path, params={"per_page": 1}, headers={"host": "localhost:1"})
    assert asked.links["next"]["url"].startswith(f"http://localhost:1{path}?")


async def test_a_failed_webhook_can_be_redelivered(world: World, receiver: Receiver) -> None:
    receiver.status = 500
    world.queue("true")
    newest = list(world.github.world.deliveries.values())[-1]
    await world.until(lambda: newest.status_code == 500)
    receiver.status = 200
    world.github.hooks.redeliver(newest)
    await world.until(lambda: len(receiver.got) == 2)
    assert receiver.got[0] == receiver.got[1]


async def test_a_receiver_that_is_away_is_a_failed_delivery(
    world: World, receiver: Receiver
) -> None:
    for app in world.github.world.apps.values():
        app.webhook_url = "http://127.0.0.1:9/hooks"
    world.queue("true")
    newest = list(world.github.world.deliveries.values())[-1]
    await world.until(lambda: newest.status_code is not None)
    assert (newest.status_code, newest.status) == (0, "timed out")
    assert receiver.got == []


async def test_what_is_delayed_arrives_by_itself(world: World, receiver: Receiver) -> None:
    world.github.set_faults(Faults(hook_delay=(0.3, 0.3)))
    world.queue("true")
    assert receiver.got == []
    await world.until(lambda: len(receiver.got) == 1)


async def test_a_lost_reply_breaks_the_connection(world: World, client: httpx2.AsyncClient) -> None:
    world.github.inject(FaultKind.REPLY_LOST)
    body = {"name": "r1", "runner_group_id": 1, "labels": ["linux"]}
    with pytest.raises(httpx2.RemoteProtocolError):
        await client.post("/orgs/octo-org/actions/runners/generate-jitconfig", json=body)
    assert [mint.name for mint in world.github.truth.mints] == ["r1"]


async def test_a_proxys_error_is_not_even_json(world: World, client: httpx2.AsyncClient) -> None:
    world.github.inject(FaultKind.BAD_GATEWAY)
    response = await client.get("/rate_limit")
    assert response.status_code == 502
    assert response.headers["content-type"].startswith("text/html")


async def test_rubbish_is_a_400(client: httpx2.AsyncClient) -> None:
    path = "/orgs/octo-org/actions/runners/generate-jitconfig"
    assert (await client.post(path, content=b"{")).status_code == 400
    assert (await client.post(path, content=b"[]")).status_code == 400


DEEP = b"[" * 20_000 + b"]" * 20_000


@pytest.mark.parametrize(
    ("path", "content", "status"),
    [
        ("/orgs/octo-org/actions/runners/generate-jitconfig", DEEP, 400),
        ("/orgs/octo-org/actions/runners/generate-jitconfig", b" " * (1 << 20), 413),
        ("/rubbish", b"1" * (1 << 20), 413),
        ("/_runner/token", b"client_assertion=" + b"x" * (1 << 20), 413),
    ],
)
async def test_a_body_is_refused_beyond_a_size_and_a_depth(
    client: httpx2.AsyncClient, path: str, content: bytes, status: int
) -> None:
    """It is read before the sender has proven anything."""
    assert (await client.post(path, content=content)).status_code == status


async def test_a_runner_that_died_in_its_long_poll_is_not_given_a_job(world: World) -> None:
    """Its job must not be called in progress: no runner executes it."""
    records = world.github.world
    records.timing = replace(records.timing, fetch_within=0.5)
    dead = await world.start(name="dead")
    await dead.says("Listening for Jobs")
    await asyncio.sleep(0.2)
    dead.process.kill()
    await dead.ends()
    job = world.queue("true")
    await asyncio.sleep(0.2)
    assert job.status == "queued"
    await (await world.start(name="alive")).ends()
    assert job.conclusion == "success"
    assert job.runner is not None
    assert job.runner.name == "alive"


async def test_another_process_sets_the_scene_and_reads_the_truth(
    world: World, client: httpx2.AsyncClient
) -> None:
    spec = {"name": "t", "labels": ["linux"], "steps": [{"name": "s", "run": "true"}]}
    run = {"repository": "octo-org/hello", "jobs": [spec, spec | {"gated": True}]}
    queued = (await client.post("/_fake/runs", json=run)).json()
    first, second = queued["job_ids"]
    assert (await client.post(f"/_fake/jobs/{second}/approve")).status_code == 204
    assert (await client.post(f"/_fake/jobs/{second}/cancel")).status_code == 204
    await (await world.start()).ends()
    seen = (await client.get(f"/_fake/jobs/{first}")).json()
    assert [each["conclusion"] for each in seen["reported"]] == ["succeeded"] * len(
        seen["reported"]
    )
    truth = (await client.get("/_fake/truth")).json()
    assert [(one["job_id"], one["how"]) for one in truth["executions"]] == [(first, "completed")]
    assert {one["id"]: one["conclusion"] for one in truth["jobs"]} == {
        first: "success",
        second: "cancelled",
    }

    assert (await client.put("/_fake/faults", json={"server_error": 1.0})).status_code == 204
    assert (await client.get("/rate_limit")).status_code >= 500
    assert (await client.put("/_fake/faults", json={})).status_code == 204
    fault = {"kind": "not-found", "owner": "octo-org"}
    assert (await client.post("/_fake/inject", json=fault)).status_code == 204
    assert (await client.get("/rate_limit")).status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/_fake/faults", {"sever_error": 1.0}),
        ("POST", "/_fake/inject", {"kind": "gremlins"}),
        ("POST", "/_fake/runs", {"repository": "octo-org/hello", "jobs": [{"label": "x"}]}),
        ("POST", "/_fake/runs", {"repository": "octo-org/none", "jobs": [{}]}),
        ("POST", "/_fake/jobs/1/cancel", None),
    ],
)
async def test_a_mistake_in_the_scene_is_told(
    client: httpx2.AsyncClient, method: str, path: str, body: Any
) -> None:
    response = await client.request(method, path, json=body)
    assert response.status_code in (404, 422)
    assert response.json()["message"]


RUN = {"repository": "octo-org/hello", "jobs": [{"steps": [{"name": "s", "run": "id"}]}]}

#: What a page of another site can have a browser send, one at a time.
BY_A_PAGE: list[dict[str, str]] = [
    {"host": "attacker.example"},
    {"host": "127.0.0.1.attacker.example"},
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
]


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        *(({**headers}, 403) for headers in BY_A_PAGE),
        ({SECRET_HEADER: ""}, 403),
        ({SECRET_HEADER: "guessed"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"content-type": "multipart/form-data; boundary=x"}, 415),
    ],
)
async def test_only_programs_that_know_the_secret_set_the_scene(
    world: World, client: httpx2.AsyncClient, wrong: dict[str, str], status: int
) -> None:
    content = json.dumps(RUN)
    right = {"content-type": "application/json"}
    refused = await client.post("/_fake/runs", content=content, headers={**right, **wrong})
    assert refused.status_code == status
    assert not world.github.world.jobs
    assert (await client.post("/_fake/runs", content=content, headers=right)).status_code == 201


@pytest.mark.parametrize("headers", BY_A_PAGE)
async def test_nothing_at_all_is_answered_to_a_page(
    client: httpx2.AsyncClient, headers: dict[str, str]
) -> None:
    """Not even to one that knows a token."""
    for method, path in (
        ("GET", "/rate_limit"),
        ("GET", "/orgs/octo-org/actions/runners"),
        ("POST", "/_runner/broker/session"),
        ("GET", "/_fake/truth"),
        ("OPTIONS", "/_fake/runs"),
    ):
        assert (await client.request(method, path, headers=headers)).status_code == 403, path
    assert (await client.get("/rate_limit")).status_code == 200


async def test_the_control_is_for_this_machine_wherever_the_rest_is_served() -> None:
    github = FakeGitHub(now=wall_clock, rng=Random(1))
    app = Starlette(routes=control.routes(github, CONTROL_SECRET))
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=app), headers={SECRET_HEADER: CONTROL_SECRET}
    ) as client:
        assert (await client.get("http://10.0.0.7/truth")).status_code == 403
        assert (await client.get("http://127.0.0.1/truth")).status_code == 200


async def test_it_has_the_limits_of_every_listener(world: World) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(world.url.rpartition(":")[2]))
    writer.write(b"GET / HTTP/1.1\r\nX-A: " + b"a" * 70_000)
    assert (await reader.readline()).split()[1] == b"431"
    writer.close()


async def test_without_a_secret_there_is_no_control() -> None:
    """As in `paddock up`."""
    github = FakeGitHub(now=wall_clock, rng=Random(1))
    async with (
        serving(github) as url,
        httpx2.AsyncClient(base_url=url, trust_env=False, verify=plain_http()) as client,
    ):
        for headers in ({}, {SECRET_HEADER: ""}, {SECRET_HEADER: "None"}):
            answer = await client.post("/_fake/runs", json=RUN, headers=headers)
            assert answer.status_code == 404


async def test_it_runs_as_a_process_of_its_own(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "paddock.fakes.github", "--listen", "127.0.0.1:0"),
        *("--private-key", str(key), "--repository", "acme/shop"),
        env=os.environ,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(120):
            scene = json.loads(await process.stdout.readline())
        now = int(time.time())
        claims = {"iss": str(scene["app_id"]), "iat": now - 60, "exp": now + 500}
        token = jwt.encode(claims, key.read_text(), algorithm="RS256")
        async with httpx2.AsyncClient(
            base_url=scene["url"], trust_env=False, verify=plain_http()
        ) as client:
            headers = {"authorization": f"Bearer {token}"}
            listed = (await client.get("/app/installations", headers=headers)).json()
            unsaid = await client.get("/_fake/truth")
            control = {SECRET_HEADER: scene["control_secret"]}
            truth = await client.get("/_fake/truth", headers=control)
        assert [one["id"] for one in listed] == [scene["installations"]["acme"]]
        assert (unsaid.status_code, truth.status_code) == (403, 200)
        assert key.stat().st_mode & 0o077 == 0
    finally:
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
