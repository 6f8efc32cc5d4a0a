"""How the records of GitHub and the fleet become evidence, before any rule reads them."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from paddock.domain.github.objects import Absent, GitHubHost, JobRecord, RunId, RunnerRecord
from paddock.domain.ids import GitHubRunnerId, JobId
from paddock.domain.names import PodName
from paddock.domain.pods.fingerprints import (
    Certainty,
    ContainerState,
    ContainerStatus,
    Running,
    Terminated,
    Waiting,
    ever_started,
)
from paddock.domain.pods.pod import Phase, Pod
from paddock.domain.recovery.evidence import (
    Container,
    JobWord,
    LogWord,
    On,
    RecordWord,
    Sighting,
    container_seen,
    job_on,
    job_word,
    log_word,
    pod_seen,
    poller_seen,
    record_word,
)

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
HOST = GitHubHost("github.com")
GONE = Absent(proof="404 beside a successful read of the scope")

STATES = {
    "none": ContainerState(),
    "waiting": ContainerState(waiting=Waiting("PodInitializing")),
    "running": ContainerState(running=Running(NOW)),
    "terminated": ContainerState(terminated=Terminated(exit_code=0)),
    "torn": ContainerState(running=Running(NOW), terminated=Terminated(exit_code=0)),
}


def runner(
    state: ContainerState, last: ContainerState = ContainerState(), **more: Any
) -> Container:
    status = ContainerStatus(name="runner", state=state, last_state=last, **more)
    return container_seen([ContainerStatus(name="vitals"), status])


@pytest.mark.parametrize(
    ("state", "seen"),
    [
        ("none", Container.UNRECOGNISED),
        ("waiting", Container.WAITING),
        ("running", Container.STARTED),
        ("terminated", Container.TERMINATED),
        ("torn", Container.UNRECOGNISED),
    ],
)
def test_a_container_is_what_its_state_says(state: str, seen: Container) -> None:
    """I34"""
    assert runner(STATES[state]) is seen


def test_a_started_container_without_a_state_has_started() -> None:
    assert runner(ContainerState(), started=True) is Container.STARTED


def test_a_container_that_waits_again_has_run() -> None:
    assert runner(STATES["waiting"], STATES["terminated"]) is Container.LAST_TERMINATED


def test_a_pod_without_its_runner_container_is_not_recognised() -> None:
    """I34"""
    assert container_seen([ContainerStatus(name="other")]) is Container.UNRECOGNISED
    twice = [ContainerStatus(name="runner", state=STATES["waiting"])] * 2
    assert container_seen(twice) is Container.UNRECOGNISED


def test_no_statuses_are_a_value_of_their_own() -> None:
    assert container_seen([]) is Container.NO_STATUSES
    assert poller_seen(None) is Container.NO_STATUSES


@pytest.mark.parametrize(
    ("reason", "seen"),
    [
        ("ContainerCreating", Container.PULLING),
        ("Pulling", Container.PULLING),
        ("ErrImagePull", Container.IMAGE_ERROR),
        ("ImagePullBackOff", Container.IMAGE_ERROR),
        ("CreateContainerError", Container.BROKEN),
        ("PodInitializing", Container.WAITING),
        ("", Container.WAITING),
        ("SomethingNew", Container.WAITING),
    ],
)
def test_a_container_that_waits_says_for_what(reason: str, seen: Container) -> None:
    assert runner(ContainerState(waiting=Waiting(reason))) is seen


def test_a_container_never_ran_exactly_if_nothing_tells_that_it_did() -> None:
    """I34. The sweep and the verdict read the same status; they must not reach two conclusions."""
    for state, last, started in itertools.product(
        STATES.values(), STATES.values(), (None, False, True)
    ):
        status = ContainerStatus(name="runner", state=state, last_state=last, started=started)
        never = ever_started([status]) is Certainty.NO
        assert container_seen([status]).never_ran == never, status


def test_a_pod_is_dated_by_the_clock_it_is_looked_at_with() -> None:
    seen = pod_seen(
        Pod(
            name=PodName("linux-1"),
            uid="u",
            pool="linux",
            phase=Phase.RUNNING,
            created_at=NOW - timedelta(minutes=5),
            deletion_requested_at=NOW,
            containers=(
                ContainerStatus(
                    name="runner",
                    state=ContainerState(running=Running(NOW - timedelta(minutes=2))),
                ),
            ),
        ),
        now=NOW,
        unchanged=7,
    )
    assert (seen.sighting, seen.terminal, seen.deletion_requested) == (
        Sighting.PRESENT,
        False,
        True,
    )
    assert (seen.age, seen.up, seen.unchanged) == (300, 120, 7)
    assert seen.runner is Container.STARTED


def record(**more: Any) -> RunnerRecord:
    facts = {"status": "online", "busy": False, "labels": (), **more}
    return RunnerRecord(host=HOST, id=GitHubRunnerId(7), name="r", **facts)


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (GONE, RecordWord.ABSENT),
        (record(status="offline"), RecordWord.OFFLINE),
        (record(), RecordWord.IDLE),
        (record(busy=True), RecordWord.BUSY),
        (record(status="offline", busy=True), RecordWord.BUSY),
        (record(status="draining"), RecordWord.IDLE),
    ],
)
def test_a_record_is_one_word(answer: RunnerRecord | Absent, word: RecordWord) -> None:
    assert record_word(answer) is word


def job(
    status: str = "in_progress", runner_id: int | None = 7, name: str | None = "r"
) -> JobRecord:
    return JobRecord(
        host=HOST,
        id=JobId(1),
        run_id=RunId(1),
        run_attempt=1,
        name="build",
        workflow_name=None,
        status=status,
        conclusion=None,
        labels=(),
        runner_id=None if runner_id is None else GitHubRunnerId(runner_id),
        runner_name=name,
        runner_group_id=None,
        created_at=NOW,
        started_at=NOW,
        completed_at=None,
    )


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ("queued", JobWord.QUEUED),
        ("pending", JobWord.WAITING),
        ("in_progress", JobWord.IN_PROGRESS),
        ("completed", JobWord.COMPLETED),
        ("levitating", JobWord.UNREADABLE),
    ],
)
def test_a_jobs_status_is_one_word_and_a_new_one_is_no_evidence(status: str, word: JobWord) -> None:
    """I29"""
    assert job_word(job(status)) is word
    assert job_word(GONE) is JobWord.ABSENT


def test_a_jobs_runner_is_known_by_its_id_and_by_its_name_only_without_one() -> None:
    """I23"""
    mine = GitHubRunnerId(7)
    assert job_on(job(), github_id=mine, name="other") is On.THIS
    assert job_on(job(runner_id=8), github_id=mine, name="r") is On.ANOTHER
    assert job_on(job(runner_id=8), github_id=None, name="r") is On.THIS
    assert job_on(job(runner_id=None, name=None), github_id=mine, name="r") is On.NO_RUNNER
    assert job_on(GONE, github_id=mine, name="r") is On.NO_RUNNER


def test_a_log_speaks_of_a_job_if_any_part_of_it_does() -> None:
    text = "Listening for Jobs\nRunning job: build\n"
    assert log_word(text, whole=True) is LogWord.JOB
    assert log_word(text, whole=False) is LogWord.JOB


def test_only_a_whole_log_speaks_against_a_job() -> None:
    """I24. A job that prints ten thousand lines pushes the decisive one out of any tail."""
    assert log_word("Listening for Jobs\n", whole=True) is LogWord.NO_JOB
    assert log_word("Listening for Jobs\n", whole=False) is LogWord.UNREADABLE
    assert log_word(None, whole=True) is LogWord.UNREADABLE
