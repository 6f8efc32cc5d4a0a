"""GitHub's objects as values: where they are registered, what they report, what is doubtful."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from paddock.domain.github.objects import (
    Absent,
    ConflictAction,
    GitHubAccountId,
    GitHubHost,
    GitHubRepositoryId,
    JobRecord,
    MintedJit,
    RepositoryRecord,
    RunId,
    RunnerRecord,
    Scope,
    decide_conflict,
    repository_scope,
)
from paddock.domain.ids import GitHubRunnerId, JobId
from paddock.domain.states import JobState

HOST = GitHubHost("github.com")
SITE = RepositoryRecord(
    host=HOST,
    id=GitHubRepositoryId(1),
    full_name="acme/site",
    owner_id=GitHubAccountId(500),
    owner_type="Organization",
    private=True,
    archived=False,
)
RUNNER = RunnerRecord(
    host=HOST,
    id=GitHubRunnerId(7),
    name="linux-x7k2-1",
    status="offline",
    busy=False,
    labels=("linux",),
)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a b", "acme?x=1", "acme#", "acme%2f", "a\n", "ä", "x" * 101]
)
def test_a_name_that_would_change_the_path_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not the name of"):
        Scope(host=HOST, owner=name)
    with pytest.raises(ValueError, match="not the name of"):
        Scope(host=HOST, owner="acme", repository=name)


@pytest.mark.parametrize("full_name", ["acme", "acme/", "acme/a/b", "/site", "../x"])
def test_what_is_not_a_full_name_is_refused(full_name: str) -> None:
    with pytest.raises(ValueError, match="not"):
        repository_scope(HOST, full_name)


@pytest.mark.parametrize("full_name", ["acme/site", "a-b/.github", "octo_corp/x.y_z-1"])
def test_names_as_they_occur_are_taken(full_name: str) -> None:
    assert str(repository_scope(HOST, full_name)) == full_name


def test_a_name_left_over_by_a_lost_mint_is_deleted_and_never_used_again() -> None:
    """I19"""
    conflict = decide_conflict(RUNNER)
    assert conflict.action is ConflictAction.DELETE_AND_RENAME
    assert conflict.record == RUNNER


@pytest.mark.parametrize(
    "used",
    [replace(RUNNER, busy=True), replace(RUNNER, status="online"), replace(RUNNER, status="?")],
)
def test_a_runner_that_may_be_in_use_is_never_deleted_over_its_name(used: RunnerRecord) -> None:
    """I19, I29: an unknown status protects it."""
    assert decide_conflict(used).action is ConflictAction.RENAME


def test_a_name_that_is_taken_out_of_sight_is_not_used_again() -> None:
    assert decide_conflict(Absent(proof="listed")).action is ConflictAction.RENAME


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("requested", JobState.WAITING),
        ("pending", JobState.WAITING),
        ("waiting", JobState.WAITING),
        ("queued", JobState.QUEUED),
        ("in_progress", JobState.IN_PROGRESS),
        ("completed", JobState.COMPLETED),
        ("transmogrified", None),
    ],
)
def test_a_jobs_status_becomes_a_state_or_nothing(status: str, state: JobState | None) -> None:
    """I12, I29"""
    job = JobRecord(
        host=HOST,
        id=JobId(1),
        run_id=RunId(2),
        run_attempt=1,
        name="build",
        workflow_name=None,
        status=status,
        conclusion=None,
        labels=("linux",),
        runner_id=None,
        runner_name=None,
        runner_group_id=None,
        created_at=datetime(2026, 1, 5, tzinfo=UTC),
        started_at=None,
        completed_at=None,
    )
    assert job.state is state


def test_a_jit_does_not_show_its_secret() -> None:
    assert "hidden-thing" not in repr(MintedJit(runner=RUNNER, encoded_jit_config="hidden-thing"))
