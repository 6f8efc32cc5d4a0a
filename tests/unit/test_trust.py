"""Whether a run's code is trusted: any doubt means untrusted."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from paddock.domain.github.objects import Absent, GitHubHost, GitHubRepositoryId, RunId, RunRecord
from paddock.domain.jobs.trust import judge_run

OURS = RunRecord(
    host=GitHubHost("github.com"),
    id=RunId(5),
    run_attempt=1,
    name="CI",
    event="push",
    status="queued",
    conclusion=None,
    repository_id=GitHubRepositoryId(1),
    head_repository_id=GitHubRepositoryId(1),
    created_at=datetime(2026, 1, 1, tzinfo=UTC),
)


@pytest.mark.parametrize("event", ["push", "pull_request", "schedule", "workflow_dispatch"])
def test_a_run_of_the_repositorys_own_code_is_trusted(event: str) -> None:
    assert judge_run(replace(OURS, event=event)).trusted


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (Absent(proof="404"), "does not know"),
        (replace(OURS, head_repository_id=GitHubRepositoryId(2)), "another repository"),
        (replace(OURS, head_repository_id=None), "is gone"),
        (replace(OURS, event="pull_request_target"), "strangers can set off"),
        (replace(OURS, event="pull_request_review"), "strangers can set off"),
        (replace(OURS, event="pull_request_review_comment"), "strangers can set off"),
        (replace(OURS, event=""), "strangers can set off"),
    ],
)
def test_any_doubt_means_untrusted(run: RunRecord | Absent, why: str) -> None:
    """I62"""
    judged = judge_run(run)
    assert not judged.trusted
    assert why in judged.why
