"""The changes since a component was last released: git has the tags, the files and the messages."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tools.commits import Message
from tools.release.components import Component
from tools.release.errors import ReleaseError
from tools.release.versions import Level, Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    id: str
    message: Message

    @property
    def level(self) -> Level:
        if self.message.breaking:
            return Level.MAJOR
        return Level.MINOR if self.message.type == "feat" else Level.PATCH


class Repository:
    def __init__(self, root: Path) -> None:
        self.root = root

    def check(self) -> None:
        """Raises ReleaseError if no plan could be right."""
        if self._git("rev-parse", "--is-shallow-repository").strip() == "true":
            raise ReleaseError(
                "The history here is cut short, and with it what was released before: run `git fetch "
                "--unshallow --tags` first."
            )

    def last_release(self, component: Component) -> Version | None:
        """By tags that HEAD descends from; tags of other branches do not count."""
        prefix = f"{component.name}-"
        tags = self._git("tag", "--list", "--merged", "HEAD", f"{prefix}*").split()
        found = (Version.parse(tag.removeprefix(prefix)) for tag in tags)
        return max((version for version in found if version), default=None)

    def since(self, component: Component, last: Version | None) -> list[Commit]:
        """The commits that touch one of its paths, oldest first."""
        span = f"{component.name}-{last}..HEAD" if last else "HEAD"
        log = self._git("log", "-z", "--reverse", "--format=%H%n%B", span, "--", *component.paths)
        entries = (entry.partition("\n") for entry in log.split("\0") if entry)
        return [Commit(id=found, message=Message.parse(text)) for found, _, text in entries]

    def files(self, commit: str) -> list[str]:
        shown = self._git("show", "--format=", "--name-only", "--first-parent", "-z", commit)
        return [file for file in shown.split("\0") if file]

    def committed(self, file: str) -> str | None:
        """A file as HEAD has it; `None` if it has none."""
        if not self._git("ls-tree", "--name-only", "HEAD", "--", file):
            return None
        return self._git("show", f"HEAD:{file}")

    def date(self) -> str:
        return self._git("show", "--no-patch", "--format=%cs", "HEAD").strip()

    def _git(self, *arguments: str) -> str:
        try:
            done = subprocess.run(
                ["git", "--literal-pathspecs", *arguments],  # noqa: S607
                cwd=self.root,
                capture_output=True,
                check=True,
            )
        except FileNotFoundError as error:
            raise ReleaseError("git is not there: install it.") from error
        except subprocess.CalledProcessError as error:
            said = error.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
            raise ReleaseError(f"git {arguments[0]} failed: {said[-1]}.") from error
        return done.stdout.decode("utf-8", errors="replace")
