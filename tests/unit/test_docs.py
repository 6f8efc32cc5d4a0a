"""The pages agree with the code, and their links lead to their targets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paddock.domain.failure_modes import FAILURE_MODES
from paddock.domain.github.errors import rules_table
from paddock.domain.recovery.table import RULES as RECOVERY_RULES
from paddock.domain.recovery.thresholds import reasons
from paddock.domain.runners.endings import RULES, Ending
from paddock.domain.states import RUNNER_TRANSITIONS, RunnerState, legal
from paddock.log_events import EVENTS
from tools.docs import (
    INVARIANTS,
    ROOT,
    SECTIONS,
    DocsError,
    logged,
    outdated,
    pages,
    render,
    tags,
)

_PAGES = pages(ROOT)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def test_the_generated_parts_are_up_to_date() -> None:
    assert [str(page.relative_to(ROOT)) for page in outdated()] == [], "run `make docs`"


def test_every_generated_part_stands_on_a_page() -> None:
    asked = {
        name
        for page in _PAGES
        for name in re.findall(r"^<!-- generated: (.*) -->$", _text(page), re.MULTILINE)
    }
    assert asked == set(SECTIONS)


def test_every_invariant_has_its_line_once() -> None:
    lines = re.findall(r"^\| I(\d+) \| .+ \|", _text(ROOT / "docs/invariants.md"), re.MULTILINE)
    assert [int(number) for number in lines] == list(range(1, INVARIANTS + 1))


def test_no_tag_is_used_that_means_nothing() -> None:
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.sql")]
    files += (ROOT / "simulator").rglob("*.py")
    files += [file for file in (ROOT / "tests").rglob("*.py") if "node_modules" not in file.parts]
    named = {int(tag) for file in files for tag in re.findall(r"\bI(\d{1,3})\b", _text(file))}
    assert named <= set(range(1, INVARIANTS + 1))


def test_the_diagram_draws_every_legal_step_and_no_other() -> None:
    drawn = set()
    diagram = SECTIONS["runner diagram"]("")
    for before, after in re.findall(r"^ +(\S+) --> (\w+):", diagram, re.MULTILINE):
        excepted = before.removeprefix("any_but_").split("_and_")
        drawn |= {
            (state, RunnerState(after))
            for state in RunnerState
            if (state not in excepted if before.startswith("any_but_") else state == before)
        }
    assert drawn == set(RUNNER_TRANSITIONS)
    assert all(legal(*step) for step in drawn)


@pytest.mark.parametrize(
    ("section", "rows"),
    [
        ("runner states", len(RunnerState)),
        ("endings", len(Ending)),
        ("ending rules", len(RULES)),
        ("github failures", len(rules_table())),
        ("recovery thresholds", len(reasons())),
    ],
)
def test_a_table_has_a_row_for_everything(section: str, rows: int) -> None:
    lines = SECTIONS[section]("").splitlines()
    assert len(lines) == rows + 2
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1


def test_every_rule_of_recovery_stands_in_one_of_its_tables() -> None:
    written = "".join(text("") for name, text in SECTIONS.items() if name.startswith("rules for "))
    names = re.findall(r"^\| \d+ \| `([a-z-]+)` \|", written, re.MULTILINE)
    assert names == [rule.name for rule in RECOVERY_RULES]


def test_every_rule_and_every_ending_answers_a_failure() -> None:
    """A reader with a failure finds its rule, and every rule and ending belongs to a failure."""
    rules = {name for mode in FAILURE_MODES for name in mode.rules}
    assert rules == {rule.name for rule in RECOVERY_RULES}
    assert {ending for mode in FAILURE_MODES for ending in mode.endings} == set(Ending)


def test_settings_show_no_machines_own_paths_and_mark_secrets() -> None:
    table = SECTIONS["settings"]("")
    assert str(Path.home()) not in table
    [database] = [line for line in table.splitlines() if "PADDOCK_DATABASE_URL" in line]
    assert "**secret**" in database


def test_what_stands_around_a_generated_part_is_left_alone() -> None:
    page = "before\n<!-- generated: withheld reasons -->\nold\n<!-- end -->\nafter\n"
    written = render(page, page="a page")
    assert written.startswith("before\n<!-- generated: withheld reasons -->\n`")
    assert written.endswith("<!-- end -->\nafter\n")
    assert "old" not in written
    assert render(written, page="a page") == written


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("<!-- generated: nonsense -->\n<!-- end -->\n", "asks for `nonsense`"),
        ("<!-- generated: settings -->\n", "without its counterpart"),
        ("<!-- end -->\n", "without its counterpart"),
    ],
)
def test_a_marker_that_makes_no_sense_is_named(text: str, complaint: str) -> None:
    with pytest.raises(DocsError, match=complaint):
        render(text, page="a page")


def test_a_tag_counts_only_as_a_whole_word(tmp_path: Path) -> None:
    tag = "I" + "25"
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_it.py").write_text(f"# {tag}; not {tag}0, {tag}st or M{tag}\n")
    (tmp_path / "tests/node_modules").mkdir()
    (tmp_path / "tests/node_modules/other.py").write_text("# I" + "24\n")
    found = {number: places for number, places in tags(tmp_path).items() if places}
    assert found == {25: {"tests": [Path("tests/test_it.py")]}}


def test_every_page_is_listed() -> None:
    listed = set(_LINK.findall(_text(ROOT / "docs/README.md")))
    written = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert written <= listed
    decisions = ROOT / "docs/decisions"
    numbered = {page.name for page in decisions.glob("0*.md")}
    assert numbered <= set(_LINK.findall(_text(decisions / "README.md")))


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in _LINK.findall(_FENCE.sub("", _text(page))):
        target, _, heading = link.partition("#")
        if "://" in target:
            continue
        aim = (page.parent / target) if target else page
        assert aim.exists(), f"{link} leads nowhere"
        if heading:
            assert heading in _anchors(_text(aim)), f"{link}: there is no such heading"


def _anchors(text: str) -> set[str]:
    """As GitHub makes them from headings."""
    headings = re.findall(r"^#+ +(.*)$", _FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _text(file: Path) -> str:
    return file.read_text("utf-8")


def test_every_logged_event_is_an_identifier_with_a_meaning() -> None:
    calls = logged()
    assert sorted(calls) == sorted(EVENTS)
    identifier = re.compile(r"[a-z]+(_[a-z]+)*\.[a-z]+(_[a-z]+)*")
    assert [event for event in calls if not identifier.fullmatch(event)] == []
    fields = {field for call in calls.values() for field in call.fields}
    assert [field for field in fields if not re.fullmatch(r"[a-z]+(_[a-z]+)*", field)] == []
    assert list(EVENTS) == sorted(EVENTS)
