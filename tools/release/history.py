"""What happened since a component was last released: git knows the tags and the files, git-cliff reads
the messages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from tools.release.components import Component
from tools.release.errors import ReleaseError
from tools.release.versions import Level, Version

#: How git-cliff sorts commits, and what their notes look like.
CONFIGURATION: Final = "cliff.toml"
#: The groups of its configuration that mean more than a patch. Their numbers are their order.
_BREAKING: Final = "Breaking"
_ADDED: Final = "Added"
#: No tag: everything in the range is one release, whichever other components were released in it.
_NO_TAG: Final = "^$"
#: A release without commits, as git-cliff would read it.
_NOTHING: Final[dict[str, Any]] = {
    "commits": [],
    "submodule_commits": {},
    **{
        forge: {"contributors": []}
        for forge in ("github", "gitlab", "gitea", "bitbucket", "azure_devops")
    },
}


class Commit(msgspec.Struct, frozen=True):
    """As git-cliff shows it, of which this is what is decided by."""

    id: str
    raw_message: str
    group: str = ""
    breaking: bool = False

    @property
    def title(self) -> str:
        return self.raw_message.partition("\n")[0]

    @property
    def level(self) -> Level:
        if self.breaking or self.group.endswith(_BREAKING):
            return Level.MAJOR
        return Level.MINOR if self.group.endswith(_ADDED) else Level.PATCH


class Release(msgspec.Struct, frozen=True):
    commits: list[Commit] = []


class Repository:
    def __init__(self, root: Path) -> None:
        self.root = root

    def check(self) -> None:
        """Raises ReleaseError where no plan could be right."""
        if self._git("rev-parse", "--is-shallow-repository").strip() == "true":
            raise ReleaseError(
                "The history here is cut short, and with it what was released before: run `git fetch "
                "--unshallow --tags` first."
            )

    def last_release(self, component: Component) -> Version | None:
        """By tags on the way to HEAD; those of other branches are not what HEAD continues."""
        prefix = f"{component.name}-"
        tags = self._git("tag", "--list", "--merged", "HEAD", f"{prefix}*").split()
        found = (Version.parse(tag.removeprefix(prefix)) for tag in tags)
        return max((version for version in found if version), default=None)

    def since(self, component: Component, last: Version | None) -> bytes:
        """The commits that touch one of its paths, in git-cliff's own form."""
        included = [word for glob in component.globs for word in ("--include-path", glob)]
        span = [f"{component.name}-{last}..HEAD"] if last else []
        return self.cliff("--context", "--tag-pattern", _NO_TAG, *included, "--", *span)

    def files(self, commit: str) -> list[str]:
        shown = self._git("show", "--format=", "--name-only", "--first-parent", "-z", commit)
        return [file for file in shown.split("\0") if file]

    def committed(self, file: str) -> str | None:
        """A file as HEAD has it; `None` if it has none."""
        if not self._git("ls-tree", "--name-only", "HEAD", "--", file):
            return None
        return self._git("show", f"HEAD:{file}")

    def time(self) -> int:
        return int(self._git("show", "--no-patch", "--format=%ct", "HEAD"))

    def cliff(self, *arguments: str) -> bytes:
        program = shutil.which(
            "git-cliff",
            path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        )
        if program is None:
            raise ReleaseError("git-cliff is not there: run `make setup`.")
        return self._run([program, "--config", CONFIGURATION, *arguments])

    def _git(self, *arguments: str) -> str:
        return self._run(["git", *arguments]).decode("utf-8", errors="replace")

    def _run(self, command: Sequence[str]) -> bytes:
        try:
            return subprocess.run(command, cwd=self.root, capture_output=True, check=True).stdout
        except FileNotFoundError as error:
            raise ReleaseError(f"{command[0]} is not there: install it.") from error
        except subprocess.CalledProcessError as error:
            said = error.stderr.decode(errors="replace").strip().splitlines() or ["nothing"]
            name = Path(command[0]).name
            raise ReleaseError(f"{name} failed, and its last words were: {said[-1]}.") from error


def commits(context: bytes) -> list[Commit]:
    try:
        releases = msgspec.json.decode(context, type=list[Release])
    except msgspec.MsgspecError as error:
        raise ReleaseError(f"git-cliff's answer is not understood: {error}.") from error
    return [commit for release in releases for commit in release.commits]


def named(context: bytes, *, version: Version, time: int, pinned: Sequence[str]) -> bytes:
    """The context of a release that is not tagged yet, for notes to be made of."""
    releases: list[dict[str, Any]] = json.loads(context)
    release = releases[0] if releases else _NOTHING
    ours = {"version": str(version), "timestamp": time, "extra": {"pinned": list(pinned)}}
    return json.dumps([{**release, **ours}]).encode()
