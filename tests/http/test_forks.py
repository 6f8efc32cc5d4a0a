"""Jobs from forks: paddock reads their runs where the pool wants it, and any doubt means untrusted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from paddock.dispatch.refusals import RefusalReview
from paddock.dispatch.trust import TrustReview
from paddock.fakes.github import FaultKind, JobSpec
from paddock.fakes.github.records import Repository
from paddock.pools.spec import parse_pools
from paddock.store.database import Database
from tests.support.github import NoWakeups
from tests.support.missed import LABELS, Missed, missed_webhooks

POOL = """
apiVersion: paddock.dev/v1alpha1
kind: RunnerPool
metadata: {{name: linux}}
spec: {{labels: [{labels}], forks: {forks}}}
"""


@dataclass
class Scene:
    site: Missed
    fork: Repository
    review: TrustReview

    async def pool(self, forks: str) -> None:
        text = POOL.format(labels=", ".join(LABELS), forks=forks)
        await self.site.store.apply_pools(parse_pools(text, name="test"))

    async def queue(
        self, *, forked: bool = False, event: str = "pull_request", jobs: int = 1
    ) -> None:
        self.site.fake.jobs.queue_run(
            self.site.site,
            [JobSpec(labels=LABELS)] * jobs,
            event=event,
            head_repository=self.fork if forked else None,
        )
        await self.site.settle()
        self.site.calls()

    async def rounds(self) -> None:
        await self.review.round()
        await RefusalReview(store=self.site.store, wakeups=NoWakeups()).round()

    async def jobs(self) -> list[Any]:
        """Whether each is trusted, and whether it is demand."""
        return list(
            await self.site.rows("SELECT trusted, key_id IS NOT NULL FROM jobs ORDER BY id")
        )


@pytest.fixture
async def scene(database: Database) -> AsyncIterator[Scene]:
    async with missed_webhooks(database) as site:
        stranger = site.fake.accounts.add_user("stranger")
        fork = site.fake.accounts.add_repository(stranger, "site", fork=True)
        review = TrustReview(
            store=site.store,
            github=site.client,
            clock=site.clock,
            apps=[site.registered],
            wakeups=NoWakeups(),
        )
        yield Scene(site, fork, review)


async def test_where_no_pool_asks_github_is_not_asked(scene: Scene) -> None:
    await scene.pool("ignore")
    await scene.queue(forked=True)
    await scene.rounds()
    assert await scene.jobs() == [(None, True)]
    assert scene.site.calls() == []


async def test_a_forks_job_is_marked(scene: Scene) -> None:
    """I62: and served all the same, if the pool does not mind."""
    await scene.pool("mark")
    await scene.queue(forked=True)
    await scene.queue()
    await scene.rounds()
    assert await scene.jobs() == [(False, True), (True, True)]


async def test_one_question_answers_for_all_jobs_of_a_run(scene: Scene) -> None:
    await scene.pool("mark")
    await scene.queue(jobs=20)
    await scene.rounds()
    assert len(scene.site.calls("/actions/runs/")) == 1
    assert await scene.jobs() == [(True, True)] * 20
    await scene.rounds()
    assert scene.site.calls("/actions/runs/") == []


async def test_a_pool_that_refuses_strangers_serves_no_unknown_author(scene: Scene) -> None:
    """I62: not even until GitHub has answered."""
    await scene.pool("refuse")
    await scene.queue(forked=True)
    await scene.queue()
    assert await scene.jobs() == [(None, False), (None, False)]
    await scene.rounds()
    assert await scene.jobs() == [(False, False), (True, True)]
    [(refusal, detail)] = await scene.site.rows(
        "SELECT refusal, refusal_detail FROM jobs WHERE refusal IS NOT NULL"
    )
    assert refusal == "untrusted"
    assert "another repository" in detail


@pytest.mark.parametrize(
    "event",
    # Any reader of a public repository can review a pull request of one of its own branches.
    ["pull_request_target", "pull_request_review", "issue_comment", "something_new"],
)
async def test_what_strangers_can_set_off_is_untrusted(scene: Scene, event: str) -> None:
    """I62: the code may be ours, but a stranger chooses its input."""
    await scene.pool("mark")
    await scene.queue(event=event)
    await scene.rounds()
    assert await scene.jobs() == [(False, True)]


async def test_without_an_answer_a_job_stays_untrusted_until_there_is_one(scene: Scene) -> None:
    await scene.pool("refuse")
    await scene.queue()
    scene.site.fake.inject(FaultKind.NOT_ACCESSIBLE, path="/actions/runs/", times=1)
    await scene.rounds()
    assert await scene.jobs() == [(None, False)]
    # At once it is not asked again.
    scene.site.calls()
    await scene.rounds()
    assert scene.site.calls("/actions/runs/") == []
    scene.site.clock.advance(600)
    await scene.rounds()
    assert await scene.jobs() == [(True, True)]


async def test_a_pool_that_begins_to_ask_is_answered_for_jobs_that_wait(scene: Scene) -> None:
    await scene.pool("ignore")
    await scene.queue(forked=True)
    await scene.pool("mark")
    await scene.rounds()
    assert await scene.jobs() == [(False, True)]


async def test_a_pool_that_begins_to_refuse_turns_strangers_away_that_wait(scene: Scene) -> None:
    """I62"""
    await scene.pool("ignore")
    await scene.queue(forked=True)
    await scene.queue()
    await scene.pool("refuse")
    await scene.rounds()
    assert await scene.jobs() == [(False, False), (True, True)]
