"""Reads commit messages of the form `type(scope): subject`. One parser serves both the release tool
and the check of new commits: the check accepts exactly what the release tool can read.

    python -m tools.commits message FILE    the message in FILE, for git's commit-msg hook
    python -m tools.commits history         every commit since BASE, for CI
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

#: The commit that introduced the rule (CONTRIBUTING.md, "Commits"). Older messages are sentences.
BASE: Final = "f468c611cdddaa5426b9dd418206e8fe6c0c4c40"
TYPES: Final = (
    "feat", "fix", "perf", "refactor", "test", "docs", "style", "build", "ci", "chore", "revert",
)  # fmt: skip
#: The width of `git log --oneline` without a line break in a terminal of 80 columns.
LONGEST_TITLE: Final = 72

_TITLE: Final = re.compile(
    r"(?P<type>[a-z]+)(?:\((?P<scope>[a-z0-9-]+)\))?(?P<breaking>!)?: (?P<subject>\S.*)"
)
_BREAKING_FOOTER: Final = re.compile(r"^BREAKING[ -]CHANGE: \S", re.MULTILINE)
#: Git's own titles of a commit that `git rebase --autosquash` will merge into another one.
_TEMPORARY: Final = ("fixup! ", "squash! ", "amend! ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    title: str
    #: Empty if the title is not of the form `type(scope): subject`.
    type: str
    scope: str
    subject: str
    breaking: bool

    @classmethod
    def parse(cls, text: str) -> Self:
        title, _, body = text.strip().partition("\n")
        found = _TITLE.fullmatch(title)
        return cls(
            title=title,
            type=(found["type"] if found else ""),
            scope=(found["scope"] or "" if found else ""),
            subject=(found["subject"] if found else title),
            breaking=bool(found and found["breaking"]) or bool(_BREAKING_FOOTER.search(body)),
        )


def problems(text: str) -> list[str]:
    """The errors of a message, one sentence each."""
    message = Message.parse(text)
    if not message.type:
        return [
            "The title must be `type(scope): subject`, e.g. `fix(store): purge dead deliveries`."
        ]
    found = []
    if message.type not in TYPES:
        found.append(f"`{message.type}` is not a type: use one of {', '.join(TYPES)}.")
    if len(message.title) > LONGEST_TITLE:
        found.append(f"The title has {len(message.title)} characters, of {LONGEST_TITLE} at most.")
    if message.subject.endswith("."):
        found.append("The title ends with a full stop: remove it.")
    lines = text.strip().splitlines()
    if len(lines) > 1 and lines[1].strip():
        found.append("The second line is not empty: separate the title from the body.")
    return found


def without_comments(text: str) -> str:
    """A message as git will store it: without comment lines and without the diff."""
    text = text.partition("# ------------------------ >8 ------------------------")[0]
    return "\n".join(line for line in text.splitlines() if not line.startswith("#"))


def check_message(file: Path) -> list[str]:
    text = without_comments(file.read_text("utf-8"))
    # Git writes these titles. CI ignores merges, and rejects a temporary commit that was pushed.
    if text.startswith(("Merge ", *_TEMPORARY)):
        return []
    return problems(text)


def check_history(repository: Path, base: str) -> list[str]:
    log = subprocess.run(
        ["git", "log", "-z", "--no-merges", "--reverse", "--format=%h%n%B", f"{base}..HEAD"],  # noqa: S607
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    if log.returncode != 0:
        why = f"The commits since {base[:7]} cannot be read: {log.stderr.strip()}."
        return [f"{why} In a shallow clone run `git fetch --unshallow` first."]
    entries = (entry.partition("\n") for entry in log.stdout.split("\0") if entry)
    return [
        f"{commit} {text.partition(chr(10))[0]}\n  {problem}"
        for commit, _, text in entries
        for problem in problems(text)
    ]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.commits", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    message = commands.add_parser("message", help="check a message that is being written")
    message.add_argument("file", type=Path)
    history = commands.add_parser("history", help="check every commit since the base")
    history.add_argument("--repository", type=Path, default=Path(), help="its root; default: here")
    history.add_argument(
        "--base", default=BASE, help="default: the commit that introduced the rule"
    )
    options = parser.parse_args(arguments)
    if options.command == "message":
        found = check_message(options.file)
    else:
        found = check_history(options.repository, options.base)
    for each in found:
        sys.stderr.write(f"{each}\n")
    if found:
        sys.stderr.write("CONTRIBUTING.md, section Commits, has the rules.\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
