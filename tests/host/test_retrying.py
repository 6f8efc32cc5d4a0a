"""A failing step is retried at growing intervals and reported to the cluster; a success after it is
reported at once."""

from __future__ import annotations

import signal

import pytest

from paddock.host.reports import AttemptResult
from paddock.host.retrying import LONGEST_PAUSE_S, LOOK_EVERY_S
from tests.support.mac import Enough, Mac

pytestmark = pytest.mark.slow


def test_a_failure_that_passes_is_no_news(mac: Mac) -> None:
    """Otherwise pools would retire runners for a failure of a second."""
    mac.fail("-a paddock.runners -f", times=2)
    outcome = mac.keeping().until_it_succeeds(5)
    assert outcome.failed is None
    assert mac.told == [(True, "Bootstrapped")]
    assert "2 attempts before had failed" in mac.reports[0].message
    assert len(mac.paused) == 2


def test_a_host_that_keeps_failing_is_told_of_and_recovers_with_one_retry(mac: Mac) -> None:
    mac.fail("-a paddock.runners -f")

    def meanwhile(pauses: int) -> None:
        if pauses == 5:
            mac.change(fail=[])
        if pauses == 6:
            raise Enough

    mac.meanwhile = meanwhile
    with pytest.raises(Enough):
        mac.keeping().for_ever()
    assert mac.told == [(False, "LoadFailed")] * 3 + [(True, "Bootstrapped")]
    assert "Resource busy" in mac.reports[0].message
    assert mac.reports[0].message.endswith("3 attempts failed since 2026-05-16 12:00:00 UTC.")
    assert mac.reports[-1].message.endswith("5 attempts before had failed.")
    assert mac.paused[5] == LOOK_EVERY_S


def test_a_long_failure_is_told_at_every_attempt_with_ever_fewer_events(mac: Mac) -> None:
    """2,300 attempts in silence: here the third is told, and every one after it."""

    def meanwhile(pauses: int) -> None:
        if pauses == 2300:
            raise Enough

    mac.meanwhile = meanwhile
    with pytest.raises(Enough):
        mac.keeping(lambda: AttemptResult(failed="load", words="Resource busy.")).for_ever()
    assert mac.told == [(False, "LoadFailed")] * 2298
    news = [report.failures for report in mac.reports if report.news]
    assert news == [3, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048]
    assert LONGEST_PAUSE_S / 2 <= max(mac.paused) <= LONGEST_PAUSE_S


def test_the_log_of_a_host_does_not_grow_with_its_patience(mac: Mac) -> None:
    outcomes = [AttemptResult(words="all well.")] * 50 + [
        AttemptResult(failed="load", words="busy.")
    ] * 50

    def attempt() -> AttemptResult:
        if not outcomes:
            raise Enough
        return outcomes.pop(0)

    with pytest.raises(Enough):
        mac.keeping(attempt).for_ever()
    assert mac.said == [
        "ready: all well.",
        "load failed: busy.",
        *(f"load failed: busy. {number} in a row." for number in (4, 8, 16, 32)),
    ]


def test_a_mistake_of_ours_is_told_too(mac: Mac) -> None:
    def attempt() -> AttemptResult:
        raise ZeroDivisionError("of nothing")

    outcome = mac.keeping(attempt).until_it_succeeds(1)
    assert outcome.words == "unexpected ZeroDivisionError: of nothing."
    assert mac.told == [(False, "RunFailed")]


def test_the_last_of_a_few_attempts_is_told(mac: Mac) -> None:
    mac.fail("-a paddock.runners -f")
    assert mac.keeping().until_it_succeeds(2).failed == "load"
    assert mac.told == [(False, "LoadFailed")]


def test_a_cluster_that_cannot_be_told_is_no_reason_to_stop(mac: Mac) -> None:
    mac.unreachable = True
    keeping = mac.keeping(AttemptResult)
    assert keeping.until_it_succeeds(1).failed is None
    assert any("the cluster was not told: mac-1 could not read" in line for line in mac.said)
    mac.unreachable = False
    keeping.until_it_succeeds(1)
    assert [report.news for report in mac.reports] == [True]


def test_a_configuration_that_is_refused_is_told_of(mac: Mac) -> None:
    mac.keeping().until_it_succeeds(1)
    mac.configure('node = "mac-1"\nnodes = 3')
    outcome = mac.keeping().until_it_succeeds(1)
    assert outcome.words == f"{mac.file}: nodes is not a setting that is known."
    assert mac.told[-1] == (False, "ConfigurationFailed")


def test_only_changes_are_news(mac: Mac) -> None:
    keeping = mac.keeping(AttemptResult)
    for _ in range(3):
        keeping.until_it_succeeds(1)
    assert [report.news for report in mac.reports] == [True, False, False]


def test_it_runs_from_its_directory_alone(mac: Mac) -> None:
    done = mac.command()
    assert done.returncode == 0, done.stderr
    assert "ready: loaded the rules" in done.stderr
    assert len(mac.in_force) == 6
    again = mac.command()
    assert again.stderr.endswith("ready: all was as it should be.\n")


def test_a_failure_is_a_sentence_and_an_exit_code(mac: Mac) -> None:
    mac.fail("-n -f", words="pfctl: /dev/pf: Permission denied")
    done = mac.command("--attempts", "1")
    assert done.returncode == 1
    assert done.stderr.endswith("validate failed: pfctl: /dev/pf: Permission denied.\n")


@pytest.mark.parametrize("step", ["-F all", "-a paddock.runners -f", "-f {root}/etc/pf.conf", "-E"])
def test_a_run_that_is_killed_in_the_middle_is_made_good_by_the_next(mac: Mac, step: str) -> None:
    mac.change(kill_after=step.format(root=mac.root))
    assert mac.command().returncode == -signal.SIGKILL
    mac.change(kill_after=None)
    done = mac.command()
    assert done.returncode == 0, done.stderr
    assert len(mac.in_force) == 6
    assert mac.state["enabled"]
    assert mac.state["refs"] == 1
    assert list(mac.jobs) == ["dev.paddock.host"]


def test_a_dry_run_prints_the_rules_and_changes_nothing(mac: Mac) -> None:
    done = mac.command("--dry-run")
    assert "table <vm_sources> persist { 192.168.64.0/24 }" in done.stdout
    assert not (mac.root / "state").exists()
    assert mac.jobs == {}
