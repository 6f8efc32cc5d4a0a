"""A scratch repository with components of its own, each with more than one path."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tools.release.__main__ import main

_COMPONENTS = """
[[component]]
name = "server"
paths = ["server/", "requirements.lock"]
versions = [
  { file = "server/__init__.py", key = "__version__" },
  { file = "chart/values.yaml", key = "image.tag" },
]

[[component]]
name = "operator"
paths = ["infra/operator/", "infra/host-bootstrap/"]
versions = [{ file = "chart/values.yaml", key = "operator.image.tag" }]

[[component]]
name = "chart"
paths = ["chart/"]
versions = [{ file = "chart/Chart.yaml", key = "version" }]
"""

_VALUES = """\
# Which image.
image:
  repository: paddock
  tag: "0.1.0"  # the server's
operator:
  replicas: 1
  image:
    tag: "0.1.0"
"""


_FILES = {
    "tools/release/components.toml": _COMPONENTS,
    "server/__init__.py": '__version__ = "0.1.0"\n',
    "requirements.lock": "",
    "infra/operator/main.go": "",
    "infra/host-bootstrap/bootstrap.go": "",
    "chart/values.yaml": _VALUES,
    "chart/Chart.yaml": 'name: paddock\nversion: "0.1.0"\n',
    "docs/page.md": "",
    "CHANGELOG.md": "# Changelog\n\n## [Unreleased]\n\n### Fixed\n\n- A word.\n",
}


@dataclass(frozen=True, slots=True)
class Scratch:
    root: Path
    capsys: pytest.CaptureFixture[str]

    def git(self, *arguments: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
        done = subprocess.run(
            ["git", *who, *arguments], cwd=self.root, check=True, capture_output=True, text=True
        )
        return done.stdout

    def commit(self, message: str, *files: str) -> None:
        """A commit that touches these files."""
        for file in files:
            path = self.root / file
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a") as opened:
                opened.write(f"# {message.splitlines()[0]}\n")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)

    def tag(self, *names: str) -> None:
        for name in names:
            self.git("tag", name)

    def run(self, *arguments: str) -> str:
        """Its output; it must succeed."""
        code, out, err = self.attempt(*arguments)
        assert code == 0, err
        return out

    def attempt(self, *arguments: str) -> tuple[int, str, str]:
        self.capsys.readouterr()
        code = main(["--repository", str(self.root), *arguments])
        told = self.capsys.readouterr()
        return code, told.out, told.err

    def plan(self) -> dict[str, Any]:
        """What is planned for release, by component."""
        planned = json.loads(self.run("plan", "--json"))
        return {one["component"]: one for one in planned if one["level"]}

    def versions(self) -> dict[str, str]:
        return {name: one["version"] for name, one in self.plan().items()}

    def text(self, file: str) -> str:
        return (self.root / file).read_text()

    def fill(self) -> None:
        """A first commit, with every component released as 0.1.0."""
        for file, text in _FILES.items():
            (self.root / file).parent.mkdir(parents=True, exist_ok=True)
            (self.root / file).write_text(text)
        self.git("init", "--quiet", "--initial-branch", "main")
        self.commit("chore: begin")
        self.tag("server-0.1.0", "operator-0.1.0", "chart-0.1.0")
