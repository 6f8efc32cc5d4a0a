"""The bootstrap against programs that stand in for pf and launchd."""

from __future__ import annotations

import re

import pytest

from paddock.host.anchor import NAME
from paddock.host.launchd import KEEPER, MACHINES
from paddock.host.tools import ToolFailed
from tests.support.mac import BUSY, Mac

pytestmark = pytest.mark.slow


def test_a_first_run_loads_the_rules_and_starts_what_keeps_them(mac: Mac) -> None:
    outcome = mac.keeping().until_it_succeeds(1)
    assert outcome.failed is None
    assert mac.told == [(True, "Bootstrapped")]
    assert len(mac.in_force) == 6
    assert all(re.search(r'label "paddock-[0-9a-f]{16}-\d"$', rule) for rule in mac.in_force)
    assert mac.tables["vm_sources"] == ["192.168.64.0/24"]
    assert "10.0.0.0/8" in mac.tables["blocked_dst"]
    assert mac.state["anchors"][""]["rules"][-1] == 'anchor "paddock.runners"'
    assert mac.state["enabled"]
    assert mac.jobs[KEEPER][-4:] == ["bootstrap", "--keep", "--config", str(mac.file)]
    assert MACHINES not in mac.jobs


def test_a_second_run_touches_nothing(mac: Mac) -> None:
    """While an anchor is flushed nothing is filtered; and each -E would count one more who wants pf
    on."""
    mac.keeping().until_it_succeeds(1)
    before = mac.state
    mac.forget_calls()
    outcome = mac.keeping().until_it_succeeds(1)
    assert outcome.words == "all was as it should be."
    assert mac.told == [(True, "Bootstrapped")] * 2
    assert {**mac.state, "calls": None} == {**before, "calls": None}
    assert mac.calls("-F") == mac.calls("-E") == []
    assert [call for call in mac.calls("-f") if not re.search("(^| )-n ", call)] == []


def test_tables_that_outlived_a_half_finished_run_are_flushed_before_the_load(mac: Mac) -> None:
    """The failure that was repeated 2,300 times: the tables are there, the rules are not."""
    mac.change(
        anchors={"paddock.runners": {"rules": [], "tables": {"vm_sources": ["10.9.0.0/16"]}}}
    )
    outcome = mac.keeping().until_it_succeeds(1)
    assert outcome.failed is None
    assert mac.told == [(True, "Bootstrapped")]
    assert mac.tables["vm_sources"] == ["192.168.64.0/24"]
    changes = [call for call in mac.calls("-a paddock.runners") if " -F " in call or " -f " in call]
    assert [call.split()[2] for call in changes] == ["-n", "-F", "-f"]


def test_the_stand_in_refuses_to_define_tables_that_are_there(mac: Mac) -> None:
    """What the flush is for: without it the load of the very same rules fails, as pf's does."""
    mac.keeping().until_it_succeeds(1)
    pfctl = mac.bootstrap().filtering.pfctl
    with pytest.raises(ToolFailed, match="cannot define table vm_sources: Resource busy"):
        pfctl.run("-a", NAME, "-f", str(mac.rules_file))
    pfctl.run("-a", NAME, "-F", "all")
    pfctl.run("-a", NAME, "-f", str(mac.rules_file))


def test_rules_with_a_mistake_are_not_applied_and_the_old_ones_stay(mac: Mac) -> None:
    mac.keeping().until_it_succeeds(1)
    before, file = mac.in_force, mac.rules_file.read_text()
    mac.forget_calls()
    own = mac.root / "own.pf"
    own.write_text("pass in quick from any to 10.1.2.3\nlet them in\n")
    mac.configure(f'node = "mac-1"\n[network]\nrules = "{own}"')
    outcome = mac.keeping().until_it_succeeds(1)
    assert outcome.failed == "validate"
    assert "paddock.runners.new:5: syntax error" in outcome.words
    assert mac.told[-1] == (False, "ValidateFailed")
    assert mac.in_force == before
    assert mac.rules_file.read_text() == file
    assert mac.calls("-F") == []


def test_a_corrected_rule_file_is_in_force_after_the_next_attempt(mac: Mac) -> None:
    own = mac.root / "own.pf"
    own.write_text("let them in\n")
    mac.configure(f'node = "mac-1"\n[network]\nrules = "{own}"')

    def meanwhile(pauses: int) -> None:
        if pauses == 3:
            own.write_text("pass in quick from any to 10.1.2.3\n")

    mac.meanwhile = meanwhile
    outcome = mac.keeping().until_it_succeeds(10)
    assert outcome.failed is None
    assert mac.told == [(False, "ValidateFailed"), (True, "Bootstrapped")]
    assert mac.in_force[0] == "pass in quick from any to 10.1.2.3"


def test_a_load_that_fails_after_the_flush_puts_the_old_rules_back(mac: Mac) -> None:
    mac.keeping().until_it_succeeds(1)
    before = mac.in_force
    mac.configure('node = "mac-1"\n[network]\nallowed = ["10.0.5.7:443"]')
    mac.fail("-a paddock.runners -f", times=1, words=BUSY)
    outcome = mac.keeping().until_it_succeeds(1)
    assert outcome.failed == "load"
    assert "Resource busy; the rules of before are in force again." in outcome.words
    assert mac.in_force == before
    assert mac.keeping().until_it_succeeds(1).failed is None
    assert any("to 10.0.5.7 port = 443" in rule for rule in mac.in_force)


def test_a_first_load_that_fails_says_that_nothing_is_filtered_and_starts_no_machines(
    mac: Mac,
) -> None:
    mac.configure(f'node = "mac-1"\n[launch]\nprogram = ["{mac.program}"]')
    mac.fail("-a paddock.runners -f", times=2)
    outcome = mac.keeping().until_it_succeeds(1)
    assert "no rules are in force" in outcome.words
    assert mac.jobs == {}
    mac.change(fail=[])
    mac.keeping().until_it_succeeds(1)
    assert mac.jobs[MACHINES] == [str(mac.program)]


def test_rules_that_are_loaded_and_not_in_force_are_noticed(mac: Mac) -> None:
    """pfctl may say nothing and do nothing: what counts is what pf shows."""
    mac.keeping().until_it_succeeds(1)
    state = mac.state
    state["anchors"]["paddock.runners"]["rules"].pop()
    mac.change(**state)
    assert mac.keeping().until_it_succeeds(1).words == "loaded the rules."
    state["anchors"]["paddock.runners"]["tables"]["blocked_dst"] = ["10.0.0.0/8"]
    mac.change(**state)
    assert mac.keeping().until_it_succeeds(1).words == "loaded the rules."
    assert len(mac.in_force) == 6
    assert "192.168.0.0/16" in mac.tables["blocked_dst"]


def test_main_rules_that_forgot_the_anchor_name_it_again(mac: Mac) -> None:
    """An update of macOS replaces /etc/pf.conf."""
    mac.keeping().until_it_succeeds(1)
    (mac.root / "etc/pf.conf").write_text('scrub-anchor "com.apple/*"\n')
    mac.bootstrap().filtering.pfctl.run("-f", str(mac.root / "etc/pf.conf"))
    outcome = mac.keeping().until_it_succeeds(1)
    assert outcome.words == "named the anchor in the main rules."
    assert (mac.root / "etc/pf.conf").read_text().count("anchor") == 2


def test_main_rules_with_a_foreign_mistake_stay_as_they_are(mac: Mac) -> None:
    main = mac.root / "etc/pf.conf"
    main.write_text("what is this\n")
    outcome = mac.keeping().until_it_succeeds(1)
    assert outcome.failed == "attach"
    assert "pf.conf.paddock:1: syntax error" in outcome.words
    assert main.read_text() == "what is this\n"


def test_the_program_for_machines_is_not_stopped_for_a_new_description(mac: Mac) -> None:
    """Its machines may execute jobs."""
    mac.configure(f'node = "mac-1"\n[launch]\nprogram = ["{mac.program}"]')
    mac.keeping().until_it_succeeds(1)
    mac.configure(f'node = "mac-1"\n[launch]\nprogram = ["{mac.program}", "-v"]')
    outcome = mac.keeping().until_it_succeeds(1)
    assert outcome.failed is None
    assert "drain, then --reload" in outcome.words
    assert mac.jobs[MACHINES] == [str(mac.program)]
    assert mac.bootstrap(reload=True).attempt().words == f"started {MACHINES}."
    assert mac.jobs[MACHINES] == [str(mac.program), "-v"]


def test_a_program_that_is_not_there_is_not_given_to_launchd(mac: Mac) -> None:
    """launchd would try to start it every fifteen seconds, in vain and without an error message."""
    mac.configure('node = "mac-1"\n[launch]\nprogram = ["/nowhere/machines"]')
    outcome = mac.keeping().until_it_succeeds(1)
    assert (outcome.failed, MACHINES in mac.jobs) == ("launch", False)
    assert outcome.words == "/nowhere/machines is no program that can be run."


def test_what_keeps_the_rules_does_not_stop_itself(mac: Mac) -> None:
    mac.keeping().until_it_succeeds(1)
    file = mac.root / f"Library/LaunchDaemons/{KEEPER}.plist"
    file.write_text("old")
    outcome = mac.bootstrap(started_as=KEEPER).attempt()
    assert outcome.words == f"wrote {KEEPER} again, for the next boot."
    assert KEEPER in mac.jobs
    assert file.read_text() != "old"
