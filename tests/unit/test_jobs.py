"""The merge of what is known of a job is a lattice join (I2)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.domain.ids import GitHubRunnerId, HostId, JobId
from paddock.domain.jobs.facts import Executor, JobFacts, merge
from paddock.domain.states import JobState

START = datetime(2026, 1, 5, 9, tzinfo=UTC)


@st.composite
def facts(draw: st.DrawFn) -> JobFacts:
    """One event of one job: what never changes is the same in all of them."""
    state = draw(st.sampled_from(JobState))
    times = st.integers(0, 5).map(lambda minutes: START + timedelta(minutes=minutes))
    completed = state is JobState.COMPLETED
    begun = state is JobState.IN_PROGRESS or (completed and draw(st.booleans()))
    return JobFacts(
        host=HostId(1),
        id=JobId(7),
        run_id=1,
        run_attempt=1,
        name="build",
        workflow=None,
        labels=("linux",),
        created_at=draw(times),
        waited=draw(st.booleans()),
        known_queued_at=draw(st.none() | times),
        state=state,
        started_at=draw(times) if begun else None,
        completed_at=draw(times) if completed else None,
        conclusion=draw(st.sampled_from(["success", "failure"])) if completed else None,
        executor=Executor(
            github_id=GitHubRunnerId(draw(st.integers(1, 3))),
            name=draw(st.sampled_from(["a", "b"])),
        )
        if begun
        else None,
    )


@given(facts(), facts())
def test_merging_does_not_depend_on_the_order(one: JobFacts, other: JobFacts) -> None:
    assert merge(one, other) == merge(other, one)


@given(facts(), facts(), facts())
def test_merging_does_not_depend_on_the_grouping(a: JobFacts, b: JobFacts, c: JobFacts) -> None:
    assert merge(merge(a, b), c) == merge(a, merge(b, c))


@given(facts())
def test_a_duplicate_changes_nothing(one: JobFacts) -> None:
    assert merge(one, one) == one


@given(st.lists(facts(), min_size=1, max_size=6), facts())
def test_nothing_lowers_a_state(events: list[JobFacts], late: JobFacts) -> None:
    before = reduce(merge, events)
    assert merge(before, late).state.rank >= before.state.rank


def test_two_jobs_are_never_merged() -> None:
    one = JobFacts(
        host=HostId(1),
        id=JobId(7),
        run_id=1,
        run_attempt=1,
        name="build",
        workflow=None,
        labels=(),
        created_at=START,
        state=JobState.QUEUED,
    )
    with pytest.raises(ValueError, match="not the same job"):
        merge(one, replace(one, host=HostId(2)))


HOUR = timedelta(hours=1)


def told(
    state: JobState, *, waited: bool = False, known: datetime | None = None, **changes: Any
) -> JobFacts:
    return JobFacts(
        host=HostId(1),
        id=JobId(7),
        run_id=1,
        run_attempt=1,
        name="deploy",
        workflow=None,
        labels=("linux",),
        created_at=START,
        state=state,
        waited=waited,
        known_queued_at=known,
        **changes,
    )


def test_an_approved_job_counts_from_its_first_report_as_queued() -> None:
    """I76"""
    waiting = told(JobState.WAITING, waited=True)
    queued = told(JobState.QUEUED, known=START + 60 * HOUR)
    repeated = told(JobState.QUEUED, known=START + 70 * HOUR)
    assert reduce(merge, (queued, repeated, waiting)).queued_at == START + 60 * HOUR


def test_a_job_that_never_waited_counts_from_its_creation_however_late_its_webhook() -> None:
    assert told(JobState.QUEUED, known=START + 3 * HOUR).queued_at == START


def test_a_job_first_seen_queued_after_more_than_a_day_had_waited() -> None:
    """I76: the report that it waited was lost."""
    assert told(JobState.QUEUED, known=START + 60 * HOUR).queued_at == START + 60 * HOUR


def test_a_clock_that_is_behind_makes_no_job_older_than_its_creation() -> None:
    assert told(JobState.QUEUED, waited=True, known=START - HOUR).queued_at == START
