"""The read API over a fleet on a bad day: pages, filters, refusals, and the stream."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from pydantic import SecretStr

from paddock.ports.errors import DatabaseUnavailable
from paddock.settings import Settings
from paddock.store.database import Database
from paddock.store.reading import PgReading
from paddock.store.sql import Query, named
from paddock.store.store import PgStore
from paddock.system import SystemClock, SystemIds
from paddock.web import live
from paddock.web.shown_settings import shown
from tests.support.payloads import workflow_job
from tests.support.scenes import HOSTILE
from tests.support.serving import Served, client_of, served

DONE = "/jobs?status=completed"


@pytest.fixture(scope="module")
async def site(chaotic: Database) -> AsyncIterator[Served]:
    async with served(chaotic, open_to_this_machine=True) as site:
        yield site


async def get(site: Served, path: str, status: int = 200) -> Any:
    answer = await site.client.get(f"/api/v1{path}")
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


async def test_completed_jobs_are_read_page_by_page(site: Served) -> None:
    path, numbers = "/jobs?status=completed&limit=20", []
    for _ in range(50):
        page = await get(site, path)
        assert {job["status"] for job in page["items"]} == {"completed"}
        numbers += [job["id"] for job in page["items"]]
        if page["next"] is None:
            break
        path = f"/jobs?status=completed&limit=20&cursor={page['next']}"
    assert len(numbers) > 20
    assert numbers == sorted(set(numbers), reverse=True)


async def test_a_filter_that_is_none_is_refused_by_the_names_of_those_there_are(
    site: Served,
) -> None:
    answer = await get(site, "/jobs?state=completed", 400)
    assert answer["error"] == (
        "`state` is no filter of this list; there are: `status`, `account`, `repository`, `pool`, "
        "`conclusion`, `host`, `refused`, `limit`, `cursor`."
    )
    assert (await get(site, "/pools?name=x", 400))["error"].endswith("there are: none.")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("status=done", "`status` is not understood: Invalid enum value 'done'."),
        ("limit=0", "`limit` is a number from 1 to 200."),
        ("limit=201", "`limit` is a number from 1 to 200."),
        ("limit=²", "`limit` is a number from 1 to 200."),
        ("limit=000000001999999", "`limit` is a number from 1 to 200."),
        (f"limit=000000001{'9' * 5000}", "`limit` is a number from 1 to 200."),
        ("status=queued&status=queued", "`status` is given twice."),
        ("cursor=1", "`cursor` is the `next` of the page before, and this one is not."),
        ("cursor=" + "9" * 300, "`cursor` is the `next` of the page before, and this one is not."),
        (
            "account=%00",
            "`account` is not understood: Expected `str` matching regex '^[^\\\\x00]*$'.",
        ),
        ("account=" + "a" * 257, "`account` is not understood: Expected `str` of length <= 256."),
    ],
)
async def test_what_makes_no_sense_is_refused_in_a_sentence(
    site: Served, query: str, said: str
) -> None:
    assert (await get(site, f"/jobs?{query}", 400))["error"] == said


async def test_a_job_says_why_it_waits_and_what_is_next(site: Served) -> None:
    [job] = (await get(site, "/jobs?refused=true"))["items"]
    assert job["name"] == HOSTILE
    story = await get(site, f"/jobs/{job['id']}")
    assert "label" in story["told"]["why"]
    assert story["events"][0]["after"] == "queued"
    assert (await get(site, f"/jobs/{job['id']}?host=github.example", 404))["error"]
    for unknown in ("1", "x", "9" * 30, "-1"):
        await get(site, f"/jobs/{unknown}", 404)


async def test_a_runner_is_found_by_id_pod_and_name(site: Served) -> None:
    [verdict] = (await get(site, "/endings?ending=host-oom&limit=1"))["items"]
    story = await get(site, f"/runners/{verdict['pod']}")
    assert story == await get(site, f"/runners/{verdict['runner']}")
    assert story == await get(site, f"/runners/{story['names'][0]['name']}")
    assert story["verdict"]["ending"] == "host-oom"
    assert story["vitals"][0]["memory_limit"] == 16 * 2**30
    assert "host-oom" in story["told"]["why"]
    for unknown in ("unknown", "a" * 300, "%00"):
        await get(site, f"/runners/{unknown}", 404)


async def test_every_queued_job_of_a_list_says_why_it_waits(site: Served) -> None:
    jobs = (await get(site, "/jobs?status=queued&limit=200"))["items"]
    page = (await site.client.get("/jobs?status=queued")).text
    reasons = set()
    for job in jobs:
        told = (await get(site, f"/jobs/{job['id']}"))["told"]["why"]
        assert _timeless(job["waits_because"]) == _timeless(told)
        reasons.add(_timeless(told))
    assert len(reasons) > 3
    [why, *_] = [job["waits_because"] for job in jobs if "limit" in job["waits_because"]]
    assert why in page
    overview = await get(site, "/overview")
    assert all(job["waits_because"] for job in overview["oldest"])
    assert all(job["waits_because"] is None for job in (await get(site, DONE))["items"])


def _timeless(sentence: str) -> str:
    """The text without ages, which grow between two requests."""
    return re.sub(r"[\d.]+ (s|min|h|days)\b", "…", sentence)


async def test_a_clean_exit_is_not_shown_as_an_error(site: Served) -> None:
    [verdict] = (await get(site, "/endings?ending=completed&limit=1"))["items"]
    assert (verdict["exit_code"], verdict["reason"]) == (100, "Error")  # as a kubelet says it
    words = "exit code 100: clean exit, job succeeded"
    assert verdict["exit_text"] == words
    assert verdict["why"] == f"It exited cleanly ({words})."
    for path in ("/endings?ending=completed", f"/runners/{verdict['pod']}"):
        page = (await site.client.get(path)).text
        assert words in page
        assert not re.search(
            r"\bError\b", re.sub(r"<details>.*?</details>", "", page, flags=re.DOTALL)
        )


async def test_everything_else_is_there(site: Served) -> None:
    assert (await get(site, "/overview"))["dead_deliveries"] == 1
    assert (await get(site, "/trends"))["queue"]
    pools = {pool["name"]: pool for pool in (await get(site, "/pools"))["items"]}
    assert pools["macos-14"]["paused_by"] == "operator:ana"
    assert pools["macos-14"]["paused_why"] == "new Xcode image"
    assert {pause["why"] for pause in (await get(site, "/overview"))["pauses"]} >= {
        "new Xcode image",
        "abuse report 4711",
    }
    for path, why in {
        "/": "new Xcode image",
        "/pools": "new Xcode image",
        "/pools/macos-14": "new Xcode image",
        "/accounts": "abuse report 4711",
    }.items():
        # Who, when and why; an event on the pool's own page gives the reason too.
        said = r"by ana since \d{4}-\d\d-\d\d \d\d:\d\d UTC: " + why
        assert re.search(said, (await site.client.get(path)).text), path
    assert (await get(site, "/pools/linux-x64"))["decisions"]
    await get(site, "/pools/unknown", 404)
    assert {each["login"] for each in (await get(site, "/accounts"))["items"]} >= {"initech"}
    rules = {rule["name"]: rule for rule in (await get(site, "/recovery/rules"))["items"]}
    assert rules["silent"]["lately"] == {"done": 2}
    [dead] = (await get(site, "/deliveries?state=dead"))["items"]
    assert dead["note"] == "it names no installation <at all>"
    assert (await get(site, "/recovery/actions?rule=suspect"))["items"]
    assert (await get(site, "/nothing", 404))["error"].endswith("says what there is.")


async def test_however_many_look_webhooks_are_stored(
    site: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers have connections of their own, and wait only for one another."""
    monkeypatch.setitem(
        named("reading"),
        "deliveries",
        Query("SELECT pg_sleep(1.5), :state::text, :event::text, :after::text, :limit::int"),
    )
    looking = [
        asyncio.create_task(site.client.get("/api/v1/deliveries?limit=1")) for _ in range(15)
    ]
    stored = asyncio.create_task(site.post(workflow_job()))
    first, _ = await asyncio.wait({*looking, stored}, return_when=asyncio.FIRST_COMPLETED)
    assert first == {stored}
    assert stored.result().status_code == 202
    for task in looking:
        task.cancel()
    await asyncio.gather(*looking, return_exceptions=True)


def test_settings_are_shown_without_secrets() -> None:
    settings = Settings(
        database_url=SecretStr("postgresql://paddock:hunter2@db/paddock"),
        sealing_keys=SecretStr("MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="),
    )
    lines = {line.name: line for line in shown(settings)}
    assert (lines["database_url"].value, lines["database_url"].secret) == (True, True)
    assert (lines["dashboard.token"].value, lines["dashboard.token"].secret) == (None, True)
    assert lines["recovery.silent"].value == 120
    assert "hunter2" not in str(lines)
    assert "MDEyMzQ1" not in str(lines)


async def test_the_stream_tells_at_once_and_when_something_moved(
    site: Served, chaotic: Database
) -> None:
    async with site.client.stream("GET", "/api/v1/stream") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = _events(answer)
        first = await anext(events)
        store = PgStore(chaotic, clock=SystemClock(), ids=SystemIds(), actor="test")
        await store.pause_dispatch(why="a test")
        async for later in events:
            if later["last_event"] > first["last_event"]:
                break
    assert later["jobs"] == first["jobs"]


async def test_what_goes_wrong_is_said_and_not_shown(
    site: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PgReading, "pools", None)
    answer = await site.client.get("/pools")
    assert answer.status_code == 500
    assert "its log says how" in answer.text
    assert "Traceback" not in answer.text
    assert (await get(site, "/pools", 500))[
        "error"
    ] == "paddock failed to make this; its log says how."


async def test_a_database_that_is_away_is_said_to_be(
    site: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise DatabaseUnavailable("The connection to db:5432 was lost.")

    monkeypatch.setattr(PgReading, "jobs", away)
    assert (await get(site, "/jobs", 503))["error"].startswith("paddock cannot read its database")
    page = await site.client.get("/jobs")
    assert page.status_code == 503
    assert "db:5432" not in page.text


async def _events(answer: Any) -> AsyncIterator[dict[str, Any]]:
    async for line in answer.aiter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


async def test_a_server_that_stops_sends_watchers_home(chaotic: Database) -> None:
    async with AsyncExitStack() as stack:
        async with served(chaotic, open_to_this_machine=True) as site:
            client = await stack.enter_async_context(client_of(site.url))
            answer = await stack.enter_async_context(client.stream("GET", "/api/v1/stream"))
            lines = answer.aiter_lines()
            await anext(lines)
            rest = asyncio.create_task(_drained(lines))
        await rest  # it ended, although the client did not hang up


async def _drained(lines: AsyncIterator[str]) -> None:
    async for _ in lines:
        pass


async def test_a_stream_ends_after_a_while_so_that_its_watcher_is_let_in_again_or_not(
    site: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "LONGEST_WATCH", 0.1)
    monkeypatch.setattr(live, "QUIET", 0.01)
    async with site.client.stream("GET", "/api/v1/stream") as answer, asyncio.timeout(60):
        await _drained(answer.aiter_lines())


async def test_there_are_never_more_watchers_than_can_be_served(
    site: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MOST_WATCHERS", 1)
    async with site.client.stream("GET", "/api/v1/stream") as answer:
        await anext(answer.aiter_lines())
        crowded = await site.client.get("/api/v1/stream")
    assert crowded.status_code == 503
    assert crowded.headers["retry-after"]
