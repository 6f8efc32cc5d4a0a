"""The life of a runner, as data."""

from __future__ import annotations

from paddock.domain.states import RUNNER_TRANSITIONS, JobState, RunnerState, legal

S = RunnerState


def test_gone_is_final() -> None:
    assert not [after for before, after in RUNNER_TRANSITIONS if before is S.GONE]


def test_every_live_state_can_end_and_can_be_fenced() -> None:
    for state in set(S) - {S.GONE}:
        assert legal(state, S.GONE)
        assert legal(state, S.RETIRING) or state is S.RETIRING


def test_the_only_ways_out_of_retiring_are_busy_done_and_gone() -> None:
    assert {after for before, after in RUNNER_TRANSITIONS if before is S.RETIRING} == {
        S.RETIRING,  # by force, once
        S.BUSY,
        S.DONE,
        S.GONE,
    }


def test_a_claim_is_given_back_only_before_its_jit_exists() -> None:
    """S1's trigger: nothing releases a claim after the JIT was delivered."""
    assert {before for before, after in RUNNER_TRANSITIONS if after is S.IDLE} == {
        S.BOOTING,
        S.CLAIMED,
    }


def test_the_states_of_a_job_are_ordered() -> None:
    assert sorted(JobState, key=lambda state: state.rank) == [
        JobState.WAITING,
        JobState.QUEUED,
        JobState.IN_PROGRESS,
        JobState.COMPLETED,
    ]
