"""Stories exist for every state and every reason, in whole sentences."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from paddock.domain.allocation import Withheld
from paddock.domain.backoffs import BackOffCause, BackOffScope
from paddock.domain.dossiers import (
    BackedOff,
    Check,
    JobDossier,
    JobInBrief,
    JobOnFile,
    PassedOver,
    RelatedRunner,
    RunnerDossier,
    VerdictOnFile,
    Wait,
)
from paddock.domain.endings import Ending
from paddock.domain.ids import HostId, JobId, PoolId, RunnerId
from paddock.domain.intake import Passed
from paddock.domain.limits import NOTHING, Limits
from paddock.domain.names import PodName, RunnerName
from paddock.domain.pauses import Pause
from paddock.domain.runners import Runner
from paddock.domain.states import JobState, RunnerState
from paddock.stories import Story, tell
from paddock.stories.story import clause, length

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
EARLIER = NOW - timedelta(seconds=90)
PAUSE = Pause(at=EARLIER, by="operator:ana", why="the registry is down")
PAUSED = "paused by ana since 2026-01-05 08:58 UTC: the registry is down."


def runner(state: RunnerState = RunnerState.RUNNING, **changes: Any) -> Runner:
    known: dict[str, Any] = dict.fromkeys(
        (
            *("key", "account", "mint_deadline", "github_id", "delivery", "job", "node", "hint"),
            *("heard_at", "acknowledged_at", "job_marked_at", "suspect_at", "absent_since"),
            *("retire_reason", "deregistered_at", "proved_at"),
        )
    )
    known |= {
        "id": RunnerId(UUID(int=1)),
        "pool": PoolId(1),
        "pod_name": PodName("linux-1"),
        "pod_uid": "uid",
        "state": state,
        "generation": 1,
        "since": EARLIER,
        "name": RunnerName("linux-1-1"),
        "shape": "gated",
        "spec_hash": "v1",
        "created_at": EARLIER,
        "absent_reads": 0,
    }
    return Runner(**{**known, **changes})


def verdict(ending: Ending = Ending.HOST_OOM) -> VerdictOnFile:
    return VerdictOnFile(
        ending=ending,
        abnormal=ending.abnormal,
        why="It ended (exit code 137: SIGKILL).",
        exit_code=137,
        signal=None,
        reason="Error",
        node="node-1",
        ended_at=EARLIER,
        written_at=EARLIER,
        refined_at=None,
        log_tail=None,
        evidence="{}",
    )


def job(state: JobState = JobState.QUEUED, **changes: Any) -> JobOnFile:
    known: dict[str, Any] = {
        "host": HostId(1),
        "host_name": "github.com",
        "id": JobId(7),
        "account": "acme",
        "repository": "acme/site",
        "run_id": 1,
        "name": "build",
        "workflow": None,
        "labels": ("self-hosted", "linux"),
        "state": state,
        "pool": "linux",
        "refusal": None,
        "refusal_detail": None,
        "created_at": EARLIER,
        "queued_at": EARLIER,
        "started_at": None,
        "completed_at": None,
        "conclusion": None,
        "executor": None,
        "demotions": 0,
        "seen_at": EARLIER,
        "since": EARLIER,
        "why": "a webhook",
    }
    return JobOnFile(**{**known, **changes})


WAIT = Wait(
    ahead=3,
    supply=0,
    supply_graces=0,
    supply_grace_until=None,
    withheld=None,
    everybody_paused=None,
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
    pool_occupied=10,
    idle=1,
    booting=0,
    pool_target=None,
    pool_because=None,
)


def dossier(of: JobOnFile, **changes: Any) -> JobDossier:
    known: dict[str, Any] = {
        "wait": None,
        "check": None,
        "runners": (),
        "events": (),
        "actions": (),
    }
    return JobDossier(job=of, **{**known, **changes})


def told(about: JobDossier | RunnerDossier | PassedOver) -> Story:
    story = tell(about, now=NOW)
    for text in (story.why, story.next, *story.remarks):
        assert re.fullmatch(r"[A-Za-z`].*\.", text), text
        assert not re.search(r"\.\.|  |None|\{|\}", text), text
    return story


@pytest.mark.parametrize("withheld", [None, *Withheld])
def test_every_reason_of_the_matcher_is_told(withheld: Withheld | None) -> None:
    story = told(dossier(job(), wait=replace(WAIT, withheld=withheld)))
    assert story.next


@pytest.mark.parametrize(
    ("pauses", "words"),
    [
        ({"everybody_paused": PAUSE}, f"All dispatch has been {PAUSED}"),
        ({"account_paused": PAUSE}, f"The account acme has been {PAUSED}"),
        ({"pool_paused": PAUSE}, f"The pool linux has been {PAUSED}"),
        ({"pool_state": "draining"}, "Its pool, linux, is being deleted"),
    ],
)
def test_whose_pause_it_is_is_told(pauses: dict[str, Any], words: str) -> None:
    wait = replace(WAIT, withheld=Withheld.PAUSED, **pauses)
    assert told(dossier(job(), wait=wait)).why.startswith(words)


BACKED_OFF = BackedOff(
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
        assert told(dossier(job(), wait=wait)).why.startswith(begins)


@pytest.mark.parametrize("scope", BackOffScope)
def test_who_backs_off_is_told(scope: BackOffScope) -> None:
    off = replace(BACKED_OFF, scope=scope)
    story = told(dossier(job(), wait=replace(WAIT, withheld=Withheld.BACK_OFF, back_off=off)))
    assert "2 times in a row" in story.why
    assert story.why.endswith("it says no.")


@pytest.mark.parametrize("state", [RunnerState.CLAIMED, RunnerState.ARMED, RunnerState.RUNNING])
def test_how_far_the_runner_on_its_way_is_is_told(state: RunnerState) -> None:
    """The one that was claimed for the job before others of its key."""
    other = RelatedRunner(
        runner=runner(RunnerState.RUNNING, pod_name=PodName("linux-2")),
        executed=False,
        hinted=False,
        verdict=None,
    )
    own = RelatedRunner(runner=runner(state), executed=False, hinted=True, verdict=None)
    wait = replace(WAIT, ahead=0, supply=2)
    assert told(dossier(job(), wait=wait, runners=(other, own))).why.startswith("linux-1 ")


def test_what_github_was_asked_counts_only_while_a_runner_is_there() -> None:
    check = Check(at=NOW, answer="queued", times=2, waits_because="nobody lets it.")
    served = replace(WAIT, ahead=0, supply=1)
    assert "does not assign" in told(dossier(job(), wait=served, check=check)).why
    assert "does not assign" not in told(dossier(job(), wait=WAIT, check=check)).why


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
    related = RelatedRunner(
        runner=runner(RunnerState.GONE if ending else RunnerState.BUSY),
        executed=executed,
        hinted=True,
        verdict=verdict(ending) if ending else None,
    )
    told(dossier(about, runners=(related,)))


@pytest.mark.parametrize("note", [*Passed, None])
@pytest.mark.parametrize("state", ["ignored", "pending"])
def test_why_a_job_was_passed_over_is_told(note: str | None, state: str) -> None:
    told(PassedOver(job=JobId(7), labels=("x",), received_at=NOW, state=state, note=note or "x"))


@pytest.mark.parametrize("state", RunnerState)
@pytest.mark.parametrize("executed", [True, False])
def test_every_state_of_a_runner_is_told(state: RunnerState, executed: bool) -> None:
    brief = JobInBrief(
        host_name="github.com",
        id=JobId(7),
        name="build",
        repository="acme/site",
        state=JobState.COMPLETED,
        conclusion="success",
        executed=executed,
    )
    told(
        RunnerDossier(
            runner=runner(state, retire_reason="It is stale."),
            pool="linux",
            pool_paused=None,
            everybody_paused=None,
            queued=0,
            account="acme",
            verdict=verdict() if state is RunnerState.GONE else None,
            jobs=(brief,),
            names=(),
            events=(),
            actions=(),
            last_sample=None,
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
