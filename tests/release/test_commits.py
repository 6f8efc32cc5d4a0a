"""Commit messages: what is accepted, by the hook and in the history."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.scratch import Scratch
from tools.commits import BASE, LONGEST_TITLE, TYPES, Message, main, problems
from tools.docs import ROOT


@pytest.mark.parametrize(
    "text",
    [
        "fix(store): purge dead deliveries",
        "feat!: rename a setting\n\nThe old name was ambiguous.",
        "docs: regenerate",
        f"ci: {'x' * (LONGEST_TITLE - 4)}",
    ],
)
def test_a_conventional_message_is_accepted(text: str) -> None:
    assert problems(text) == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("Purge dead deliveries", "must be `type(scope): subject`"),
        ("fix(store) purge dead deliveries", "must be `type(scope): subject`"),
        ("fix(Store): purge", "must be `type(scope): subject`"),
        ("fix:purge", "must be `type(scope): subject`"),
        ("Fix: purge", "must be `type(scope): subject`"),
        ("fixup! fix: purge", "must be `type(scope): subject`"),
        ("", "must be `type(scope): subject`"),
        ("bench: measure more", "`bench` is not a type"),
        (f"ci: {'x' * (LONGEST_TITLE - 3)}", f"has {LONGEST_TITLE + 1} characters"),
        ("fix: purge.", "ends with a full stop"),
        ("fix: purge\nat once", "The second line is not empty"),
    ],
)
def test_another_message_is_rejected_with_the_reason(text: str, complaint: str) -> None:
    [problem] = problems(text)
    assert complaint in problem


def test_a_breaking_change_is_marked_in_the_title_or_in_the_body() -> None:
    assert Message.parse("fix(store)!: forget").breaking
    assert Message.parse("fix: forget\n\nBREAKING CHANGE: the old name is refused").breaking
    assert not Message.parse("fix: forget\n\nThis is no BREAKING CHANGE: it is small.").breaking


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("fix: purge\n\n# Please enter the commit message\n", 0),
        ("# a comment\nfix: purge\n", 0),
        ("fix: purge\n# ------------------------ >8 ------------------------\ndiff --git", 0),
        ("Merge branch 'other'\n", 0),
        ("fixup! fix: purge\n", 0),
        ("Purge\n", 1),
    ],
)
def test_the_hook_reads_a_message_as_git_will_store_it(
    tmp_path: Path, text: str, code: int
) -> None:
    file = tmp_path / "COMMIT_EDITMSG"
    file.write_text(text)
    assert main(["message", str(file)]) == code


def _history(scratch: Scratch, base: str) -> tuple[int, str]:
    code = main(["history", "--repository", str(scratch.root), "--base", base])
    return code, scratch.capsys.readouterr().err


def test_the_history_is_checked_from_the_base_on(scratch: Scratch) -> None:
    scratch.commit("A sentence from before the rule", "server/app.py")
    base = scratch.git("rev-parse", "HEAD").strip()
    scratch.commit("fix: purge", "server/app.py")
    assert _history(scratch, base) == (0, "")
    scratch.commit("Purge", "server/app.py")
    scratch.commit("fixup! fix: purge", "server/app.py")
    code, said = _history(scratch, base)
    assert code == 1
    assert said.count("must be `type(scope): subject`") == 2
    assert " Purge\n" in said


def test_merges_need_no_type(scratch: Scratch) -> None:
    base = scratch.git("rev-parse", "HEAD").strip()
    scratch.git("switch", "--quiet", "--create", "other")
    scratch.commit("fix: there", "server/app.py")
    scratch.git("switch", "--quiet", "main")
    scratch.commit("fix: here", "docs/page.md")
    scratch.git("merge", "--quiet", "--no-edit", "other")
    assert _history(scratch, base) == (0, "")


def test_a_history_without_the_base_is_not_taken_for_a_good_one(scratch: Scratch) -> None:
    code, said = _history(scratch, BASE)
    assert code == 1
    assert "run `git fetch --unshallow` first" in said


def test_the_contributing_page_lists_the_types() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("## Commits")[2]
    assert all(f"`{each}`" in page for each in TYPES)


def test_the_hooks_reject_a_message_and_a_file_that_ci_would_reject(
    scratch: Scratch, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRE_COMMIT_HOME", str(tmp_path_factory.mktemp("pre-commit")))
    for file in (
        ".pre-commit-config.yaml",
        "pyproject.toml",
        "tools/__init__.py",
        "tools/commits.py",
    ):
        shutil.copy(ROOT / file, scratch.root / file)
    (scratch.root / ".gitignore").write_text(".venv\n")
    (scratch.root / ".venv").symlink_to(sys.prefix)
    scratch.commit("chore: configure hooks")
    subprocess.run([".venv/bin/pre-commit", "install"], cwd=scratch.root, check=True)

    with pytest.raises(subprocess.CalledProcessError) as rejected:
        scratch.commit("Purge dead deliveries", "docs/page.md")
    assert "The title must be `type(scope): subject`" in rejected.value.stderr
    scratch.commit("fix: purge dead deliveries")

    (scratch.root / "server/app.py").write_text("import os\n")
    with pytest.raises(subprocess.CalledProcessError) as rejected:
        scratch.commit("fix: import")
    assert "`os` imported but unused" in rejected.value.stderr
