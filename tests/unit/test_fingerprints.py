"""What a container's status proves about its runner, in Kubernetes' own JSON."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from paddock.domain.pods.fingerprints import (
    Certainty,
    ContainerState,
    ContainerStatus,
    Fingerprint,
    Running,
    Source,
    Terminated,
    describe_exit,
    ever_started,
    fingerprint,
)

TERMINATED = (
    '{"terminated": {"exitCode": 137, "reason": "Error", "containerID": "containerd://1",'
    ' "startedAt": "2026-06-06T21:30:14Z", "finishedAt": "2026-06-06T21:35:06Z"}}'
)
WAITING = '{"waiting": {"reason": "PodInitializing"}}'
RUNNING = '{"running": {"startedAt": "2026-06-06T21:30:14Z"}}'


def status(
    name: str = "runner", state: str = "{}", last: str = "{}", started: str = "false"
) -> ContainerStatus:
    """As the kube fleet decodes it, fields we do not know included."""
    return msgspec.json.decode(
        f'{{"name": "{name}", "state": {state}, "lastState": {last}, "started": {started},'
        ' "ready": false, "restartCount": 0, "image": "runner:1"}',
        type=ContainerStatus,
    )


def test_a_terminated_runner_leaves_its_fingerprint() -> None:
    assert fingerprint([status("vitals", RUNNING), status(state=TERMINATED)]) == Fingerprint(
        exit_code=137,
        reason="Error",
        finished_at=datetime(2026, 6, 6, 21, 35, 6, tzinfo=UTC),
        source=Source.STATE,
    )


def test_the_last_state_speaks_when_the_present_one_does_not() -> None:
    found = fingerprint([status(state=WAITING, last=TERMINATED)])
    assert found is not None
    assert (found.exit_code, found.source) == (137, Source.LAST_STATE)


def test_the_present_state_outranks_the_last() -> None:
    now = ContainerState(terminated=Terminated(exit_code=0, reason="Completed"))
    last = ContainerState(terminated=Terminated(exit_code=1))
    found = fingerprint([ContainerStatus(name="runner", state=now, last_state=last)])
    assert found == Fingerprint(exit_code=0, reason="Completed")


def test_a_signal_is_kept_and_its_absence_is_not_signal_zero() -> None:
    by_signal, without = (
        fingerprint([status(state=f'{{"terminated": {{"exitCode": 0, "signal": {number}}}}}')])
        for number in (15, 0)
    )
    assert by_signal is not None
    assert by_signal.signal == 15
    assert without is not None
    assert without.signal is None


def test_an_end_without_a_time_is_still_an_end() -> None:
    """Kubelets write null when they lost the container."""
    lost = (
        '{"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "finishedAt": null}}'
    )
    found = fingerprint([status(state=lost)])
    assert found is not None
    assert found.finished_at is None


@pytest.mark.parametrize(
    "statuses",
    [
        pytest.param([], id="no statuses"),
        pytest.param([status("poller", TERMINATED)], id="no runner container"),
        pytest.param([status(state=RUNNING, started="true")], id="still running"),
        pytest.param([status(state=RUNNING, last=TERMINATED)], id="running again"),
        pytest.param([status(state=WAITING)], id="still waiting"),
        pytest.param([status()], id="nothing said"),
        pytest.param([status(state='{"terminated": {}}')], id="an end without a code"),
        pytest.param([status(state='{"frozen": {}}')], id="a state from the future"),
        pytest.param([status(state=TERMINATED)] * 2, id="two runners"),
        pytest.param(
            [
                ContainerStatus(
                    name="runner",
                    state=ContainerState(running=Running(), terminated=Terminated(exit_code=0)),
                )
            ],
            id="running and terminated at once",
        ),
    ],
)
def test_nothing_is_guessed(statuses: list[ContainerStatus]) -> None:
    assert fingerprint(statuses) is None


@pytest.mark.parametrize(
    ("statuses", "answer"),
    [
        pytest.param([status(state=RUNNING, started="true")], Certainty.YES, id="running"),
        pytest.param([status(state=RUNNING)], Certainty.YES, id="running, not yet marked started"),
        pytest.param([status(state=TERMINATED)], Certainty.YES, id="terminated"),
        pytest.param(
            [status(state=WAITING, last=TERMINATED)], Certainty.YES, id="terminated before"
        ),
        pytest.param([status(state=WAITING)], Certainty.NO, id="waiting"),
        pytest.param([status(started="null")], Certainty.UNKNOWN, id="nothing said"),
        pytest.param(
            [status(state='{"frozen": {}}')], Certainty.UNKNOWN, id="a state from the future"
        ),
        pytest.param([], Certainty.NO, id="no statuses yet"),
        pytest.param([status("poller", RUNNING)], Certainty.UNKNOWN, id="no runner container"),
        pytest.param([status()] * 2, Certainty.UNKNOWN, id="two runners"),
        pytest.param(
            [
                ContainerStatus(
                    name="runner",
                    last_state=ContainerState(running=Running(), terminated=Terminated()),
                )
            ],
            Certainty.UNKNOWN,
            id="an unknown shape",
        ),
    ],
)
def test_a_runner_that_ever_started_is_known(
    statuses: list[ContainerStatus], answer: Certainty
) -> None:
    """I34"""
    assert ever_started(statuses) is answer


def test_a_fingerprint_reads_as_a_phrase() -> None:
    found = Fingerprint(exit_code=137, signal=9, reason="Error", source=Source.LAST_STATE)
    assert str(found) == "exit code 137, signal 9 (SIGKILL), of its last life"


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ((0, None, "Completed"), "exit code 0: clean exit"),
        ((100, None, "Error"), "exit code 100: clean exit, job succeeded"),
        ((102, None, "Error"), "exit code 102: clean exit, job failed"),
        ((104, None, "Error"), "exit code 104: clean exit, job skipped"),
        ((105, None, "Error"), "exit code 105: job abandoned, GitHub no longer renewed its lease"),
        ((7, None, "Error"), "exit code 7: GitHub refused the runner's version"),
        ((137, None, "OOMKilled"), "exit code 137: SIGKILL, reason OOMKilled"),
        ((143, None, "Error"), "exit code 143: SIGTERM"),
        ((1, None, "Error"), "exit code 1"),
        ((0, 9, None), "exit code 0, signal 9 (SIGKILL)"),
        ((None, None, "Evicted"), "reason Evicted"),
        ((None, None, None), ""),
    ],
)
def test_an_exit_is_described_in_words(
    end: tuple[int | None, int | None, str | None], words: str
) -> None:
    assert describe_exit(*end) == words
