"""Webhooks at a real server with a real store: each is refused in a sentence, or stored, applied and
shown. GitHub's customers choose much of what is in them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest
import structlog
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import strategies as st
from pydantic import SecretStr

from paddock.domain.github.budgets import BudgetLimits
from paddock.domain.github.objects import GitHubAppId
from paddock.domain.ids import RunnerId
from paddock.domain.names import PoolName, pod_name, runner_name
from paddock.github.apps import GitHubApp
from paddock.store.database import Database
from paddock.store.embedded import EmbeddedPostgres
from paddock.system import SystemIds
from tests.conftest import TEMPLATE, fresh_database
from tests.support.exchange import Answered, exchange, request
from tests.support.fuzzing import Fuzzer, altered, damaged, encodings
from tests.support.github import HOST, LINUX, GitHubScene, github_scene
from tests.support.hostile import controls
from tests.support.payloads import workflow_job
from tests.support.serving import Served, served
from tests.support.webhooks import PATH, headers

#: What the receiver answers to what is signed. 503 would be a delivery that cannot be stored.
SIGNED = {200, 202, 400, 415}
#: A Pod that has a row.
POD = pod_name(PoolName("linux"), "fuzzed")
ACTIONS = ("waiting", "queued", "in_progress", "completed")
PAGES = ("/", "/jobs", "/jobs?refused=true", "/deliveries", "/accounts", "/api/v1/jobs", "/metrics")

_STATE = "SELECT state, note FROM deliveries WHERE guid = $1"


@dataclass
class Site:
    portal: BlockingPortal
    scene: GitHubScene
    site: Served
    #: What was logged. An error is a bug, or an input that should have been refused.
    logged: list[Any]

    def send(self, *pieces: bytes, whole: bool = True) -> Answered:
        return self.portal.call(partial(exchange, self.site.url, *pieces, whole=whole))

    def became(self, guid: str) -> str:
        """What was stored is applied, passed over or put aside, and waits for nothing."""
        return self.portal.call(self._became, guid)

    async def _became(self, guid: str) -> str:
        # One whose turn was lost to a busy database comes back after some seconds.
        for _ in range(60):
            await self.scene.apply()
            async with self.site.database.transaction() as connection:
                row = await connection.fetchrow(_STATE, guid)
            assert row is not None, "it was acknowledged, and is not stored"
            if row["state"] != "pending" or row["note"]:
                return str(row["state"])
            await asyncio.sleep(1)
        pytest.fail("it was not applied, and does not say why")

    def look(self) -> None:
        """It still serves, and what was stored can be shown."""
        self.portal.call(self._look)

    async def _look(self) -> None:
        for page in PAGES:
            answer = await self.site.client.get(page)
            assert answer.status_code == 200, (page, answer.text)
            assert controls(answer.text.replace("\t", "")) == set(), page
        guid = str(uuid.uuid4())
        answer = await self.site.post(
            workflow_job(installation=self.scene.installation.id),
            guid=guid,
            secret=self.scene.app.webhook_secret,
        )
        assert answer.status_code in (200, 202), answer.text
        assert await self._became(guid) != "dead"

    def check_log(self) -> None:
        found = [each for each in self.logged if each["log_level"] in ("error", "critical")]
        self.logged.clear()
        assert not found, found


@asynccontextmanager
async def _site(server: EmbeddedPostgres) -> AsyncIterator[tuple[GitHubScene, Served]]:
    async with asynccontextmanager(fresh_database)(server, template=TEMPLATE) as url:
        database = await Database.connect(url)
        try:
            async with github_scene(database) as scene:
                pool = await scene.store.apply_pool(LINUX)
                await scene.installations.read_all()
                await scene.store.plan_runners(pool, [(RunnerId(SystemIds().uuid()), POD)], why="t")
                app = GitHubApp(
                    host=HOST,
                    app_id=GitHubAppId(scene.app.id),
                    api_url=scene.fake.world.api_url,
                    private_key_file=Path("/nonexistent"),  # nothing here asks GitHub
                    webhook_secrets=(SecretStr(scene.app.webhook_secret),),
                    limits=BudgetLimits(),
                )
                async with served(database, app, open_to_this_machine=True) as site:
                    yield scene, site
        finally:
            await database.close()


@pytest.fixture(scope="module")
def site(postgres: EmbeddedPostgres) -> Iterator[Site]:
    """In a thread of its own: hypothesis blocks."""
    with (
        structlog.testing.capture_logs() as logged,
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(_site(postgres)) as (scene, served),
    ):
        yield Site(portal, scene, served, logged)


#: The installation that exists, and one that GitHub does not know.
_INSTALLATIONS = st.sampled_from(["known", 999_999])


@st.composite
def events(draw: st.DrawFn) -> tuple[str, Any]:
    """As GitHub sends them, and one or more values of them changed."""
    kind = draw(st.integers(0, 9))
    installation = draw(_INSTALLATIONS)
    if kind < 7:
        runner = draw(st.sampled_from([None, runner_name(POD, 1), POD, "stranger"]))
        base = workflow_job(
            job=draw(st.integers(1, 5)),
            action=draw(st.sampled_from(ACTIONS)),
            installation=0,
            repository="acme/site",
            runner_name=runner,
            runner_id=draw(st.sampled_from([None, 0, 1, 7])),
        )
    elif kind == 7:
        base = {"action": "created", "installation": {"id": 0, "account": {"id": 1, "login": "x"}}}
    else:
        base = {"action": "added", "zen": "x", "installation": {"id": 0}}
    base["installation"]["id"] = installation
    names = ["workflow_job", "installation", "installation_repositories", "ping", "push"]
    event = (
        names[min(max(kind - 6, 0), 3)] if draw(st.integers(0, 9)) else draw(st.sampled_from(names))
    )
    return event, base


@st.composite
def webhooks(draw: st.DrawFn) -> tuple[str, bytes, list[tuple[str, str]]]:
    event, base = draw(events())
    body = draw(encodings(altered(st.just(base))))
    changed: list[tuple[str, str]] = []
    if not draw(st.integers(0, 5)):
        text = draw(st.text(max_size=80))
        name = draw(st.sampled_from(["X-GitHub-Event", "X-GitHub-Delivery", "Content-Type"]))
        changed.append((name, text))
    if not draw(st.integers(0, 4)):
        body = b"payload=" + (quote_plus(body).encode() if draw(st.booleans()) else body)
        changed.append(("Content-Type", "application/x-www-form-urlencoded"))
    return event, body, changed


def test_signed_webhooks(site: Site, fuzzer: Fuzzer) -> None:
    """Each is refused in a sentence, or applied, passed over or put aside."""
    secret, installation = site.scene.app.webhook_secret, site.scene.installation.id

    def check(sent: tuple[str, bytes, list[tuple[str, str]]]) -> str:
        event, body, changed = sent
        body = body.replace(b'"known"', str(installation).encode())
        guid = str(uuid.uuid4())
        given = {**headers(body, event=event, guid=guid, secret=secret), **dict(changed)}
        answered = site.send(request(PATH, body, list(given.items())))
        site.check_log()
        assert answered.status in SIGNED, answered
        assert controls(answered.body.decode()) == set()
        if answered.status == 202 and given["X-GitHub-Delivery"] == guid:
            state = site.became(guid)
            site.check_log()
            return f"202 {state}"
        return str(answered.status)

    fuzzer.run(webhooks(), check, after=site.look)


def test_heads_and_bodies_of_any_bytes(site: Site, fuzzer: Fuzzer) -> None:
    """Whole requests, damaged, and sent in pieces."""
    body = b'{"zen": "x"}'
    whole = [
        request(PATH, body, list(headers(body, secret="wrong").items())),
        request("/", method="GET"),
        request("/api/v1/jobs?limit=1", method="GET"),
        request("/v1/dispatch?wait=0", headers=[("Authorization", "Bearer x")]),
        request(PATH, body, [("Connection", "Upgrade"), ("Upgrade", "websocket")]),
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n",
    ]
    pieces = st.sampled_from(whole).flatmap(damaged).flatmap(_pieces)

    def check(sent: list[bytes]) -> str:
        answered = site.send(*sent, whole=False)
        site.check_log()
        assert answered.status < 500, answered
        return str(answered.status)

    fuzzer.run(pieces, check, after=site.look)


def _pieces(text: bytes) -> st.SearchStrategy[list[bytes]]:
    cuts = st.lists(st.integers(0, len(text)), max_size=3).map(
        lambda some: [0, *sorted(some), None]
    )
    return cuts.map(lambda ends: [text[a:b] for a, b in pairwise(ends)])
