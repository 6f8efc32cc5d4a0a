"""Stories exist for every state and every reason, in whole sentences."""

from __future__ import annotations

import itertools
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from paddock.domain.allocation import Withheld
from paddock.domain.github.backoffs import BackOffCause, BackOffScope
from paddock.domain.ids import JobId
from paddock.domain.jobs.intake import Passed
from paddock.domain.limits import NOTHING, Limits
from paddock.domain.pauses import Pause
from paddock.domain.reading.details import (
    JobDetails,
    KeyBackOff,
    PassedOver,
    RefusedVersion,
    RelatedRunner,
    RunnerDetails,
    Wait,
)
from paddock.domain.reading.rows import JobLine, RunnerLine, VerdictLine
from paddock.domain.runners.endings import Ending
from paddock.domain.states import JobState, RunnerState
from paddock.stories import Story, tell
from paddock.stories.story import clause, length

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
EARLIER = NOW - timedelta(seconds=90)
PAUSE = Pause(at=EARLIER, by="operator:ana", why="the registry is down")
PAUSED = "paused by ana since 2026-01-05 08:58 UTC: the registry is down."


def runner(state: RunnerState = RunnerState.RUNNING, **changes: Any) -> RunnerLine:
    known: dict[str, Any] = dict.fromkeys(
        ("heard_at", "gone_at", "node", "image", "host", "job", "hint", "suspect_since", "ending")
    )
    known |= {
        "id": UUID(int=1),
        "pod": "linux-1",
        "pool": "linux",
        "state": state,
        "since": EARLIER,
        "why": "a webhook",
        "created_at": EARLIER,
        "generation": 1,
        "shape": "gated",
        "account": "acme",
        "name": "linux-1-1",
        "stale": False,
    }
    return RunnerLine(**{**known, **changes})


def related(of: RunnerLine, **changes: Any) -> RelatedRunner:
    known: dict[str, Any] = {
        "executed": False,
        "hinted": False,
        "verdict": None,
        "retire_reason": None,
    }
    return RelatedRunner(runner=of, **{**known, **changes})


def verdict(ending: Ending = Ending.HOST_OOM) -> VerdictLine:
    return VerdictLine(
        runner=UUID(int=1),
        pod="linux-1",
        pool="linux",
        account="acme",
        host="github.com",
        job=7,
        image=None,
        ending=ending,
        abnormal=ending.abnormal,
        why="It ended (exit code 137: SIGKILL).",
        exit_code=137,
        signal=None,
        reason="Error",
        exit_text="exit code 137: SIGKILL",
        node="node-1",
        ended_at=EARLIER,
        written_at=EARLIER,
        refined_at=None,
        evidence={},
    )


def job(status: JobState = JobState.QUEUED, **changes: Any) -> JobLine:
    known: dict[str, Any] = {
        "host": "github.com",
        "id": 7,
        "account": "acme",
        "repository": "acme/site",
        "run_id": 1,
        "run_attempt": 1,
        "name": "build",
        "workflow": None,
        "labels": ["self-hosted", "linux"],
        "status": status,
        "pool": "linux",
        "refusal": None,
        "refusal_detail": None,
        "created_at": EARLIER,
        "queued_at": EARLIER,
        "started_at": None,
        "completed_at": None,
        "conclusion": None,
        "executor": None,
        "pod": None,
        "seen_at": EARLIER,
        "since": EARLIER,
        "why": "a webhook",
        "trusted": None,
        "trust_why": None,
    }
    return JobLine(**{**known, **changes})


WAIT = Wait(
    ahead=3,
    supply=0,
    supply_graces=0,
    supply_grace_until=None,
    withheld=None,
    dispatch_paused=None,
    account_paused=None,
    pool_paused=None,
    pool_state="active",
    installation="active",
    back_off=None,
    account_limits=Limits(runners=3, vcpu_milli=4000, memory_mib=1024),
    account_used=NOTHING,
    repository_limits=Limits(),
    repository_used=NOTHING,
    pool_maximum=10,
    idle=1,
    booting=0,
    pool_target=None,
    pool_because=None,
)


def details(of: JobLine, **changes: Any) -> JobDetails:
    known: dict[str, Any] = {
        "demotions": 0,
        "beside_limits": None,
        "check": None,
        "not_assigned_because": None,
        "wait": None,
        "runners": [],
        "events": [],
        "actions": [],
    }
    return JobDetails(job=of, **{**known, **changes})


def told(about: JobDetails | RunnerDetails | PassedOver) -> Story:
    story = tell(about, now=NOW)
    for text in (story.why, story.next, *story.remarks):
        assert re.fullmatch(r"[A-Za-z`].*\.", text), text
        assert not re.search(r"\.\.|  |None|\{|\}", text), text
    return story


@pytest.mark.parametrize("withheld", [None, *Withheld])
def test_every_reason_of_the_matcher_is_told(withheld: Withheld | None) -> None:
    story = told(details(job(), wait=replace(WAIT, withheld=withheld)))
    assert story.next


@pytest.mark.parametrize(
    ("pauses", "words"),
    [
        ({"dispatch_paused": PAUSE}, f"All dispatch has been {PAUSED}"),
        ({"account_paused": PAUSE}, f"The account acme has been {PAUSED}"),
        ({"pool_paused": PAUSE}, f"The pool linux has been {PAUSED}"),
        ({"pool_state": "draining"}, "Its pool, linux, is being deleted"),
    ],
)
def test_whose_pause_it_is_is_told(pauses: dict[str, Any], words: str) -> None:
    wait = replace(WAIT, withheld=Withheld.PAUSED, **pauses)
    assert told(details(job(), wait=wait)).why.startswith(words)


BACKED_OFF = KeyBackOff(
    scope=BackOffScope.KEY,
    until=NOW + timedelta(seconds=30),
    failures=2,
    cause=BackOffCause.MINT_FAILED,
    reason="It says no.",
)


def test_the_cause_of_a_back_off_decides_and_not_the_words_of_its_reason() -> None:
    ended = replace(BACKED_OFF, cause=BackOffCause.ENDED_WITHOUT_A_JOB)
    failed = replace(BACKED_OFF, reason="GitHub speaks of ending without a job.")
    for off, begins in ((ended, "No more runners are given"), (failed, "Minting failed")):
        wait = replace(WAIT, withheld=Withheld.BACK_OFF, back_off=off)
        assert told(details(job(), wait=wait)).why.startswith(begins)


@pytest.mark.parametrize("withheld", [Withheld.RUNNER_VERSION, Withheld.NO_POD])
def test_a_refused_version_is_told_with_its_date(withheld: Withheld) -> None:
    """Also while the one Pod that such a pool keeps is not there yet."""
    refused = RefusedVersion(
        version="2.330.0",
        ended_at=datetime(2025, 12, 16, 7, 30, tzinfo=UTC),
        refused_at=None,
        refused_until=None,
    )
    wait = replace(WAIT, withheld=withheld, refused_version=refused)
    story = told(details(job(), wait=wait))
    assert "2.330.0 of the pool linux since 2025-12-16 07:30 UTC" in story.why
    assert story.next.startswith("The image of the pool linux is renewed")


def test_a_version_refused_without_a_date_is_tried_again() -> None:
    refused = RefusedVersion(
        version="2.330.0", ended_at=None, refused_at=NOW, refused_until=NOW + timedelta(hours=2)
    )
    wait = replace(WAIT, withheld=Withheld.RUNNER_VERSION, refused_version=refused)
    assert "tried again in 2" in told(details(job(), wait=wait)).next


def test_a_key_whose_unknown_version_was_refused_is_told_so() -> None:
    off = replace(BACKED_OFF, cause=BackOffCause.VERSION_REFUSED)
    story = told(details(job(), wait=replace(WAIT, withheld=Withheld.BACK_OFF, back_off=off)))
    assert story.why.startswith("GitHub refused the version of a runner")


@pytest.mark.parametrize("scope", BackOffScope)
def test_who_backs_off_is_told(scope: BackOffScope) -> None:
    off = replace(BACKED_OFF, scope=scope)
    story = told(details(job(), wait=replace(WAIT, withheld=Withheld.BACK_OFF, back_off=off)))
    assert "2 times in a row" in story.why
    assert story.why.endswith("it says no.")


@pytest.mark.parametrize("state", [RunnerState.CLAIMED, RunnerState.ARMED, RunnerState.RUNNING])
def test_how_far_the_runner_on_its_way_is_is_told(state: RunnerState) -> None:
    """The one that was claimed for the job before others of its key."""
    other = related(runner(RunnerState.RUNNING, pod="linux-2"))
    own = related(runner(state), hinted=True)
    wait = replace(WAIT, ahead=0, supply=2)
    assert told(details(job(), wait=wait, runners=[other, own])).why.startswith("linux-1 ")


def test_what_github_was_asked_counts_only_while_a_runner_is_there() -> None:
    served = replace(WAIT, ahead=0, supply=1)
    for wait, is_told in ((served, True), (WAIT, False)):
        about = details(job(), wait=wait, not_assigned_because="no group lets it.")
        assert ("does not assign" in told(about).why) is is_told


@pytest.mark.parametrize(
    ("state", "ending", "executed"),
    list(
        itertools.product(
            (JobState.IN_PROGRESS, JobState.COMPLETED), (None, *Ending), (True, False)
        )
    ),
)
def test_every_end_of_a_jobs_runner_is_told(
    state: JobState, ending: Ending | None, executed: bool
) -> None:
    over = state is JobState.COMPLETED
    about = job(
        state,
        started_at=EARLIER,
        completed_at=NOW if over else None,
        conclusion="failure" if over else None,
        executor="linux-1-1",
    )
    of = related(
        runner(RunnerState.GONE if ending else RunnerState.BUSY),
        executed=executed,
        hinted=True,
        verdict=verdict(ending) if ending else None,
    )
    told(details(about, runners=[of]))


@pytest.mark.parametrize("note", [*Passed, None])
@pytest.mark.parametrize("state", ["ignored", "pending"])
def test_why_a_job_was_passed_over_is_told(note: str | None, state: str) -> None:
    told(PassedOver(job=JobId(7), labels=("x",), received_at=NOW, state=state, note=note or "x"))


@pytest.mark.parametrize("state", RunnerState)
@pytest.mark.parametrize("executed", [True, False])
def test_every_state_of_a_runner_is_told(state: RunnerState, executed: bool) -> None:
    meant = job(JobState.COMPLETED, conclusion="success", pod="linux-1" if executed else "linux-2")
    told(
        RunnerDetails(
            runner=runner(state),
            steps={"created": EARLIER},
            retire_reason="It is stale.",
            was_registered=True,
            pool_paused=None,
            dispatch_paused=None,
            queued=0,
            names=[],
            events=[],
            actions=[],
            jobs=[meant],
            verdict=verdict() if state is RunnerState.GONE else None,
            log_tail=None,
            vitals=[],
        )
    )


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (45, "45 s"),
        (600, "10 min"),
        (7300, "2 h"),
        (2e5, "2 days"),
    ],
)
def test_lengths_are_as_exact_as_matters(seconds: float, words: str) -> None:
    assert length(timedelta(seconds=seconds)) == words


def test_names_keep_their_capitals_within_a_sentence() -> None:
    assert clause("It ended.") == "it ended"
    assert clause("GitHub gave it a job.") == "GitHub gave it a job"
    assert clause("") == ""
