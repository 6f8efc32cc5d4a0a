"""`POST /webhooks/github` over real HTTP and a real PostgreSQL: every answer by name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest
from structlog.testing import capture_logs

from paddock.dispatch import inbox
from paddock.github.webhooks import APPLIED_EVENTS
from paddock.store.database import Database
from paddock.store.embedded import EmbeddedPostgres
from paddock.web import receiver
from tests.support.payloads import workflow_job
from tests.support.serving import Served, head, served, status
from tests.support.webhooks import SECRET, app, encoded, form, signature

FORM = "application/x-www-form-urlencoded"


@pytest.fixture
async def site(database: Database) -> AsyncIterator[Served]:
    async with served(database) as site:
        yield site


@asynccontextmanager
async def locked(database: Database) -> AsyncIterator[None]:
    """The deliveries table is locked meanwhile."""
    async with database.transaction() as connection:
        await connection.execute("LOCK TABLE deliveries IN SHARE MODE")
        yield


async def until_waiting(site: Served, count: int) -> None:
    """Waits until that many transactions wait for the lock."""
    query = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'deliveries'::regclass"
    while (await site.rows(query))[0]["count"] < count:  # noqa: ASYNC110 -- no event tells of it
        await asyncio.sleep(0.01)


async def test_a_new_delivery_is_stored_and_answered_202(site: Served) -> None:
    payload = workflow_job(job=77, installation=1001)
    answer = await site.post(payload, guid="72d3162e-cc78-11e3-81ab-4c9367dc0958")
    assert (answer.status_code, answer.json()) == (202, {"outcome": "stored"})
    [row] = await site.rows()
    assert row["guid"] == "72d3162e-cc78-11e3-81ab-4c9367dc0958"
    assert (row["event"], row["action"]) == ("workflow_job", "queued")
    assert (row["installation_id"], row["state"]) == (1001, "pending")
    assert row["payload"] == encoded(payload)


@pytest.mark.parametrize("event", sorted(APPLIED_EVENTS))
async def test_each_event_that_is_applied_is_stored(site: Served, event: str) -> None:
    answer = await site.post({"action": "created", "installation": {"id": 5}}, event=event)
    assert answer.status_code == 202
    assert [row["event"] for row in await site.rows()] == [event]


async def test_a_duplicate_is_answered_200_and_stored_once(site: Served) -> None:
    """I6"""
    await site.post(workflow_job(), guid="same")
    answer = await site.post(workflow_job(), guid="same")
    assert (answer.status_code, answer.json()) == (200, {"outcome": "duplicate"})
    assert await site.guids() == ["same"]


async def test_duplicates_that_arrive_together_are_new_once(site: Served) -> None:
    """I6: also within one commit."""
    answers = await asyncio.gather(*(site.post(workflow_job(), guid="same") for _ in range(20)))
    assert sorted(answer.status_code for answer in answers) == [200] * 19 + [202]
    assert await site.guids() == ["same"]


async def test_other_events_are_counted_and_not_stored(site: Served) -> None:
    counted = 'paddock_webhook_deliveries_total{event="star",outcome="ignored"}'
    before = await site.metric(counted)
    answer = await site.post({"action": "created"}, event="star")
    assert (answer.status_code, answer.json()) == (200, {"outcome": "ignored"})
    assert await site.rows() == []
    assert await site.metric(counted) == before + 1


async def test_a_ping_is_answered_200(site: Served) -> None:
    answer = await site.post({"zen": "Keep it logically awesome.", "hook_id": 1}, event="ping")
    assert (answer.status_code, answer.json()) == (200, {"outcome": "pong"})
    assert await site.rows() == []


async def test_a_form_is_stored_as_the_json_in_it(site: Served) -> None:
    payload = workflow_job(name="50 % + ü & = 1")
    assert (await site.post(form(payload), content_type=FORM)).status_code == 202
    assert [row["payload"] for row in await site.rows()] == [encoded(payload)]


async def test_a_wrong_signature_is_answered_401(site: Served) -> None:
    answer = await site.post(workflow_job(), secret="guessed")
    assert answer.status_code == 401
    assert "none of the webhook secrets" in answer.json()["error"]
    assert await site.rows() == []


async def test_no_signature_is_answered_401(site: Served) -> None:
    answer = await site.client.post("/webhooks/github", json=workflow_job())
    assert answer.status_code == 401


async def test_a_signature_of_another_body_is_answered_401(site: Served) -> None:
    signed = {"X_Hub_Signature_256": signature(encoded(workflow_job(job=1)))}
    assert (await site.post(workflow_job(job=2), **signed)).status_code == 401


async def test_while_a_secret_is_changed_both_are_good_and_afterwards_the_new_one(
    database: Database,
) -> None:
    async with served(database, app(12, "old", "new")) as site:
        for secret in ("old", "new"):
            assert (await site.post(workflow_job(), secret=secret)).status_code == 202
    async with served(database, app(12, "new")) as site:
        assert (await site.post(workflow_job(), secret="old")).status_code == 401
        assert (await site.post(workflow_job(), secret="new")).status_code == 202


async def test_a_delivery_belongs_to_the_app_and_host_that_signed_it(database: Database) -> None:
    """I71: the same App id on two hosts, with any headers."""
    apps = app(12, "one"), app(12, "other", host="github.example.org")
    claims = {"X_GitHub_Enterprise_Host": "github.example.org"}
    async with served(database, *apps) as site:
        for secret in ("one", "other"):
            assert (await site.post(workflow_job(), secret=secret, **claims)).status_code == 202
        query = (
            "SELECT h.name, a.github_id FROM deliveries d"
            " JOIN hosts h ON h.id = d.host_id JOIN apps a ON a.id = d.app_id ORDER BY d.id"
        )
        found = [tuple(row) for row in await site.rows(query)]
        assert found == [("github.com", 12), ("github.example.org", 12)]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"rubbish",
        encoded(workflow_job())[:-20],
        b"[" * 1_000_000,
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"action": "queued", "name": "\xff\xfe"}',
        '{"action": "queued"}'.encode("utf-16"),
        b'{"action": "\\u0000"}',
        b'{"installation": {"id": 9223372036854775808}}',
    ],
    ids=lambda body: repr(body[:30]),
)
async def test_a_signed_body_that_is_no_event_is_answered_400(site: Served, body: bytes) -> None:
    answer = await site.post(body)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("The payload is not ")
    assert await site.rows() == []


@pytest.mark.parametrize("missing", ["X-GitHub-Event", "X-GitHub-Delivery"])
async def test_a_request_without_githubs_headers_is_answered_400(
    site: Served, missing: str
) -> None:
    answer = await site.post(workflow_job(), **{missing.replace("-", "_"): ""})
    assert answer.status_code == 400
    assert missing in answer.json()["error"]


async def test_another_encoding_is_answered_415(site: Served) -> None:
    assert (await site.post(workflow_job(), content_type="text/plain")).status_code == 415


async def test_another_method_is_answered_405(site: Served) -> None:
    answer = await site.client.get("/webhooks/github")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


async def test_a_large_delivery_is_stored(site: Served) -> None:
    """Above the size from which signatures are checked in a thread."""
    payload = workflow_job(name="x" * (2 * receiver.LARGE))
    assert (await site.post(payload)).status_code == 202
    assert [row["payload"] for row in await site.rows()] == [encoded(payload)]


async def test_a_body_announced_as_too_large_is_answered_413_unread(site: Served) -> None:
    reader, writer = await site.connect()
    writer.write(head(b"", f"Content-Length: {receiver.MAX_BODY + 1}"))
    assert await status(reader) == 413
    writer.close()


async def test_a_length_beyond_all_numbers_is_answered_properly(site: Served) -> None:
    reader, writer = await site.connect()
    writer.write(head(b"", "Content-Length: 99999999999999999"))
    assert await status(reader) == 413
    writer.close()


async def test_a_body_without_a_length_is_cut_off_at_the_limit(site: Served) -> None:
    """And the sender receives the reason."""

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(receiver.MAX_BODY // 65536 + 10):
            yield b" " * 65536

    answer = await site.client.post("/webhooks/github", content=endless())
    assert answer.status_code == 413
    assert (await site.post(workflow_job())).status_code == 202


async def test_a_body_in_chunks_without_a_length_is_stored(site: Served) -> None:
    body = encoded(workflow_job())
    reader, writer = await site.connect()
    writer.write(head(body, "Transfer-Encoding: chunked"))
    for at in range(0, len(body), 50):
        chunk = body[at : at + 50]
        writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        await writer.drain()
        await asyncio.sleep(0)
    writer.write(b"0\r\n\r\n")
    assert await status(reader) == 202
    writer.close()


async def test_a_body_that_never_ends_is_answered_408(
    site: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver, "BODY_TIMEOUT", 0.1)
    reader, writer = await site.connect()
    writer.write(head(b"{}", "Content-Length: 2") + b"{")
    assert await status(reader) == 408
    writer.close()


async def test_a_body_that_breaks_off_stores_nothing_and_harms_no_other(site: Served) -> None:
    body = encoded(workflow_job())
    _, writer = await site.connect()
    writer.write(head(body, f"Content-Length: {len(body)}") + body[:-1])
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert (await site.post(workflow_job(), guid="next")).status_code == 202
    assert await site.guids() == ["next"]


@pytest.mark.parametrize(
    "request_", [b"\x16\x03\x01\x02\x00\x01\x00", b"POST\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"]
)
async def test_what_is_not_http_is_answered_400(site: Served, request_: bytes) -> None:
    reader, writer = await site.connect()
    writer.write(request_)
    assert await status(reader) == 400
    writer.close()


async def test_too_many_bytes_at_once_are_answered_503(
    site: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver, "MAX_HELD", 1000)
    answer = await site.post(workflow_job(name="x" * 2000))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    monkeypatch.undo()
    assert (await site.post(workflow_job())).status_code == 202


async def test_senders_that_keep_their_last_byte_back_keep_no_delivery_out(
    site: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eleven such senders without the secret filled the room for all bodies (I1)."""
    monkeypatch.setattr(receiver, "MAX_HELD", 100_000)
    senders = []
    for _ in range(5):
        reader, writer = await site.connect()
        writer.write(head(b"", "Content-Length: 40000") + b"x" * 39_999)
        senders.append((reader, writer))
    for number in range(5):
        answer = await site.post(workflow_job(name="x" * 30_000), guid=f"genuine-{number}")
        assert answer.status_code == 202
    assert len(await site.guids()) == 5
    assert [await status(reader) for reader, _ in senders[:3]] == [503] * 3
    # What was displaced is no longer counted: a body of nearly that size has room again.
    reader, writer = await site.connect()
    writer.write(head(b"", "Content-Length: 99000") + b"x" * 99_000)
    assert await status(reader) == 401
    for _, each in (*senders, (reader, writer)):
        each.close()


async def test_too_many_that_wait_are_answered_503(
    site: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "MAX_WAITING", 1)
    monkeypatch.setattr(inbox, "BATCH", 1)
    async with locked(site.database):
        waiting = []
        for number in range(inbox.AT_ONCE):
            waiting.append(asyncio.create_task(site.post(workflow_job())))
            await until_waiting(site, number + 1)
        # All allowed requests are in progress; one more may wait, the next one may not.
        answers = [asyncio.create_task(site.post(workflow_job())) for _ in range(2)]
        [refused], _ = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
        assert refused.result().status_code == 503
        assert refused.result().headers["retry-after"] == "5"
    stored = await asyncio.gather(*waiting, *answers)
    assert sorted(answer.status_code for answer in stored) == [202] * (inbox.AT_ONCE + 1) + [503]


async def test_a_database_that_hangs_is_answered_503_in_time(
    site: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GitHub hangs up after ten seconds."""
    assert inbox.MAX_WAIT + inbox.WRITE_TIMEOUT < 10
    monkeypatch.setattr(inbox, "WRITE_TIMEOUT", 0.2)
    async with locked(site.database):
        answer = await site.post(workflow_job())
        assert answer.status_code == 503
    assert (await site.post(workflow_job(), guid="next")).status_code == 202
    assert "next" in await site.guids()


async def test_a_database_that_is_away_is_answered_503_until_it_is_back(
    site: Served, postgres: EmbeddedPostgres
) -> None:
    [row] = await site.rows("SELECT current_database() AS name")
    allow = f"ALTER DATABASE {row['name']} ALLOW_CONNECTIONS"
    administrator = await asyncpg.connect(postgres.url_of("postgres"))
    try:
        with capture_logs() as logs:
            await administrator.execute(f"{allow} false")
            await administrator.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1",
                row["name"],
            )
            for _ in range(3):
                answer = await site.post(workflow_job())
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
                assert answer.json() == {"error": "The delivery could not be stored."}
    finally:
        await administrator.execute(f"{allow} true")
        await administrator.close()
    assert (await site.post(workflow_job(), guid="next")).status_code == 202
    assert await site.guids() == ["next"]
    refusals = [log for log in logs if log["event"] == "webhook.refused"]
    assert [log["reason"] for log in refusals] == ["not_stored"]


async def test_a_client_that_hangs_up_harms_no_other(site: Served) -> None:
    body = encoded(workflow_job())
    async with locked(site.database):
        _, writer = await site.connect()
        writer.write(head(body, f"Content-Length: {len(body)}", guid="gone") + body)
        await until_waiting(site, 1)
        other = asyncio.create_task(site.post(workflow_job(), guid="stays"))
        await until_waiting(site, 2)
        writer.close()
        await writer.wait_closed()
    assert (await other).status_code == 202
    # A complete delivery is stored also if its sender did not wait. Two sessions may write the two,
    # and the second one may be notified first.
    async with asyncio.timeout(60):
        while sorted(await site.guids()) != ["gone", "stays"]:  # noqa: ASYNC110 -- another's doing
            await asyncio.sleep(0.01)


async def test_deliveries_that_come_together_share_a_commit(site: Served) -> None:
    commits = "paddock_webhook_batch_deliveries_count"
    before = await site.metric(commits)
    async with locked(site.database):
        first = [asyncio.create_task(site.post(workflow_job())) for _ in range(inbox.AT_ONCE)]
        await until_waiting(site, 1)
        rest = [asyncio.create_task(site.post(workflow_job())) for _ in range(30)]
        await asyncio.sleep(0.3)
    answers = await asyncio.gather(*first, *rest)
    assert {answer.status_code for answer in answers} == {202}
    assert len(await site.rows()) == len(answers)
    assert await site.metric(commits) - before < 10


async def test_each_kind_of_refusal_is_logged_once_without_payload_or_secret(
    site: Served,
) -> None:
    with capture_logs() as logs:
        for _ in range(20):
            await site.post(workflow_job(name="hush-hush"), secret="guessed")
            await site.post(b"hush-hush")
    assert [(log["event"], log["reason"]) for log in logs] == [
        ("webhook.refused", "signature"),
        ("webhook.refused", "malformed"),
    ]
    assert "hush" not in str(logs)
    assert SECRET not in str(logs)


async def test_it_is_alive_and_ready(site: Served) -> None:
    assert (await site.client.get("/healthz")).json() == {"status": "ok"}
    assert (await site.client.get("/readyz")).json() == {"status": "ready"}


async def test_it_is_not_ready_with_a_schema_it_cannot_use(site: Served) -> None:
    async with site.database.transaction() as connection:
        await connection.execute("DELETE FROM schema_migrations")
    answer = await site.client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"error": "The database cannot be used now; the log says why."}
    assert (await site.client.get("/healthz")).status_code == 200


async def test_what_arrives_is_measured(site: Served) -> None:
    stored = 'paddock_webhook_deliveries_total{event="workflow_job",outcome="stored"}'
    refused = 'paddock_webhook_refusals_total{reason="signature"}'
    before = await site.metric(stored), await site.metric(refused)
    await site.post(workflow_job())
    await site.post(workflow_job(), secret="guessed")
    assert (await site.metric(stored), await site.metric(refused)) == (before[0] + 1, before[1] + 1)
