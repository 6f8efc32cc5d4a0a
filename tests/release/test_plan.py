"""What is released follows from the files that a commit touches."""

from __future__ import annotations

import pytest

from tests.support.scratch import Scratch


def test_a_fix_under_another_scope_releases_the_component_whose_second_path_it_touches(
    scratch: Scratch,
) -> None:
    """The fix that was never released: `fix(infra):` matched no component's scope."""
    scratch.commit(
        "fix(infra): flush the anchor before loading it", "infra/host-bootstrap/bootstrap.go"
    )
    planned = scratch.plan()
    assert scratch.versions() == {"operator": "0.1.1", "chart": "0.1.1"}
    assert planned["operator"]["commits"][0]["files"] == ["infra/host-bootstrap/bootstrap.go"]
    assert planned["chart"]["pins"] == [
        {
            "component": "operator",
            "file": "chart/values.yaml",
            "key": "operator.image.tag",
            "before": "0.1.0",
            "after": "0.1.1",
        }
    ]


def test_a_scope_that_names_a_component_releases_nothing_by_itself(scratch: Scratch) -> None:
    scratch.commit("fix(server): a word", "docs/page.md")
    assert scratch.versions() == {}


def test_a_docs_only_commit_releases_nothing(scratch: Scratch) -> None:
    scratch.commit("docs: more words", "docs/page.md")
    assert scratch.versions() == {}
    assert scratch.run("plan").splitlines() == [
        "server: nothing since 0.1.0",
        "operator: nothing since 0.1.0",
        "chart: nothing since 0.1.0",
    ]


def test_two_components_in_one_commit_are_both_released(scratch: Scratch) -> None:
    scratch.commit("fix: both sides", "server/app.py", "infra/operator/main.go")
    assert scratch.versions() == {"server": "0.1.1", "operator": "0.1.1", "chart": "0.1.1"}


@pytest.mark.parametrize(
    ("message", "version"),
    [
        ("refactor: tidy", "0.1.1"),
        ("docs: a comment in a file that is shipped", "0.1.1"),
        ("chore(deps): newer", "0.1.1"),
        ("Sentences are titles too", "0.1.1"),
        ("feature flags are no feature", "0.1.1"),
        ("feat(whatever): more", "0.2.0"),
        ("feat!: other words", "0.2.0"),
        ("Rename a setting\n\nBREAKING CHANGE: the old name is refused", "0.2.0"),
    ],
)
def test_any_type_that_changes_shipped_files_releases(
    scratch: Scratch, message: str, version: str
) -> None:
    scratch.commit(message, "requirements.lock")
    assert scratch.versions()["server"] == version


def test_after_1_0_0_what_breaks_raises_the_first_number(scratch: Scratch) -> None:
    scratch.tag("server-1.4.2")
    scratch.commit("fix!: other words", "server/app.py")
    assert scratch.versions()["server"] == "2.0.0"


def test_of_several_commits_the_greatest_counts_and_all_are_told(scratch: Scratch) -> None:
    scratch.commit("fix: one", "server/app.py")
    scratch.commit("feat: two", "server/app.py", "server/more.py")
    scratch.commit("fix: three", "docs/page.md")
    said = scratch.run("plan")
    assert "server 0.1.0 → 0.2.0, minor, because" in said
    assert "fix: one\n          touches server/app.py\n" in said
    assert "feat: two\n          touches server/app.py and 1 more\n" in said
    assert "fix: three" not in said
    assert "it pins server 0.2.0 instead of 0.1.0 in chart/values.yaml (image.tag)" in said


def test_the_chart_is_raised_as_far_as_what_it_pins(scratch: Scratch) -> None:
    scratch.commit("fix: chart", "chart/Chart.yaml")
    scratch.commit("feat: server", "server/app.py")
    assert scratch.versions() == {"server": "0.2.0", "chart": "0.2.0"}


def test_what_was_never_released_begins_with_0_1_0(scratch: Scratch) -> None:
    scratch.git("tag", "--delete", "operator-0.1.0")
    scratch.commit("feat: more", "infra/operator/main.go")
    assert scratch.versions()["operator"] == "0.1.0"


def test_tags_of_other_components_and_other_branches_do_not_count(scratch: Scratch) -> None:
    scratch.git("switch", "--quiet", "--create", "other")
    scratch.commit("feat: elsewhere", "server/app.py")
    scratch.tag("server-0.9.0")
    scratch.git("switch", "--quiet", "main")
    scratch.commit("fix: here", "server/app.py")
    scratch.commit("feat: operator", "infra/operator/main.go")
    scratch.tag("operator-0.2.0")
    assert scratch.versions()["server"] == "0.1.1"


def test_a_pin_that_is_behind_is_corrected_although_nothing_else_changed(scratch: Scratch) -> None:
    """The image had been released. Nothing that ran was told of it."""
    scratch.commit("fix: operator", "infra/operator/main.go")
    scratch.tag("operator-0.1.1")
    assert scratch.versions() == {"chart": "0.1.1"}
    assert scratch.plan()["chart"]["pins"][0]["after"] == "0.1.1"


def test_a_short_history_is_refused(scratch: Scratch) -> None:
    scratch.commit("fix: one", "server/app.py")
    scratch.git("clone", "--quiet", "--depth", "1", f"file://{scratch.root}", "shallow")
    code, _, said = Scratch(scratch.root / "shallow", scratch.capsys).attempt("plan")
    assert code == 1
    assert "run `git fetch --unshallow --tags` first" in said


def test_a_path_that_is_not_there_is_refused(scratch: Scratch) -> None:
    scratch.git("rm", "-r", "--quiet", "infra/host-bootstrap")
    code, _, said = scratch.attempt("plan")
    assert code == 1
    assert "operator is to ship infra/host-bootstrap/, which is not there" in said
    assert said.count("\n") == 1
