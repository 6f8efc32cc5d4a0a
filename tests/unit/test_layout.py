"""Tables and sentences as lines: names whole at every width, prose shortened or wrapped."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from paddock.cli.layout import Column, Line, beside, lay_out, prose, wrap

POD = "linux-x64-large-pool-of-team-payments-9ksbds"
LOGIN = "organisation-with-a-very-long-login-abc"
REPOSITORY = f"{LOGIN}/{'service-backend-' * 6}last"
WHY = (
    "The registry of the images was down for maintenance, so no Pod could start until it was back."
)
HEADINGS: list[str | Column] = ["JOB", "REPOSITORY", "POOL", "RUNNER", prose("WHY")]
ROW = (17000000001, REPOSITORY, "linux-x64", POD, WHY)


def text(lines: list[Line]) -> list[str]:
    return ["".join(part if isinstance(part, str) else part[0] for part in line) for line in lines]


def test_the_names_are_as_long_as_they_can_be() -> None:
    assert (len(POD), len(LOGIN), len(REPOSITORY)) == (44, 39, 140)


def test_a_pipe_gets_one_line_for_a_record_and_all_of_it() -> None:
    heading, line = text(lay_out(HEADINGS, [ROW], width=None))
    assert all(str(cell) in line for cell in ROW)
    assert heading.index("WHY") == line.index(WHY)


@pytest.mark.parametrize("width", [20, 40, 80, 120, 200, 400])
def test_names_are_whole_at_every_width(width: int) -> None:
    lines = text(lay_out(HEADINGS, [ROW, (1, None, None, None, None)], width=width))
    for name in ROW[:4]:
        assert any(str(name) in line for line in lines)
    # A line is wider than the terminal only for a name that no line of it can hold.
    for line in lines:
        assert cell_len(line) <= width or max(map(len, line.split())) > width - 16


def test_prose_is_shortened_before_anything_is_moved() -> None:
    heading, line = text(lay_out(["POD", prose("WHY")], [(POD, WHY)], width=80))
    assert heading.split() == ["POD", "WHY"]
    assert line == f"{POD}  The registry of the images was do…"


def test_a_record_that_is_too_wide_goes_on_below_its_first_line() -> None:
    row = (17000000001, f"{LOGIN}/website-backend", "linux-x64", POD, WHY)
    assert text(lay_out(HEADINGS, [row], width=80)) == [
        "JOB          POOL       RUNNER",
        f"17000000001  linux-x64  {POD}",
        f"  repository: {LOGIN}/website-backend",
        "  why: The registry of the images was down for maintenance, so no Pod could sta…",
    ]


def test_prose_that_is_the_point_of_a_table_is_wrapped() -> None:
    lines = text(lay_out(["RULE", prose("SEEN", whole=True)], [("silent", WHY)], width=60))
    assert lines[:2] == ["RULE", "silent"]
    assert " ".join(" ".join(lines[2:]).split()) == f"seen: {WHY}"


def test_columns_without_a_value_make_room() -> None:
    row = (POD, None, None, "idle", None)
    headings: list[str | Column] = [
        "POD",
        "A-LONG-HEADING",
        "ANOTHER-LONG-HEADING",
        "STATE",
        prose("WHY"),
    ]
    assert text(lay_out(headings, [row], width=60)) == [f"{'POD':44}  STATE", f"{POD}  idle"]


def test_control_characters_are_escaped_and_wide_characters_measured() -> None:
    rows = [("a\x1b]0;owned\x07\nFORGED", "1"), ("\N{CJK UNIFIED IDEOGRAPH-4E2D}", "2")]
    lines = text(lay_out(["NAME", "NUMBER"], rows, width=80))
    assert lines[1].startswith(r"a\u001b]0;owned\u0007\u000aFORGED  1")
    assert cell_len(lines[1].removesuffix("1")) == cell_len(lines[2].removesuffix("2"))


def test_a_sentence_is_broken_at_spaces_and_its_further_lines_are_indented() -> None:
    line = (("error:", "bold red"), " ", f"There is no runner {POD}: see `paddock runners list`.")
    lines = [*wrap(line, 60, hanging=7)]
    assert lines[0][0] == ("error:", "bold red")
    assert text(lines) == [
        "error: There is no runner",
        f"       {POD}: see",
        "       `paddock runners list`.",
    ]


def test_a_word_of_two_styles_is_one_word() -> None:
    lines = [*wrap(("busy ", ("\N{BLACK SQUARE}", "green"), "2"), 6, hanging=0)]
    assert text(lines) == ["busy", "\N{BLACK SQUARE}2"]


def test_two_tables_stand_beside_each_other_only_where_both_fit() -> None:
    left, right = [("a",), ("b",)], [(("c", "bold"),)]
    assert text(beside(left, right, width=8)) == ["a      c", "b"]
    assert text(beside(left, right, width=7)) == ["a", "b", "", "c"]
    assert text(beside(left, right, width=None)) == ["a", "b", "", "c"]
