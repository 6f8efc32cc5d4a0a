"""GitHub's own examples of webhooks, through the receiver and into the types that read them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest

from paddock.github.payloads import InstallationEvent, WorkflowJobEvent
from paddock.store.database import Database
from tests.contract.openapi import webhook_examples
from tests.support.serving import Served, served
from tests.support.webhooks import encoded, form

KINDS = {
    "workflow_job": WorkflowJobEvent,
    "installation": InstallationEvent,
    "installation_repositories": InstallationEvent,
}


@pytest.fixture
async def site(database: Database) -> AsyncIterator[Served]:
    async with served(database) as site:
        yield site


def examples(*events: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for event in events or KINDS:
        for example in webhook_examples(event):
            yield event, example


async def test_every_example_is_stored_as_it_was_sent(site: Served) -> None:
    sent = list(examples())
    assert len(sent) >= 18
    for event, example in sent:
        answer = await site.post(example, event=event)
        assert (answer.status_code, answer.json()) == (202, {"outcome": "stored"}), example
    rows = await site.rows()
    assert [(row["event"], msgspec.json.decode(row["payload"])) for row in rows] == sent
    assert [row["action"] for row in rows] == [example["action"] for _, example in sent]
    assert [row["installation_id"] for row in rows] == [
        (example.get("installation") or {}).get("id") for _, example in sent
    ]


async def test_every_example_is_stored_from_a_form_as_well(site: Served) -> None:
    for event, example in examples():
        answer = await site.post(
            form(example), event=event, content_type="application/x-www-form-urlencoded"
        )
        assert answer.status_code == 202
    assert [row["payload"] for row in await site.rows()] == [
        encoded(example) for _, example in examples()
    ]


async def test_every_ping_is_answered(site: Served) -> None:
    for _, example in examples("ping"):
        assert (await site.post(example, event="ping")).json() == {"outcome": "pong"}


def test_a_job_is_read_field_by_field() -> None:
    for _, example in examples("workflow_job"):
        event = msgspec.json.decode(encoded(example), type=WorkflowJobEvent)
        job = example["workflow_job"]
        assert event.action == example["action"]
        for name in ("id", "run_id", "name", "status", "conclusion", "runner_id", "runner_name"):
            assert getattr(event.workflow_job, name) == job[name]
        for name in ("runner_group_id", "head_branch", "workflow_name"):
            assert getattr(event.workflow_job, name) == job.get(name)
        assert event.workflow_job.labels == tuple(job["labels"])
        assert event.workflow_job.run_attempt == job.get("run_attempt", 1)
        for name in ("created_at", "started_at", "completed_at"):
            moment = getattr(event.workflow_job, name)
            text = moment and moment.isoformat().replace("+00:00", "Z")
            assert text == job.get(name)
        repository = example["repository"]
        assert (event.repository.id, event.repository.full_name) == (
            repository["id"],
            repository["full_name"],
        )
        assert event.repository.owner.login == repository["owner"]["login"]
        assert (event.installation and event.installation.id) == (
            example.get("installation") or {}
        ).get("id")


def test_an_installation_is_read_field_by_field() -> None:
    for _, example in examples("installation", "installation_repositories"):
        event = msgspec.json.decode(encoded(example), type=InstallationEvent)
        given = example["installation"]
        assert (event.action, event.installation.id) == (example["action"], given["id"])
        assert event.installation.repository_selection == given["repository_selection"]
        assert (event.installation.suspended_at is None) == (given.get("suspended_at") is None)
        assert event.installation.account is not None
        for name in ("id", "login", "type"):
            assert getattr(event.installation.account, name) == given["account"][name]
