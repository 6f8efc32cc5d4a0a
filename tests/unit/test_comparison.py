"""Which repositories are compared with GitHub, how often, and what counts as a difference."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from paddock.domain.github.objects import (
    ActiveRuns,
    GitHubHost,
    GitHubRepositoryId,
    JobRecord,
    RunId,
    RunRecord,
)
from paddock.domain.ids import AccountId, AppId, HostId, JobId, RepositoryId
from paddock.domain.jobs.comparison import (
    CALMER,
    FASTEST,
    LISTED_WITHIN,
    RESERVE,
    SLOWEST,
    ActiveRepository,
    OpenJob,
    due,
    interval,
    news,
    unlisted,
)
from paddock.domain.states import JobState

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
APP = AppId(1)


def repository(
    number: int = 1,
    *,
    active: timedelta | None = MINUTE,
    compared: timedelta | None = None,
    installation: int = 7,
    has_open_jobs: bool = False,
) -> ActiveRepository:
    return ActiveRepository(
        id=RepositoryId(number),
        host=HostId(1),
        github_id=100 + number,
        full_name=f"acme/repo-{number}",
        account=AccountId(1),
        app=APP,
        installation=installation,
        active_at=None if active is None else NOW - active,
        compared_at=None if compared is None else NOW - compared,
        has_open_jobs=has_open_jobs,
    )


def chosen(*repositories: ActiveRepository, left: float = 1.0) -> list[int]:
    quota = {(APP, 7): left}
    return [each.id for each in due(repositories, left=quota, now=NOW)]


def test_with_a_full_quota_two_minutes_pass_and_with_little_left_half_an_hour() -> None:
    assert interval(1.0) == FASTEST == 2 * MINUTE
    assert interval(RESERVE + 0.001) == SLOWEST == 30 * MINUTE


@given(st.floats(0, 1), st.floats(0, 1))
def test_the_less_is_left_the_less_often(one: float, other: float) -> None:
    less, more = (interval(left) for left in sorted((one, other)))
    assert less is None or (more is not None and FASTEST <= more <= less <= SLOWEST)


@given(st.floats(0, RESERVE))
def test_the_reserve_is_not_touched(left: float) -> None:
    """What mints, deregisters and recovers needs the rest more."""
    assert interval(left) is None
    assert chosen(repository(), left=left) == []


def test_a_repository_is_left_alone_until_its_interval_has_passed() -> None:
    assert chosen(repository(compared=FASTEST - timedelta(seconds=1))) == []
    assert chosen(repository(compared=FASTEST)) == [1]
    assert chosen(repository(compared=FASTEST), left=0.5) == []


def test_those_longest_not_compared_come_first() -> None:
    recent, never, long_ago = (
        repository(1, compared=3 * MINUTE),
        repository(2),
        repository(3, compared=HOUR),
    )
    assert chosen(recent, never, long_ago) == [2, 3, 1]


def test_of_those_equally_overdue_the_recently_active_come_first() -> None:
    assert chosen(repository(1, active=HOUR), repository(2, active=MINUTE)) == [2, 1]


def test_a_repository_that_went_quiet_is_compared_less_often() -> None:
    quiet = repository(active=5 * HOUR, compared=FASTEST * CALMER - MINUTE)
    assert chosen(quiet) == []
    assert chosen(repository(active=5 * HOUR, compared=FASTEST * CALMER)) == [1]


def test_one_with_jobs_that_have_not_ended_is_not_quiet() -> None:
    assert chosen(repository(active=5 * HOUR, compared=FASTEST, has_open_jobs=True)) == [1]


def test_an_account_without_quota_does_not_hold_up_another() -> None:
    """I26"""
    poor, rich = repository(1, installation=7), repository(2, installation=8)
    found = due([poor, rich], left={(APP, 7): 0.0}, now=NOW)
    assert [each.id for each in found] == [2]


def job(number: int, status: str = "queued") -> JobRecord:
    return JobRecord(
        host=GitHubHost("github.com"),
        id=JobId(number),
        run_id=RunId(1),
        run_attempt=1,
        name="build",
        workflow_name="ci",
        status=status,
        conclusion=None,
        labels=("linux",),
        runner_id=None,
        runner_name=None,
        runner_group_id=None,
        created_at=NOW,
        started_at=None,
        completed_at=None,
    )


def listing(*jobs: JobRecord, complete: bool = True) -> ActiveRuns:
    run = RunRecord(
        host=GitHubHost("github.com"),
        id=RunId(1),
        run_attempt=1,
        name="ci",
        event="push",
        status="in_progress",
        conclusion=None,
        repository_id=GitHubRepositoryId(1),
        head_repository_id=GitHubRepositoryId(1),
        created_at=NOW,
    )
    return ActiveRuns(runs=((run, jobs),), complete=complete)


def open_job(
    number: int, state: JobState = JobState.QUEUED, *, for_: timedelta = LISTED_WITHIN
) -> OpenJob:
    return OpenJob(id=JobId(number), state=state, since=NOW - for_)


def test_what_is_unknown_here_or_further_there_is_news() -> None:
    listed = [job(1), job(2), job(3, "in_progress"), job(4, "in_progress"), job(5, "waiting")]
    known = {
        JobId(2): JobState.QUEUED,
        JobId(3): JobState.QUEUED,
        JobId(4): JobState.COMPLETED,
        JobId(5): JobState.QUEUED,
    }
    assert [each.id for each in news(listed, known)] == [1, 3]


def test_an_unknown_status_is_no_news() -> None:
    """I29"""
    assert news([job(1, "hibernating")], {}) == []


def test_jobs_that_should_be_listed_and_are_not_are_asked_for() -> None:
    ours = [open_job(3), open_job(2, JobState.IN_PROGRESS), open_job(1)]
    assert unlisted(listing(job(1)), ours, now=NOW) == [2, 3]


def test_a_list_that_is_not_whole_proves_nothing() -> None:
    """I29"""
    assert unlisted(listing(complete=False), [open_job(1)], now=NOW) == []


def test_a_job_that_changed_a_moment_ago_may_not_be_listed_yet() -> None:
    changed = open_job(1, for_=LISTED_WITHIN - timedelta(seconds=1))
    assert unlisted(listing(), [changed], now=NOW) == []


def test_a_waiting_job_is_in_neither_list_and_not_missed() -> None:
    assert unlisted(listing(), [open_job(1, JobState.WAITING)], now=NOW) == []
