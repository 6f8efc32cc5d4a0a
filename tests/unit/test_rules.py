"""The table of recovery: its incidents by name, and all possible evidence."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import pytest

from paddock.domain.recovery.actions import (
    AnyAction,
    EndedAction,
    JobAction,
    NoAction,
    PodAction,
    RunnerAction,
)
from paddock.domain.recovery.diagnosis import decide, diagnose
from paddock.domain.recovery.evidence import (
    AnyEvidence,
    Container,
    EndedEvidence,
    Evidence,
    ExecutorState,
    JobEvidence,
    JobWord,
    LogWord,
    On,
    PodEvidence,
    PodSeen,
    RecordWord,
    Sighting,
    Subject,
)
from paddock.domain.recovery.rule import Question, Rule, Verdict
from paddock.domain.recovery.table import RULES
from paddock.domain.recovery.thresholds import Thresholds
from paddock.domain.runners.endings import Retired
from paddock.domain.states import JobState, RunnerState
from tests.support.exploring import Values, explore, undecided

USUAL = Thresholds()
#: As long as GitHub lets a job run.
LONG = 120 * 3600.0
S = RunnerState

#: What ends a Pod, at once or in time.
ENDS = {RunnerAction.CONCLUDE, RunnerAction.FENCE, RunnerAction.RETIRE, PodAction.ADOPT}
NEVER_RAN = [each for each in Container if each.never_ran]
EVER_RAN = [each for each in Container if not each.never_ran]


def verdict(evidence: AnyEvidence, thresholds: Thresholds = USUAL) -> Verdict[Any]:
    return diagnose(evidence, thresholds)


def action(evidence: AnyEvidence) -> AnyAction | NoAction:
    return verdict(evidence).action


def pod(runner: Container = Container.STARTED, **more: Any) -> PodSeen:
    up = LONG if runner is Container.STARTED else None
    seen = PodSeen(
        sighting=Sighting.PRESENT, runner=runner, poller=Container.TERMINATED, age=LONG, up=up
    )
    return replace(seen, **more)


#: Healthy runners, one for each state.
BOOTING = Evidence(
    state=S.BOOTING,
    since=10,
    shape="gated",
    pod_seen=True,
    pod=pod(Container.WAITING, poller=Container.WAITING, age=10, unchanged=10),
)
IDLE = replace(
    BOOTING,
    state=S.IDLE,
    since=LONG,
    heard=20,
    others_answered=True,
    pod=pod(Container.WAITING, poller=Container.STARTED, unchanged=LONG),
)
CLAIMED = replace(IDLE, state=S.CLAIMED, since=1, named=True, hint=JobState.QUEUED)
ARMED = replace(CLAIMED, state=S.ARMED)
RUNNING = replace(ARMED, state=S.RUNNING, acknowledged=5, heard=6, pod=pod(up=4, unchanged=4))
BUSY = replace(
    RUNNING, state=S.BUSY, since=LONG, acknowledged=LONG, job=JobState.IN_PROGRESS, pod=pod()
)
DONE = replace(BUSY, state=S.DONE, since=5, job=JobState.COMPLETED)
HEALTHY = [BOOTING, IDLE, CLAIMED, ARMED, RUNNING, BUSY, DONE]

#: Up for longer than any threshold, and silent.
STUCK = replace(
    RUNNING, since=LONG, acknowledged=LONG, heard=LONG, suspect=LONG, pod=pod(unchanged=LONG)
)
NEVER_REGISTERED = replace(STUCK, record=RecordWord.OFFLINE, log=LogWord.NO_JOB)
FENCED = replace(STUCK, state=S.RETIRING)
ORPHAN = PodEvidence(shape="gated", pod=pod(), stamped=True)
ENDED = EndedEvidence(since=600)
QUEUED = JobEvidence(state=JobState.QUEUED, since=LONG, queued=600)


# GitHub is not asked about runners without suspicion.


@pytest.mark.parametrize("healthy", HEALTHY, ids=lambda each: each.state)
@pytest.mark.parametrize("shape", ["gated", "single"])
def test_what_is_in_order_is_left_alone_and_no_party_is_asked(
    healthy: Evidence, shape: Any
) -> None:
    found = verdict(replace(healthy, shape=shape))
    assert (found.action, found.question) == (NoAction.LEAVE, None)


@pytest.mark.parametrize("healthy", HEALTHY, ids=lambda each: each.state)
def test_a_container_that_polls_and_runs_is_up_from_its_boot_and_that_proves_nothing(
    healthy: Evidence,
) -> None:
    """I22. The guard that saves gated Pods would protect all of these for ever, and its clock would
    have them late the moment they get their JIT."""
    found = verdict(
        replace(healthy, shape="single", pod=pod(unchanged=10, poller=Container.STARTED))
    )
    assert (found.action, found.question) == (NoAction.LEAVE, None)


def test_no_candidates_means_no_calls() -> None:
    """S2. A runner that is young, a job that waits for its runner, a Pod that is new."""
    young: list[AnyEvidence] = [
        RUNNING,
        replace(QUEUED, since=5, supply=True),
        replace(ORPHAN, pod=pod(age=5)),
    ]
    assert [verdict(each).question for each in young] == [None, None, None]


# S1: a Pod that bears the owner's stamp and has no claim.


def orphan(runner: Container, **more: Any) -> Verdict[Any]:
    answered = replace(ORPHAN, pod=pod(runner), record=RecordWord.OFFLINE, log=LogWord.NOT_READ)
    return verdict(replace(answered, **more))


def test_s1_a_pod_whose_runner_started_is_protected() -> None:
    """I34"""
    _is_protected(Container.STARTED)


def test_s1_a_pod_whose_runner_terminated_is_protected() -> None:
    """I34"""
    _is_protected(Container.TERMINATED)


def test_s1_a_pod_whose_runner_terminated_before_is_protected() -> None:
    """I34"""
    _is_protected(Container.LAST_TERMINATED)


def _is_protected(runner: Container) -> None:
    """For any answer of GitHub: until its own log, too, shows that it never had a job."""
    assert orphan(runner).question is Question.LOG
    for log in (LogWord.UNREADABLE, LogWord.JOB):
        assert orphan(runner, log=log).action is PodAction.PROTECT
    for record in (RecordWord.UNREADABLE, RecordWord.BUSY):
        assert orphan(runner, record=record, log=LogWord.NO_JOB).action is PodAction.PROTECT


@pytest.mark.parametrize("waits", NEVER_RAN)
def test_s1_a_pod_whose_runner_waits_or_has_no_status_is_given_a_row_and_retires(
    waits: Container,
) -> None:
    found = orphan(waits)
    assert (found.action, found.rule) == (PodAction.ADOPT, "pod-without-row")


@pytest.mark.parametrize("waits", NEVER_RAN)
def test_s1_within_its_grace_a_pod_is_left_alone(waits: Container) -> None:
    assert orphan(waits, pod=pod(waits, age=299)).action is NoAction.LEAVE


def test_s1_an_unknown_shape_protects_the_pod_for_one_more_round() -> None:
    """I34"""
    assert orphan(Container.UNRECOGNISED, log=LogWord.NO_JOB).action is PodAction.PROTECT


def test_s1_of_a_mixed_batch_only_the_wedged_pod_is_condemned() -> None:
    """I34"""
    batch = {
        Container.STARTED: LogWord.JOB,
        Container.TERMINATED: LogWord.JOB,
        Container.LAST_TERMINATED: LogWord.UNREADABLE,
        Container.UNRECOGNISED: LogWord.NO_JOB,
        Container.WAITING: LogWord.NOT_READ,
        Container.NO_STATUSES: LogWord.NOT_READ,
    }
    found = [orphan(runner, log=log).action for runner, log in batch.items()]
    assert found == [*[PodAction.PROTECT] * 4, *[PodAction.ADOPT] * 2]


@pytest.mark.parametrize("runner", Container)
def test_s1_in_a_pod_that_polls_and_runs_a_started_container_proves_nothing(
    runner: Container,
) -> None:
    """Whether its log shows a job decides, as for any Pod whose runner may have run."""
    single = {"shape": "single", "log": LogWord.JOB}
    assert orphan(runner, record=RecordWord.BUSY, **single).action is PodAction.PROTECT
    if runner is Container.STARTED:
        assert orphan(runner, **single).action is PodAction.PROTECT
        assert orphan(runner, shape="single", log=LogWord.NO_JOB).action is PodAction.ADOPT


@pytest.mark.parametrize("runner", Container)
def test_s1_the_stamp_decides_nothing(runner: Container) -> None:
    """I22"""
    for record, log in itertools.product(RecordWord, LogWord):
        said = {"record": record, "log": log}
        assert (
            orphan(runner, stamped=True, **said).action
            is orphan(runner, stamped=False, **said).action
        )


@pytest.mark.parametrize("answer", [RecordWord.NOT_ASKED, RecordWord.UNREADABLE])
@pytest.mark.parametrize("runner", Container)
def test_a_pod_without_a_row_is_protected_until_github_has_answered(
    runner: Container, answer: RecordWord
) -> None:
    """I70"""
    assert orphan(runner, record=answer, log=LogWord.NO_JOB).action in (
        NoAction.ASK,
        PodAction.PROTECT,
    )


@pytest.mark.parametrize("state", [S.BOOTING, S.IDLE, S.CLAIMED])
@pytest.mark.parametrize("runner", EVER_RAN)
def test_a_row_that_knows_nothing_of_its_running_pod_does_not_condemn_it(
    state: RunnerState, runner: Container
) -> None:
    """I70. An old backup says that the Pod is idle; by now it executes a job."""
    restored = replace(
        IDLE,
        state=state,
        since=LONG,
        heard=LONG,
        mint_overdue=True,
        pod=pod(runner, deletion_requested=True),
    )
    assert action(restored) in (NoAction.ASK, RunnerAction.PROTECT)
    for word in (RecordWord.UNREADABLE, RecordWord.BUSY):
        assert action(replace(restored, record=word, log=LogWord.NO_JOB)) is RunnerAction.PROTECT


# S2: a runner that was minted and never registered.


def never_registered(hinted: JobWord, **more: Any) -> Verdict[Any]:
    return verdict(replace(NEVER_REGISTERED, hinted=hinted, **more))


def test_s2_the_job_is_asked_for_before_anything_is_done() -> None:
    found = never_registered(JobWord.NOT_ASKED)
    assert (found.action, found.question) == (NoAction.ASK, Question.JOB)


def test_s2_queued_the_runner_is_fenced_and_so_the_job_served_again() -> None:
    """I31"""
    found = never_registered(JobWord.QUEUED)
    assert (found.action, found.rule) == (RunnerAction.FENCE, "never-registered")
    assert found.retired is Retired.GIVEN_UP


def test_s2_in_progress_it_is_left_alone() -> None:
    """I24"""
    assert never_registered(JobWord.IN_PROGRESS).action is RunnerAction.APPLY
    known = never_registered(JobWord.IN_PROGRESS, hint=JobState.IN_PROGRESS)
    assert known.action is NoAction.LEAVE


def test_s2_in_progress_on_this_very_runner_it_is_busy() -> None:
    here = never_registered(JobWord.IN_PROGRESS, hint=JobState.IN_PROGRESS, hinted_on=On.THIS)
    assert here.action is RunnerAction.OCCUPY


def test_s2_in_progress_on_another_runner_says_nothing_of_this_one() -> None:
    elsewhere = never_registered(
        JobWord.IN_PROGRESS, hint=JobState.IN_PROGRESS, hinted_on=On.ANOTHER
    )
    assert elsewhere.action is RunnerAction.FENCE


@pytest.mark.parametrize("on", On)
def test_s2_completed_goes_the_way_of_completions(on: On) -> None:
    assert never_registered(JobWord.COMPLETED, hinted_on=on).action is RunnerAction.APPLY
    assert never_registered(JobWord.NOT_ASKED, hint=JobState.COMPLETED).action is RunnerAction.FENCE


def test_s2_a_502_touches_nothing() -> None:
    assert never_registered(JobWord.UNREADABLE).action is NoAction.LEAVE
    unanswered = replace(STUCK, record=RecordWord.UNREADABLE, log=LogWord.NO_JOB)
    assert action(unanswered) is NoAction.LEAVE


def test_s2_age_alone_ends_nothing() -> None:
    """I27"""
    assert action(replace(STUCK, record=RecordWord.IDLE, log=LogWord.UNREADABLE)) is NoAction.LEAVE
    assert action(replace(BUSY, since=LONG)) is NoAction.LEAVE


def test_a_container_that_does_not_start_is_replaced_within_a_minute_and_not_killed() -> None:
    """I31"""
    stuck = replace(RUNNING, acknowledged=31, pod=pod(Container.WAITING))
    assert action(stuck) is RunnerAction.SUSPECT
    assert action(replace(stuck, suspect=1)) is NoAction.LEAVE


@pytest.mark.parametrize("runner", [Container.PULLING, Container.IMAGE_ERROR])
def test_a_container_that_waits_says_what_for(runner: Container) -> None:
    found = verdict(replace(STUCK, pod=pod(runner, unchanged=LONG)))
    assert found.action is RunnerAction.FENCE
    assert f"its container {runner}" in found.why


def test_a_pull_has_its_own_time() -> None:
    pulling = replace(STUCK, pod=pod(Container.PULLING, unchanged=600))
    assert action(pulling) is NoAction.LEAVE
    assert action(replace(pulling, pod=pod(Container.WAITING, unchanged=600))) is RunnerAction.FENCE


# Who is believed.


@pytest.mark.parametrize("state", [S.ARMED, S.RUNNING, S.RETIRING])
@pytest.mark.parametrize(
    "voice",
    [
        {"record": RecordWord.BUSY},
        {"log": LogWord.JOB},
        {"job_marked": True},
        {"job": JobState.IN_PROGRESS},
    ],
    ids=str,
)
def test_one_voice_is_enough_to_be_busy(state: RunnerState, voice: dict[str, Any]) -> None:
    """I22, I65. All the others say that there is nothing on it."""
    silent = replace(STUCK, state=state, record=RecordWord.ABSENT, log=LogWord.NO_JOB)
    assert action(replace(silent, **voice)) is RunnerAction.OCCUPY


def test_githubs_word_alone_fences_nothing_that_may_have_run() -> None:
    """I65"""
    idle = replace(STUCK, surplus=True, record=RecordWord.IDLE)
    assert verdict(idle).question is Question.LOG
    assert action(replace(idle, log=LogWord.UNREADABLE)) is NoAction.LEAVE
    assert action(replace(idle, log=LogWord.NO_JOB)) is RunnerAction.FENCE


def test_an_old_answer_is_asked_for_again() -> None:
    """I65"""
    idle = replace(STUCK, surplus=True, record=RecordWord.IDLE, log=LogWord.NO_JOB)
    assert verdict(replace(idle, record_age=31)).question is Question.RECORD
    assert verdict(replace(idle, log_age=31)).question is Question.LOG


def test_a_job_in_its_log_is_not_forgotten() -> None:
    assert action(replace(STUCK, log=LogWord.JOB, log_age=LONG)) is RunnerAction.OCCUPY


@pytest.mark.parametrize("word", [RecordWord.UNREADABLE, RecordWord.NOT_ASKED])
def test_a_record_that_could_not_be_read_is_not_absent(word: RecordWord) -> None:
    """I66"""
    zombie = replace(STUCK, record=RecordWord.ABSENT, log=LogWord.NO_JOB, hint=None)
    assert verdict(zombie).rule == "zombie"
    assert action(replace(zombie, record=word)) not in ENDS


def test_a_runner_whose_record_vanished_is_fenced() -> None:
    """I38"""
    zombie = replace(STUCK, record=RecordWord.ABSENT, log=LogWord.NO_JOB, hint=None)
    assert action(zombie) is RunnerAction.FENCE


def test_a_short_job_whose_webhook_is_late_has_time_to_end() -> None:
    """I68"""
    quick = replace(STUCK, record=RecordWord.ABSENT, log=LogWord.NO_JOB, pod=pod(up=119))
    assert action(quick) is NoAction.LEAVE
    assert verdict(replace(quick, pod=pod(up=120))).question is Question.JOB


@pytest.mark.parametrize("busy", [BUSY, replace(RUNNING, record=RecordWord.BUSY, job_marked=True)])
def test_a_pod_that_is_gone_overrides_every_flag(busy: Evidence) -> None:
    """I33"""
    assert action(replace(busy, pod=pod(terminal=True))) is RunnerAction.CONCLUDE
    missing = PodSeen(sighting=Sighting.ABSENT, absent_reads=3)
    assert action(replace(busy, pod=missing)) is RunnerAction.CONCLUDE


@pytest.mark.parametrize("state", [state for state in S if state is not S.GONE])
def test_one_read_without_its_pod_proves_nothing(state: RunnerState) -> None:
    """I29"""
    once = replace(STUCK, state=state, pod=PodSeen(sighting=Sighting.ABSENT, absent_reads=2))
    assert action(once) is not RunnerAction.CONCLUDE
    assert action(replace(once, pod=PodSeen(sighting=Sighting.UNREAD))) is not RunnerAction.CONCLUDE


def test_a_planned_pod_that_is_not_there_yet_is_not_gone() -> None:
    planned = replace(
        BOOTING, pod_seen=False, pod=PodSeen(sighting=Sighting.ABSENT, absent_reads=30)
    )
    assert action(planned) is NoAction.LEAVE
    assert action(replace(planned, since=300)) is RunnerAction.CONCLUDE


def test_silence_counts_only_while_others_are_answered() -> None:
    """I29"""
    for quiet in (replace(IDLE, heard=LONG), replace(ARMED, heard=LONG)):
        assert action(quiet) is RunnerAction.FENCE
        assert action(replace(quiet, others_answered=False)) is NoAction.LEAVE


def test_a_lost_acknowledgement_is_no_lost_runner() -> None:
    """Its JIT was staged, but the acknowledgement was lost; the runner is online all the same."""
    online = replace(ARMED, since=200, heard=200, pod=pod(up=200), record=RecordWord.IDLE)
    assert action(online) is NoAction.LEAVE


def test_a_pod_that_cannot_start_frees_its_place() -> None:
    """I50"""
    late = replace(BOOTING, pod=replace(BOOTING.pod, unchanged=300))
    assert verdict(late).rule == "never-started"
    nowhere = replace(late, pod=replace(late.pod, unschedulable="0/3 nodes are available"))
    found = verdict(nowhere)
    assert (found.action, found.rule) == (RunnerAction.FENCE, "unschedulable")
    assert "0/3 nodes are available" in found.why


def test_a_slow_pull_is_no_failed_start() -> None:
    pulling = replace(BOOTING.pod, poller=Container.PULLING, unchanged=899)
    assert action(replace(BOOTING, pod=pulling)) is NoAction.LEAVE
    assert action(replace(BOOTING, pod=replace(pulling, unchanged=900))) is RunnerAction.FENCE


@pytest.mark.parametrize("late", [replace(STUCK, suspect=None), NEVER_REGISTERED])
def test_half_a_scope_being_late_is_githubs_delay_and_replaces_no_runner(late: Evidence) -> None:
    """I74"""
    offline = replace(late, record=RecordWord.OFFLINE, suspects=4, recent=8)
    assert action(offline) is RunnerAction.ALARM
    assert action(replace(offline, recent=9)) is not RunnerAction.ALARM


def test_a_single_late_runner_is_replaced_although_it_is_all_its_scope_has() -> None:
    late = replace(STUCK, suspect=None, record=RecordWord.OFFLINE, suspects=1, recent=1)
    assert action(late) is RunnerAction.SUSPECT


def test_a_runner_that_got_no_job_in_time_is_retired() -> None:
    """I24"""
    idle = replace(STUCK, record=RecordWord.IDLE, log=LogWord.NO_JOB)
    assert verdict(idle).rule == "no-job-in-time"
    assert action(replace(idle, pod=pod(up=899))) is NoAction.LEAVE


def test_a_done_runner_that_lingers_is_retired_unless_github_calls_it_busy() -> None:
    lingers = replace(DONE, since=600, job_marked=True, log=LogWord.JOB)
    assert (action(lingers), verdict(lingers).retired) == (RunnerAction.FENCE, Retired.FINISHED)
    assert action(replace(lingers, record=RecordWord.BUSY)) is RunnerAction.PROTECT


def test_a_pod_kept_alive_by_a_side_container_is_retired_when_github_lets_go() -> None:
    ended = replace(BUSY, job_marked=True, pod=pod(Container.TERMINATED, unchanged=600))
    assert verdict(ended).question is Question.RECORD
    assert action(replace(ended, record=RecordWord.BUSY)) is NoAction.LEAVE
    assert action(replace(ended, record=RecordWord.OFFLINE)) is RunnerAction.FENCE


def test_a_claim_is_released_only_when_its_mint_cannot_come_back() -> None:
    stale = replace(CLAIMED, since=300, mint_overdue=True)
    assert action(stale) is RunnerAction.RELEASE
    assert action(replace(stale, mint_overdue=False)) is NoAction.LEAVE


# Ended runners.


def test_a_clean_exit_without_a_job_is_called_so_only_by_githubs_word() -> None:
    """I39"""
    assert verdict(ENDED).question is Question.RECORD
    assert action(replace(ENDED, record=RecordWord.OFFLINE)) is EndedAction.REFINE
    assert action(replace(ENDED, record=RecordWord.UNREADABLE)) is NoAction.LEAVE


def test_a_runner_whose_record_is_gone_may_have_had_a_job() -> None:
    """I68"""
    gone = replace(ENDED, record=RecordWord.ABSENT, hint=JobState.QUEUED)
    assert verdict(gone).question is Question.JOB
    assert action(replace(gone, hinted=JobWord.QUEUED)) is NoAction.LEAVE
    assert action(replace(gone, hinted=JobWord.COMPLETED, hinted_on=On.THIS)) is EndedAction.APPLY


def test_a_runner_that_says_it_had_a_job_is_never_called_never_ran() -> None:
    """I68"""
    spoke = replace(ENDED, says_it_had_a_job=True, record=RecordWord.OFFLINE)
    assert action(spoke) is not EndedAction.REFINE


def test_an_ended_runner_is_asked_for_ever_more_seldom() -> None:
    asked = replace(ENDED, record=RecordWord.UNREADABLE)
    assert verdict(replace(asked, record_age=299)).question is None
    assert verdict(replace(asked, record_age=301)).question is Question.RECORD


# Jobs.


@pytest.mark.parametrize("state", [JobState.WAITING, JobState.QUEUED, JobState.IN_PROGRESS])
def test_a_missed_completion_is_applied(state: JobState) -> None:
    missed = JobEvidence(state=state, word=JobWord.COMPLETED)
    assert (action(missed), verdict(missed).rule) == (JobAction.APPLY, "missed-completion")


@pytest.mark.parametrize("word", [JobWord.WAITING, JobWord.QUEUED, JobWord.IN_PROGRESS])
def test_a_job_that_only_github_knows_is_inserted(word: JobWord) -> None:
    assert action(JobEvidence(state=None, word=word)) is JobAction.INSERT


def test_a_job_that_is_served_again_was_asked_for_first() -> None:
    """I68"""
    echo = replace(QUEUED, since=1, supply_grace=True)
    assert verdict(echo).question is Question.JOB
    assert action(replace(echo, word=JobWord.QUEUED)) is JobAction.SERVE
    assert action(replace(echo, word=JobWord.COMPLETED)) is JobAction.APPLY
    assert action(replace(echo, word=JobWord.UNREADABLE)) is NoAction.LEAVE


@pytest.mark.parametrize("word", [each for each in JobWord if each is not JobWord.COMPLETED])
@pytest.mark.parametrize("executor", ExecutorState)
def test_in_progress_is_never_ended_by_us(word: JobWord, executor: ExecutorState) -> None:
    """I37"""
    old = JobEvidence(
        state=JobState.IN_PROGRESS, since=LONG, queued=LONG, executor=executor, word=word, times=99
    )
    expected: set[JobAction | NoAction] = {NoAction.LEAVE, NoAction.ASK}
    if executor is not ExecutorState.ALIVE and word is JobWord.QUEUED:
        expected = {JobAction.DEMOTE}
    # The exception: GitHub can never be asked about it again.
    if executor is not ExecutorState.ALIVE and word is JobWord.REPOSITORY_GONE:
        expected = {JobAction.STALE}
    assert action(old) in expected


def test_a_job_in_progress_in_a_deleted_repository_is_ended_after_the_third_answer() -> None:
    """I29, I37, I66"""
    gone = JobEvidence(
        state=JobState.IN_PROGRESS,
        executor=ExecutorState.GONE,
        word=JobWord.REPOSITORY_GONE,
        times=2,
    )
    assert action(gone) is NoAction.LEAVE
    assert verdict(replace(gone, times=3)).rule == "repository-deleted"
    assert action(replace(gone, times=9, executor=ExecutorState.ALIVE)) is NoAction.LEAVE


def test_a_queued_job_in_a_deleted_repository_is_ended_after_the_third_answer() -> None:
    gone = replace(QUEUED, word=JobWord.REPOSITORY_GONE, times=2)
    assert action(gone) is NoAction.LEAVE
    assert verdict(replace(gone, times=3)).rule == "job-deleted"


def test_queued_has_a_hard_end() -> None:
    """I37"""
    day, two_days = 86_400.0, 2 * 86_400.0
    known = replace(QUEUED, word=JobWord.QUEUED)
    assert action(replace(known, queued=day)) is NoAction.LEAVE
    assert action(replace(known, queued=two_days)) is JobAction.STALE
    unreadable = replace(QUEUED, word=JobWord.UNREADABLE)
    assert action(replace(unreadable, queued=day)) is NoAction.LEAVE
    assert action(replace(unreadable, queued=two_days)) is JobAction.STALE
    absent = replace(QUEUED, word=JobWord.ABSENT, times=1)
    assert action(absent) is NoAction.LEAVE
    assert action(replace(absent, queued=day)) is JobAction.STALE


def test_a_stale_claim_is_released_only_under_a_poller_that_still_polls() -> None:
    """I70: a restored backup may have taken back what came of the claim."""
    stale = replace(CLAIMED, since=300, mint_overdue=True)
    assert action(stale) is RunnerAction.RELEASE
    served = replace(stale, pod=pod(Container.BROKEN, poller=Container.TERMINATED))
    assert action(served) is RunnerAction.FENCE
    assert action(replace(stale, pod=PodSeen())) is NoAction.LEAVE, "its state is unknown"
    single = replace(stale, shape="single", pod=pod())
    assert verdict(single).question is Question.RECORD
    unreadable = replace(single, record=RecordWord.UNREADABLE, log=LogWord.UNREADABLE)
    assert action(unreadable) is NoAction.LEAVE


def test_a_job_on_another_runner_is_queued_again_when_github_says_so_twice() -> None:
    """I37"""
    job = JobEvidence(state=JobState.IN_PROGRESS, since=900, executor=ExecutorState.FOREIGN)
    assert verdict(job).question is Question.JOB
    assert action(replace(job, word=JobWord.QUEUED, times=1)) is NoAction.LEAVE
    assert action(replace(job, word=JobWord.QUEUED, times=2)) is JobAction.DEMOTE
    assert action(replace(job, word=JobWord.IN_PROGRESS, times=9)) is NoAction.LEAVE
    ours = replace(job, executor=ExecutorState.ALIVE, word=JobWord.QUEUED, times=9)
    assert action(ours) is NoAction.LEAVE


def test_a_job_github_does_not_assign_is_explained_after_its_second_answer() -> None:
    beside = replace(QUEUED, supply=True, idle_beside=60)
    assert verdict(beside).question is Question.JOB
    assert action(replace(beside, word=JobWord.QUEUED, times=1)) is NoAction.LEAVE
    assert action(replace(beside, word=JobWord.QUEUED, times=2)) is JobAction.EXPLAIN
    explained = replace(beside, word=JobWord.QUEUED, times=3, explained=True)
    assert action(explained) is NoAction.LEAVE


# The table as a whole.

#: The least evidence with which each rule decides.
CASES: dict[str, AnyEvidence] = {
    "pod-ended": replace(BUSY, pod=pod(terminal=True)),
    "pod-gone": replace(BUSY, pod=PodSeen(sighting=Sighting.ABSENT, absent_reads=3)),
    "never-created": replace(
        BOOTING, since=300, pod_seen=False, pod=PodSeen(sighting=Sighting.ABSENT, absent_reads=3)
    ),
    "runner-ended": replace(
        BUSY, pod=pod(Container.TERMINATED, unchanged=600), record=RecordWord.OFFLINE
    ),
    "forced": replace(FENCED, forced=True, log=LogWord.JOB, record=RecordWord.BUSY),
    "account-removed": replace(BUSY, removals=3, since=121 * 3600.0),
    "record-removed": replace(BUSY, record=RecordWord.ABSENT, since=121 * 3600.0),
    "hint-moved-on": replace(RUNNING, hinted=JobWord.COMPLETED),
    "missed-in-progress": replace(RUNNING, log=LogWord.JOB),
    "busy": BUSY,
    "executing": replace(IDLE, job_marked=True),
    "retiring": FENCED,
    "too-many-suspects": replace(
        RUNNING, acknowledged=60, pod=pod(up=60), record=RecordWord.OFFLINE, suspects=3, recent=6
    ),
    "suspect": replace(RUNNING, acknowledged=60, pod=pod(up=60), record=RecordWord.OFFLINE),
    "unrecognised": replace(IDLE, pod=pod(Container.UNRECOGNISED)),
    "started-unclaimed": replace(
        IDLE, since=120, pod=pod(), record=RecordWord.ABSENT, log=LogWord.NO_JOB
    ),
    "started-unexplained": replace(IDLE, since=1, pod=pod()),
    "leaving": replace(IDLE, pod=pod(Container.WAITING, deletion_requested=True)),
    "unschedulable": replace(
        BOOTING, pod=pod(Container.NO_STATUSES, unschedulable="no node", unchanged=300)
    ),
    "never-started": replace(BOOTING, pod=pod(Container.WAITING, unchanged=300)),
    "silent": replace(IDLE, heard=120),
    "claim-in-doubt": replace(
        CLAIMED,
        shape="single",
        since=300,
        mint_overdue=True,
        pod=pod(),
        record=RecordWord.OFFLINE,
        log=LogWord.NO_JOB,
    ),
    "stale-claim": replace(CLAIMED, since=300, mint_overdue=True),
    "undelivered": replace(ARMED, heard=120),
    "waiting-container": replace(RUNNING, acknowledged=180, suspect=1, pod=pod(Container.WAITING)),
    "never-registered": replace(NEVER_REGISTERED, pod=pod(up=300), hinted=JobWord.QUEUED),
    "zombie": replace(
        STUCK, pod=pod(up=120), record=RecordWord.ABSENT, log=LogWord.NO_JOB, hint=None
    ),
    "surplus": replace(
        STUCK, pod=pod(up=180), record=RecordWord.IDLE, log=LogWord.NO_JOB, surplus=True
    ),
    "no-job-in-time": replace(STUCK, pod=pod(up=900), record=RecordWord.IDLE, log=LogWord.NO_JOB),
    "lingering": replace(DONE, since=600),
    "ran-after-all": replace(ENDED, hint=JobState.QUEUED, hinted=JobWord.COMPLETED),
    "exit-without-job": replace(ENDED, since=120, record=RecordWord.OFFLINE),
    "ended-unexplained": replace(ENDED, since=120, record=RecordWord.ABSENT),
    "concluded": replace(ORPHAN, pod=pod(terminal=True), concluded=True),
    "ended-without-row": replace(ORPHAN, pod=pod(terminal=True)),
    "runner-ended-without-row": replace(
        ORPHAN,
        pod=pod(Container.TERMINATED, unchanged=600),
        record=RecordWord.OFFLINE,
        log=LogWord.JOB,
    ),
    "executing-without-row": replace(ORPHAN, log=LogWord.JOB),
    "unrecognised-without-row": replace(ORPHAN, pod=pod(Container.UNRECOGNISED)),
    "pod-without-row": replace(
        ORPHAN, pod=pod(Container.WAITING, age=300), record=RecordWord.ABSENT
    ),
    "protected": replace(ORPHAN, pod=pod(age=300), record=RecordWord.UNREADABLE),
    "missed-completion": replace(QUEUED, word=JobWord.COMPLETED),
    "job-unknown": JobEvidence(state=None, word=JobWord.QUEUED),
    "missed-start": replace(QUEUED, word=JobWord.IN_PROGRESS),
    "runner-lost": JobEvidence(
        state=JobState.IN_PROGRESS, executor=ExecutorState.GONE, word=JobWord.QUEUED
    ),
    "given-back": JobEvidence(
        state=JobState.IN_PROGRESS,
        since=900,
        executor=ExecutorState.FOREIGN,
        word=JobWord.QUEUED,
        times=2,
    ),
    "repository-deleted": JobEvidence(
        state=JobState.IN_PROGRESS,
        executor=ExecutorState.GONE,
        word=JobWord.REPOSITORY_GONE,
        times=3,
    ),
    "missed-completion-perhaps": JobEvidence(
        state=JobState.IN_PROGRESS, since=3600, executor=ExecutorState.ALIVE
    ),
    "still-waiting": replace(QUEUED, state=JobState.WAITING, since=900),
    "job-expired": replace(QUEUED, queued=86_400, word=JobWord.ABSENT),
    "job-end": replace(QUEUED, queued=2 * 86_400, word=JobWord.UNREADABLE),
    "job-deleted": replace(QUEUED, word=JobWord.ABSENT, times=3),
    "stale-queued": replace(QUEUED, supply_grace=True, word=JobWord.QUEUED),
    "unassigned": replace(QUEUED, idle_beside=60, word=JobWord.QUEUED, times=2),
    "waits-beside-supply": replace(QUEUED, since=60, supply=True, word=JobWord.QUEUED),
}

#: Thresholds that are the other end of a case above, each with a case of its own.
OTHER_ENDS: dict[tuple[str, str], AnyEvidence] = {
    ("suspect", "start"): replace(RUNNING, acknowledged=30, pod=pod(Container.WAITING)),
    ("never-started", "pull"): replace(
        BOOTING, pod=pod(Container.WAITING, poller=Container.PULLING, unchanged=900)
    ),
    ("waiting-container", "pull"): replace(
        STUCK, acknowledged=900, pod=pod(Container.PULLING, unchanged=900)
    ),
}


def test_a_node_whose_clock_is_behind_makes_no_runner_late() -> None:
    """I82: by its node's clock it has been up since before it got its JIT."""
    fresh = replace(RUNNING, acknowledged=5, pod=pod(up=900), record=RecordWord.OFFLINE)
    assert verdict(fresh).action is NoAction.LEAVE


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_decides_something(rule: Rule[Any, Any]) -> None:
    assert verdict(CASES[rule.name]).rule == rule.name


@pytest.mark.parametrize(
    ("rule", "threshold"),
    [(rule.name, threshold) for rule in RULES for threshold in rule.thresholds],
)
def test_every_threshold_a_rule_names_has_effect(rule: str, threshold: str) -> None:
    """Just reached, it holds; a little higher, it does not."""
    evidence = OTHER_ENDS.get((rule, threshold), CASES[rule])
    assert verdict(evidence).rule == rule
    if (rule, threshold) in UPPER:
        changed: dict[str, Any] = {threshold: 0.0}
    else:
        changed = {threshold: getattr(USUAL, threshold) + 1}
    assert verdict(evidence, replace(USUAL, **changed)).rule != rule


#: Here a threshold is where a rule stops.
UPPER = {("exit-without-job", "verdict"), ("ended-unexplained", "verdict")}


@pytest.mark.parametrize("field", fields(Thresholds), ids=lambda field: field.name)
def test_every_threshold_is_used_and_gives_its_reason(field: Any) -> None:
    named = {name for rule in RULES for name in rule.thresholds}
    assert field.name in named | {"fresh", "recheck"}
    assert len(field.metadata["reason"]) > 20


def test_an_answer_about_a_job_is_believed_for_a_while() -> None:
    beside = replace(QUEUED, supply=True, word=JobWord.QUEUED, word_age=60)
    assert verdict(beside).question is None
    assert verdict(beside, replace(USUAL, recheck=59.0)).question is Question.JOB


def test_names_are_given_once_and_every_rule_has_its_words() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.done
        assert rule.invariants
        assert "{" not in rule.seen_with(USUAL)
        assert (rule.retired is not None) == (
            rule.action is RunnerAction.FENCE
            or rule.name in ("pod-without-row", "runner-ended-without-row")
        )


def test_the_sentence_tells_the_numbers_in_force_and_what_was_seen() -> None:
    found = verdict(replace(IDLE, heard=500, since=7200), replace(USUAL, silent=480.0))
    assert found.why == (
        "It is idle, and its poller was not heard for 8 min while others were answered "
        "(idle for 2 h, its container waiting)."
    )


# All that can be seen. Ages lie on both sides of every threshold that the field is compared with.

YES_OR_NO = (False, True)
POD_VALUES: dict[str, Any] = {
    "pod.sighting": tuple(Sighting),
    "pod.absent_reads": (2, 3),
    "pod.terminal": YES_OR_NO,
    "pod.deletion_requested": YES_OR_NO,
    "pod.age": (0.0, 400.0),
    "pod.unchanged": (0.0, 400.0, 700.0, 1000.0),
    "pod.unschedulable": (None, "no node"),
    "pod.poller": tuple(Container),
    "pod.runner": tuple(Container),
    "pod.up": (None, 0.0, 90.0, 150.0, 200.0, 400.0, 1000.0),
}
ANSWERS: dict[str, Any] = {
    "record": tuple(RecordWord),
    # An old answer is no answer: see above. Here all are fresh.
    "record_age": (0.0,),
    "log": tuple(LogWord),
    "log_age": (0.0,),
    "hint": (None, *JobState),
    "hinted": tuple(JobWord),
    "hinted_on": tuple(On),
    "hinted_age": (0.0,),
}
RUNNER_VALUES: dict[str, Any] = {
    **POD_VALUES,
    **ANSWERS,
    "state": tuple(state for state in S if state is not S.GONE),
    "since": (0.0, 45.0, 90.0, 150.0, 250.0, 400.0, 700.0, 1000.0),
    "shape": ("gated", "single"),
    "pod_seen": YES_OR_NO,
    "named": YES_OR_NO,
    "heard": (None, 0.0, 90.0, 150.0, 250.0, 400.0, 1000.0),
    "others_answered": YES_OR_NO,
    "acknowledged": (None, 0.0, 45.0, 90.0, 150.0, 200.0, 400.0, 1000.0),
    "job_marked": YES_OR_NO,
    "job": (None, *JobState),
    "mint_overdue": YES_OR_NO,
    "suspect": (None, 1.0),
    "deregistered": (None, 1.0),
    "proved": (None, 1.0),
    # The two rules that these are for have tests of their own.
    "forced": (False,),
    "removals": (0,),
    "surplus": YES_OR_NO,
    "suspects": (0, 3),
    "recent": (6, 7),
}
OTHER_VALUES: dict[str, Any] = {
    **POD_VALUES,
    **ANSWERS,
    "since": (0.0, 90.0, 150.0, 4000.0),
    "shape": ("gated", "single"),
    "concluded": YES_OR_NO,
    "stamped": YES_OR_NO,
    "settled": YES_OR_NO,
    "says_it_had_a_job": YES_OR_NO,
    "state": (None, *JobState),
    "queued": (0.0, 100_000.0, 200_000.0),
    "executor": tuple(ExecutorState),
    "supply": YES_OR_NO,
    "idle_beside": (None, 0.0, 90.0),
    "supply_grace": YES_OR_NO,
    "explained": YES_OR_NO,
    "word": tuple(JobWord),
    "word_age": (0.0, 90.0, 4000.0),
    "times": (1, 2, 3),
}
runner = undecided(Evidence, nested={"pod": PodSeen})
rowless = undecided(PodEvidence, nested={"pod": PodSeen})
job = undecided(JobEvidence)
ended = undecided(EndedEvidence)
RUNNER_RULES = [rule for rule in RULES if rule.subject is Subject.RUNNER]


def decided(evidence: AnyEvidence) -> AnyAction | NoAction:
    rule, question = decide(evidence, USUAL)
    if question is not None:
        return NoAction.ASK
    return NoAction.LEAVE if rule is None else rule.action


def acts(rule: Rule[Any, Any]) -> Callable[[Any], bool]:
    return lambda e: rule.holds(e, USUAL) and rule.lacks(e, USUAL) is None


def lives(e: Evidence | PodEvidence) -> bool:
    """A container that may be at work now."""
    return (
        e.pod.sighting is Sighting.PRESENT
        and not e.pod.terminal
        and e.pod.runner in (Container.STARTED, Container.LAST_TERMINATED, Container.UNRECOGNISED)
    )


def a_party_says_it_executes(e: Evidence) -> bool:
    """Defined here and not by the table: GitHub, the log, the sidecar, an event or the row says so. It
    no longer executes when GitHub has reported its job's completion."""
    if e.record is RecordWord.BUSY and e.record_age <= USUAL.fresh:
        return True
    if e.state is S.BUSY and e.job is not JobState.COMPLETED:
        return True
    over = e.state is S.DONE or e.job is JobState.COMPLETED
    if not over and (e.job_marked or e.job is JobState.IN_PROGRESS or e.log is LogWord.JOB):
        return True
    return (
        e.hint is not None
        and e.hinted is JobWord.IN_PROGRESS
        and e.hinted_on is On.THIS
        and e.hinted_age <= USUAL.fresh
    )


def test_no_live_container_that_executes_by_anyones_word_is_ended() -> None:
    """The whole product. I22, I65"""

    def ending(e: Evidence) -> AnyAction | NoAction | None:
        return decided(e) if lives(e) and a_party_says_it_executes(e) else None

    found = {end for _, end in explore(runner, RUNNER_VALUES, ending)}
    assert found == {
        None,
        RunnerAction.OCCUPY,
        RunnerAction.PROTECT,
        NoAction.LEAVE,
        RunnerAction.APPLY,
    }


#: The two exceptions: what was ended by force, and what an account left behind that removed the App.
EXCEPTIONS: dict[str, Any] = {
    **RUNNER_VALUES,
    "forced": YES_OR_NO,
    "removals": (0, 2, 3),
    "since": (0.0, 1000.0, LONG, LONG + 3600.0),
    "acknowledged": (None, 0.0, 1000.0, LONG, LONG + 3600.0),
}


@pytest.mark.parametrize(
    "rule",
    [rule for rule in RUNNER_RULES if rule.action is RunnerAction.FORCE],
    ids=lambda rule: rule.name,
)
def test_nothing_is_ended_by_force_within_five_days(rule: Rule[Any, Any]) -> None:
    """The whole product: by force only what has held its JIT for longer than any job, in an account
    whose removal was confirmed three times or without a record at GitHub. I27, I29"""
    forced = [values for values, yes in explore(runner, EXCEPTIONS, acts(rule)) if yes]
    assert forced
    for values in forced:
        by_state = values["state"] is S.BUSY or values["acknowledged"] is None
        held = values["since"] if by_state else values["acknowledged"]
        assert values.get("removals") == 3 or values.get("record") is RecordWord.ABSENT
        assert values["named"]
        assert held >= (5 * 24 + 1) * 3600
        assert values["pod.sighting"] is Sighting.PRESENT
        assert not values["pod.terminal"]


@pytest.mark.parametrize("removed", [{"removals": 3}, {"record": RecordWord.ABSENT}])
def test_a_job_that_began_days_after_its_jit_has_its_five_days(removed: dict[str, Any]) -> None:
    """I27, I89: while a runner of an unknown program waits for a job, no rule retires it."""
    late = replace(BUSY, since=3600.0, acknowledged=200 * 3600.0, **removed)
    assert action(late) is NoAction.LEAVE
    assert action(replace(late, since=121 * 3600.0)) is RunnerAction.FORCE


def test_nothing_brings_back_what_was_ended_by_force() -> None:
    """The whole product: no rule makes it busy, protects it or leaves it."""

    given = {"state": S.RETIRING, "forced": True}
    found = {end for _, end in explore(runner, EXCEPTIONS, decided, given=given)}
    assert found == {RunnerAction.RETIRE, RunnerAction.CONCLUDE}


def test_nothing_that_may_have_run_is_fenced_unless_github_and_its_log_agree() -> None:
    """Rule by rule, for then each may be read without those before it; the whole product. I65"""
    fences = [rule for rule in RUNNER_RULES if rule.action is RunnerAction.FENCE]
    for rule in fences:
        fenced = [values for values, yes in explore(runner, RUNNER_VALUES, acts(rule)) if yes]
        assert fenced
        for values in fenced:
            assert _agreed(values), (rule.name, values)


def _agreed(values: Values) -> bool:
    if values["state"] is S.DONE or values.get("pod.runner") in NEVER_RAN:
        return True
    not_busy = values["record"] in (RecordWord.ABSENT, RecordWord.OFFLINE, RecordWord.IDLE)
    dead = values.get("pod.runner") is Container.TERMINATED
    return (
        not_busy
        and values["record_age"] <= USUAL.fresh
        and (dead or (values["log"] is LogWord.NO_JOB and values["log_age"] <= USUAL.fresh))
    )


def test_only_what_ended_or_is_proven_absent_is_concluded() -> None:
    """The whole product. I29"""
    for rule in (rule for rule in RUNNER_RULES if rule.action is RunnerAction.CONCLUDE):
        concluded = [v for v, yes in explore(runner, RUNNER_VALUES, acts(rule)) if yes]
        assert concluded
        for values in concluded:
            assert (values["pod.sighting"] is Sighting.PRESENT and values["pod.terminal"]) or (
                values["pod.sighting"] is Sighting.ABSENT and values["pod.absent_reads"] >= 3
            )


def test_no_pod_of_an_unrecognised_shape_is_ended() -> None:
    """I34"""
    given = {
        "pod.sighting": Sighting.PRESENT,
        "pod.terminal": False,
        "pod.runner": Container.UNRECOGNISED,
        "hint": None,
        "job": None,
    }
    found = {end for _, end in explore(runner, RUNNER_VALUES, decided, given=given)}
    assert not found & (ENDS - {RunnerAction.RETIRE})
    assert RunnerAction.PROTECT in found


def test_every_rule_has_an_answer_for_every_combination() -> None:
    """A table whose first matching rule decides lacks an answer only where a rule fails on its
    evidence. So each rule is evaluated for all possible evidence."""
    makers = {
        Subject.RUNNER: (runner, RUNNER_VALUES),
        "exception": (runner, EXCEPTIONS),
        Subject.ENDED: (ended, OTHER_VALUES),
        Subject.POD: (rowless, OTHER_VALUES),
        Subject.JOB: (job, OTHER_VALUES),
    }
    for rule in RULES:
        is_exception = rule.name in ("forced", "account-removed", "record-removed")
        make, values = makers["exception" if is_exception else rule.subject]
        ends = {end for _, end in explore(make, values, _answer_of(rule))}
        assert False in ends, rule.name
        assert True in ends or Question.JOB in ends, rule.name


def _answer_of(rule: Rule[Any, Any]) -> Callable[[Any], bool | Question]:
    def answer(e: Any) -> bool | Question:
        if not rule.holds(e, USUAL):
            return False
        lacking = rule.lacks(e, USUAL)
        return True if lacking is None else lacking.question

    return answer


@pytest.mark.slow
def test_a_runner_of_which_no_job_is_told_always_gets_an_answer() -> None:
    """The table as a whole, below the line of those who are said to execute a job."""
    values = {
        **RUNNER_VALUES,
        # Where one of the other two is missing, the age of the state stands for it.
        "since": (0.0, 150.0, 400.0, 700.0),
        "heard": (0.0, 90.0, 150.0),
        "acknowledged": (0.0, 45.0, 90.0, 150.0, 200.0, 400.0, 1000.0),
        "recent": (6,),
    }
    given = {"hint": None, "job": None, "job_marked": False}
    found = {end for _, end in explore(runner, values, decided, given=given)}
    assert found == {
        RunnerAction.CONCLUDE,
        RunnerAction.FENCE,
        RunnerAction.OCCUPY,
        NoAction.LEAVE,
        RunnerAction.PROTECT,
        RunnerAction.RETIRE,
        RunnerAction.ALARM,
        RunnerAction.SUSPECT,
        RunnerAction.RELEASE,
        NoAction.ASK,
    }


def test_no_pod_without_a_row_that_executes_by_anyones_word_is_adopted() -> None:
    """The whole product. I34, I70"""
    for values, end in _all(rowless):
        if end in ENDS and not values["pod.terminal"]:
            assert values["record"] not in (RecordWord.BUSY, RecordWord.UNREADABLE), values
            long_over = values.get("pod.unchanged", 0.0) >= USUAL.linger
            if values["pod.runner"] is Container.TERMINATED and long_over:
                continue
            if values["pod.runner"] in EVER_RAN:
                assert values["log"] is LogWord.NO_JOB, values
            assert values["pod.runner"] is not Container.UNRECOGNISED, values


def test_no_job_that_is_in_progress_by_anyones_word_is_completed_as_stale() -> None:
    """The whole product. I37"""
    for values, end in _all(job):
        if end is JobAction.STALE:
            gone = values["word"] is JobWord.REPOSITORY_GONE
            if gone and values.get("executor") is not ExecutorState.ALIVE:
                continue
            unapproved = values["state"] is JobState.WAITING and values["word"] is JobWord.ABSENT
            assert unapproved or values["state"] is JobState.QUEUED, values
            assert values["word"] is not JobWord.IN_PROGRESS, values
        if end in (JobAction.SERVE, JobAction.DEMOTE):
            assert values["word"] in (JobWord.QUEUED, JobWord.WAITING), values


def test_no_verdict_is_refined_without_githubs_word() -> None:
    """The whole product. I39, I68"""
    for values, end in _all(ended):
        if end is EndedAction.REFINE:
            assert values["record"] in (RecordWord.OFFLINE, RecordWord.IDLE), values
            assert not values["says_it_had_a_job"], values


def _all(make: Callable[[Values], Any]) -> Iterator[tuple[Values, AnyAction | NoAction]]:
    return explore(make, OTHER_VALUES, decided)


@pytest.mark.parametrize("shape", ["gated", "single"])
def test_nothing_is_done_about_a_runner_that_waits_and_is_heard(shape: str) -> None:
    """The whole product: recovery does not examine such runners (`RoundView.waits`)."""
    container = Container.STARTED if shape == "single" else Container.WAITING
    given = {
        "state": S.IDLE,
        "shape": shape,
        "heard": 70.0,
        "forced": False,
        "job_marked": False,
        "job": None,
        "hint": None,
        "record": RecordWord.NOT_ASKED,
        "log": LogWord.NOT_READ,
        "pod.sighting": Sighting.PRESENT,
        "pod.terminal": False,
        "pod.deletion_requested": False,
        "pod.unschedulable": None,
        "pod.poller": Container.STARTED,
        "pod.runner": container,
    }
    found = {end for _, end in explore(runner, RUNNER_VALUES, decided, given=given)}
    assert found == {NoAction.LEAVE}


@pytest.mark.parametrize("shape", ["gated", "single"])
@pytest.mark.parametrize(
    "job", [None, *(state for state in JobState if state is not JobState.COMPLETED)]
)
def test_nothing_is_done_about_a_runner_that_works(shape: str, job: JobState | None) -> None:
    """The whole product: recovery does not examine such runners (`Gatherer.to_examine`)."""
    given = {
        "state": S.BUSY,
        "shape": shape,
        "forced": False,
        "removals": 0,
        "job": job,
        "record": RecordWord.NOT_ASKED,
        "log": LogWord.NOT_READ,
        "hinted": JobWord.NOT_ASKED,
        "pod.sighting": Sighting.PRESENT,
        "pod.terminal": False,
        "pod.deletion_requested": False,
        "pod.runner": Container.STARTED,
    }
    ages = {"since": (0.0, 1000.0, LONG), "acknowledged": (None, 0.0, 1000.0, LONG)}
    found = {end for _, end in explore(runner, {**RUNNER_VALUES, **ages}, decided, given=given)}
    assert found == {NoAction.LEAVE}
