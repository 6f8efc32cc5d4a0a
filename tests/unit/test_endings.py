"""Every row of the table of endings by name, and the whole table over all possible evidence."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from paddock.domain.pods.fingerprints import Certainty, Fingerprint
from paddock.domain.runners.dialects import RunnerProgram
from paddock.domain.runners.endings import (
    RULES,
    Classified,
    Ending,
    EndingEvidence,
    Retired,
    classify,
    says_it_had_a_job,
)

CLEAN_CODES = [0, 100, 101, 102, 103, 104]
#: A code for every rule that looks at one, and for those that none does.
CODES = [*CLEAN_CODES, 1, 2, 5, 7, 105, 128, 134, 137, 139, 143]
REASONS = ["Completed", "Error", "OOMKilled", "ContainerStatusUnknown", "StartError"]

# No order: each row must win with the least evidence that could make its case.
JOB = EndingEvidence(
    job=Certainty.YES,
    lost_communication=Certainty.NO,
    started=Certainty.YES,
    registered=Certainty.YES,
)
IDLE = replace(JOB, job=Certainty.NO, started=Certainty.NO, registered=Certainty.NO)


def exited(code: int, reason: str = "Error", signal: int | None = None) -> Fingerprint:
    return Fingerprint(exit_code=code, signal=signal, reason=reason)


def ending(evidence: EndingEvidence) -> Ending:
    return classify(evidence).ending


@pytest.mark.parametrize("code", CLEAN_CODES)
def test_a_clean_exit_after_a_job_is_completed(code: int) -> None:
    """A failing test suite is 0 or 102: not abnormal."""
    assert ending(replace(JOB, fingerprint=exited(code, "Completed"))) is Ending.COMPLETED


@pytest.mark.parametrize("code", CLEAN_CODES)
def test_a_clean_exit_that_github_calls_lost_is_a_failed_handshake(code: int) -> None:
    lost = replace(JOB, fingerprint=exited(code, "Completed"), lost_communication=Certainty.YES)
    assert ending(lost) is Ending.HANDSHAKE_FAILED


def test_an_abandoned_job_is_a_failed_handshake_too() -> None:
    assert ending(replace(JOB, fingerprint=exited(105))) is Ending.HANDSHAKE_FAILED


def test_137_with_oom_killed_is_the_hosts_oom() -> None:
    assert ending(replace(JOB, fingerprint=exited(137, "OOMKilled"))) is Ending.HOST_OOM


def test_an_oom_kill_of_the_worker_is_the_hosts_oom_although_the_listener_exits_cleanly() -> None:
    assert ending(replace(JOB, fingerprint=exited(0, "OOMKilled"))) is Ending.HOST_OOM


@pytest.mark.parametrize("reason", ["Error", "", "Strange"])
def test_137_with_any_other_reason_is_the_guests_oom_or_a_kill(reason: str) -> None:
    killed = replace(JOB, fingerprint=exited(137, reason))
    assert ending(killed) is Ending.GUEST_OOM_OR_KILL


@pytest.mark.parametrize("end", [exited(143), exited(0, signal=15), exited(1, signal=15)])
def test_sigterm_is_terminated(end: Fingerprint) -> None:
    assert ending(replace(JOB, fingerprint=end)) is Ending.TERMINATED


@pytest.mark.parametrize("code", [0, 1, 103, 137, 143])
def test_an_end_after_a_client_asked_for_the_deletion_is_terminated(code: int) -> None:
    """A runner that is told to stop exits with 0; one that is slow is killed with 137."""
    assert ending(replace(JOB, fingerprint=exited(code), deleted=True)) is Ending.TERMINATED


def test_a_job_that_succeeded_in_spite_of_a_deletion_is_completed() -> None:
    survived = replace(JOB, fingerprint=exited(100, "Completed"), deleted=True)
    assert ending(survived) is Ending.COMPLETED


@pytest.mark.parametrize("code", [1, 2, 3, 5, 134, 139, 255])
def test_any_other_exit_code_is_a_crash(code: int) -> None:
    assert ending(replace(JOB, fingerprint=exited(code))) is Ending.CRASH


def test_7_is_an_outdated_runner() -> None:
    assert ending(replace(IDLE, fingerprint=exited(7))) is Ending.RUNNER_OUTDATED


@pytest.mark.parametrize(
    "end", [None, exited(0), exited(137), exited(137, "ContainerStatusUnknown")]
)
def test_an_evicted_pod_is_evicted_even_if_its_containers_disagree(end: Fingerprint | None) -> None:
    assert ending(replace(JOB, fingerprint=end, pod_reason="Evicted")) is Ending.EVICTED


@pytest.mark.parametrize("reason", ["NodeLost", "Terminated", "ContainerStatusUnknown"])
def test_a_pod_whose_node_went_away_is_node_lost(reason: str) -> None:
    assert ending(replace(JOB, pod_reason=reason)) is Ending.NODE_LOST


def test_a_container_status_unknown_is_node_lost_not_a_kill() -> None:
    lost = replace(JOB, fingerprint=exited(137, "ContainerStatusUnknown"))
    assert ending(lost) is Ending.NODE_LOST


@pytest.mark.parametrize("deleted", [False, True])
def test_a_pod_that_vanished_before_anyone_saw_it_end_is_hard_deleted(deleted: bool) -> None:
    assert ending(replace(JOB, vanished=True, deleted=deleted)) is Ending.HARD_DELETED


def test_a_pod_that_ended_before_its_runner_started_never_started() -> None:
    assert ending(replace(IDLE, started=Certainty.NO)) is Ending.NEVER_STARTED


def test_a_container_that_could_not_be_executed_never_started() -> None:
    """I51: such a node must not look like one whose runners crash."""
    broken = replace(IDLE, fingerprint=exited(128, "StartError"), started=Certainty.YES)
    assert ending(broken) is Ending.NEVER_STARTED


def test_a_stuck_pod_whose_runner_did_not_start_never_started() -> None:
    assert ending(replace(IDLE, retired=Retired.GIVEN_UP)) is Ending.NEVER_STARTED


def test_a_stuck_runner_that_github_never_saw_never_registered() -> None:
    stuck = replace(IDLE, retired=Retired.GIVEN_UP, started=Certainty.YES, fingerprint=exited(143))
    assert ending(stuck) is Ending.NEVER_REGISTERED


def test_a_stuck_runner_that_was_online_without_a_job_never_ran() -> None:
    stuck = replace(JOB, job=Certainty.NO, retired=Retired.GIVEN_UP, fingerprint=exited(143))
    assert ending(stuck) is Ending.NEVER_RAN


def test_an_exit_code_is_read_in_the_dialect_of_its_program() -> None:
    """The codes of actions/runner say nothing where github-act-runner ended."""
    for code in (7, 100, 102, 105):
        other = replace(exited(code), program=RunnerProgram.ACT_RUNNER)
        assert ending(replace(JOB, fingerprint=other)) is Ending.CRASH
        assert not says_it_had_a_job(other)
    panic = replace(exited(2), program=RunnerProgram.ACT_RUNNER)
    assert "panicked" in classify(replace(JOB, fingerprint=panic)).why
    done = replace(exited(0), program=RunnerProgram.ACT_RUNNER)
    assert ending(replace(JOB, fingerprint=done)) is Ending.COMPLETED


def test_exit_0_without_a_job_is_never_ran() -> None:
    """I39"""
    idle = replace(JOB, job=Certainty.NO, fingerprint=exited(0, "Completed"))
    assert ending(idle) is Ending.NEVER_RAN


def test_exit_0_is_completed_until_github_was_asked() -> None:
    """I68"""
    unasked = replace(JOB, job=Certainty.UNKNOWN, fingerprint=exited(0, "Completed"))
    assert ending(unasked) is Ending.COMPLETED
    assert not classify(unasked).settled


def test_a_runner_that_reports_its_jobs_result_did_run_even_if_github_disagrees() -> None:
    """I68"""
    contradicted = replace(JOB, job=Certainty.NO, fingerprint=exited(102, "Completed"))
    assert ending(contradicted) is Ending.COMPLETED


@pytest.mark.parametrize("end", [None, exited(0), exited(137), exited(143)])
def test_an_idle_pod_that_was_asked_to_go_left(end: Fingerprint | None) -> None:
    assert ending(replace(IDLE, retired=Retired.UNWANTED, fingerprint=end)) is Ending.LEFT


@pytest.mark.parametrize("end", [None, exited(0), exited(137), exited(143)])
def test_a_runner_that_no_job_needed_is_surplus(end: Fingerprint | None) -> None:
    surplus = replace(JOB, job=Certainty.NO, retired=Retired.SURPLUS, fingerprint=end)
    assert ending(surplus) is Ending.SURPLUS


@pytest.mark.parametrize("retired", [Retired.UNWANTED, Retired.SURPLUS, Retired.GIVEN_UP])
@pytest.mark.parametrize("code", [0, 137, 143])
def test_a_job_killed_by_our_own_retirement_does_not_pass_for_a_tidy_end(
    retired: Retired, code: int
) -> None:
    """I65"""
    killed = replace(JOB, retired=retired, fingerprint=exited(code))
    assert ending(killed) is Ending.TERMINATED


def test_a_retired_runner_that_speaks_of_a_job_is_no_surplus() -> None:
    """I65"""
    deceived = replace(JOB, job=Certainty.NO, retired=Retired.SURPLUS, fingerprint=exited(103))
    assert ending(deceived) is Ending.TERMINATED


def test_a_runner_that_lingered_after_its_job_is_completed_if_it_still_exits_cleanly() -> None:
    lingered = replace(JOB, retired=Retired.FINISHED)
    assert ending(replace(lingered, fingerprint=exited(0))) is Ending.COMPLETED
    assert ending(replace(lingered, fingerprint=exited(137))) is Ending.TERMINATED


def test_the_kernels_word_outranks_the_kubelets() -> None:
    both = replace(JOB, fingerprint=exited(137, "OOMKilled"), pod_reason="Evicted")
    assert ending(both) is Ending.HOST_OOM


def test_a_pod_we_gave_up_is_not_called_hard_deleted_when_it_is_gone() -> None:
    gone = replace(IDLE, retired=Retired.GIVEN_UP, vanished=True)
    assert ending(gone) is Ending.NEVER_STARTED
    assert ending(replace(gone, started=Certainty.YES)) is Ending.NEVER_REGISTERED
    assert (
        ending(replace(gone, started=Certainty.YES, registered=Certainty.YES)) is Ending.NEVER_RAN
    )


def test_a_job_abandoned_because_of_a_deletion_is_terminated() -> None:
    assert ending(replace(JOB, fingerprint=exited(105), deleted=True)) is Ending.TERMINATED


def test_lost_communication_outranks_an_answer_that_there_was_no_job() -> None:
    """GitHub cannot have lost a job that never was: the other answer came too early (I68)."""
    both = replace(JOB, fingerprint=exited(0), job=Certainty.NO, lost_communication=Certainty.YES)
    assert ending(both) is Ending.HANDSHAKE_FAILED


def test_a_container_that_could_not_be_executed_outranks_our_own_retirement() -> None:
    """I51"""
    broken = replace(IDLE, fingerprint=exited(128, "StartError"), retired=Retired.UNWANTED)
    assert ending(broken) is Ending.NEVER_STARTED


def test_an_exit_code_proves_that_the_runner_started() -> None:
    assert ending(replace(IDLE, fingerprint=exited(139))) is Ending.CRASH


def test_an_end_without_evidence_is_unknown_and_abnormal() -> None:
    """I58"""
    assert ending(EndingEvidence()) is Ending.UNKNOWN
    assert Ending.UNKNOWN.abnormal


def test_only_endings_that_were_meant_are_normal() -> None:
    normal = {ending for ending in Ending if not ending.abnormal}
    assert normal == {Ending.COMPLETED, Ending.LEFT, Ending.SURPLUS}


@pytest.mark.parametrize("each", Ending)
def test_every_ending_has_a_meaning(each: Ending) -> None:
    assert each.meaning.endswith(".")


@pytest.mark.parametrize("each", Ending)
def test_every_ending_has_a_rule_that_leads_to_it(each: Ending) -> None:
    assert each in {rule.ending for rule in RULES}


def test_the_sentence_names_what_was_seen() -> None:
    found = classify(replace(JOB, fingerprint=exited(137, "OOMKilled"), pod_reason="Odd"))
    assert found.why == (
        "Its container reached its memory limit and the node's kernel killed in it "
        "(exit code 137: SIGKILL, reason OOMKilled; Pod Odd)."
    )
    assert classify(EndingEvidence()).why == "Nothing was seen that tells how it ended."


@pytest.mark.parametrize(
    "settled",
    [
        replace(JOB, fingerprint=exited(0)),
        EndingEvidence(fingerprint=exited(139)),
        EndingEvidence(fingerprint=exited(137, "OOMKilled")),
        EndingEvidence(vanished=True),
    ],
)
def test_an_ending_that_no_answer_could_change_is_settled(settled: EndingEvidence) -> None:
    assert classify(settled).settled


def test_a_completed_runner_may_still_turn_out_to_have_been_lost() -> None:
    unasked = replace(JOB, fingerprint=exited(0), lost_communication=Certainty.UNKNOWN)
    assert not classify(unasked).settled


def everything() -> Iterator[EndingEvidence]:
    """The product of all possible evidence."""
    fingerprints = [None] + [
        exited(code, reason, signal)
        for code, reason, signal in itertools.product(CODES, REASONS, (None, 9, 15))
    ]
    product = itertools.product(
        fingerprints,
        ("", "Evicted", "NodeLost", "Strange"),
        (False, True),
        (False, True),
        (None, *Retired),
        Certainty,
        (Certainty.NO, Certainty.YES),
        (Certainty.NO, Certainty.UNKNOWN),
        (Certainty.NO, Certainty.YES),
    )
    for end, reason, vanished, deleted, retired, job, lost, started, registered in product:
        yield EndingEvidence(
            fingerprint=end,
            pod_reason=reason,
            vanished=vanished,
            deleted=deleted,
            retired=retired,
            job=job,
            lost_communication=lost,
            started=started,
            registered=registered,
        )


def clean(end: Fingerprint | None) -> bool:
    return end is not None and end.signal is None and end.exit_code in CLEAN_CODES


def test_the_table_as_a_whole() -> None:
    """In one pass, for the product has half a million rows. I39, I58"""
    reached: set[str] = set()
    for evidence in everything():
        rule = next(rule for rule in RULES if rule.holds(evidence))
        reached.add(rule.name)
        end, found = evidence.fingerprint, rule.ending
        if found is Ending.COMPLETED:
            assert clean(end), evidence
            assert evidence.lost_communication is not Certainty.YES, evidence
        if found is Ending.NEVER_RAN:
            assert evidence.job is Certainty.NO, evidence
        if not found.abnormal and not clean(end):
            assert evidence.retired is not None, evidence
            assert evidence.job is Certainty.NO, evidence
        if found is Ending.HARD_DELETED:
            assert evidence.vanished, evidence
            assert end is None, evidence
        if found is Ending.UNKNOWN:
            assert end is None, evidence
        if evidence.job is Certainty.YES:
            assert found not in (Ending.LEFT, Ending.SURPLUS, Ending.NEVER_REGISTERED), evidence
    assert reached == {rule.name for rule in RULES}


def test_a_classification_names_the_rule_that_decided() -> None:
    found = classify(replace(JOB, fingerprint=exited(139)))
    assert found == Classified(
        ending=Ending.CRASH,
        rule="failed",
        why="Its process failed (exit code 139: SIGSEGV).",
        settled=True,
    )
