"""A simulated Mac: a root directory, and programs that replace pf and launchd."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import paddock.host
from paddock.host.anchor import NAME
from paddock.host.bootstrap import Bootstrap
from paddock.host.configuration import read
from paddock.host.launchd import LaunchdJobs
from paddock.host.packet_filter import PacketFilter
from paddock.host.reports import AttemptResult, Report, ReportFailed
from paddock.host.retrying import Retrying
from paddock.host.tools import Tool

_HERE = Path(__file__).parent
PYTHON = (sys.executable, "-I", "-S")
PFCTL = (*PYTHON, str(_HERE / "pfctl.py"))
LAUNCHCTL = (*PYTHON, str(_HERE / "launchctl.py"))
BUSY = "/etc/pf.anchors/paddock.runners:2: cannot define table vm_sources: Resource busy"


class Enough(BaseException):
    """Ends an endless loop once the test has seen enough."""


@dataclass
class Mac:
    root: Path
    reports: list[Report] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    paused: list[float] = field(default_factory=list)
    #: Called at each pause.
    meanwhile: Callable[[int], None] = lambda _: None
    unreachable: bool = False
    _now: datetime = datetime(2026, 5, 16, 12, tzinfo=UTC)

    @staticmethod
    def made(root: Path, monkeypatch: pytest.MonkeyPatch) -> Mac:
        monkeypatch.setenv("STAND_IN", str(root / "state"))
        mac = Mac(root)
        mac.program.touch(mode=0o755)
        mac.configure('node = "mac-1"')
        (root / "etc").mkdir()
        (root / "etc/pf.conf").write_text('scrub-anchor "com.apple/*"\n')
        return mac

    @property
    def file(self) -> Path:
        return self.root / "host.toml"

    @property
    def program(self) -> Path:
        """The program that runs virtual machines."""
        return self.root / "machines"

    @property
    def rules_file(self) -> Path:
        return self.root / "etc/pf.anchors" / NAME

    def configure(self, text: str) -> None:
        self.file.write_text(f"{text}\n")

    @property
    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.root / "state").read_text())
        return found

    def change(self, **changes: Any) -> None:
        path = self.root / "state"
        state = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**state, **changes}))

    def fail(self, of: str, *, times: int = 1000, words: str = BUSY) -> None:
        self.change(fail=[{"of": of, "times": times, "words": words}])

    def calls(self, of: str) -> list[str]:
        return [call for call in self.state["calls"] if of in call]

    def forget_calls(self) -> None:
        self.change(calls=[])

    @property
    def in_force(self) -> list[str]:
        rules: list[str] = self.state["anchors"].get(NAME, {}).get("rules", [])
        return rules

    @property
    def tables(self) -> dict[str, list[str]]:
        tables: dict[str, list[str]] = self.state["anchors"][NAME]["tables"]
        return tables

    @property
    def jobs(self) -> dict[str, list[str]]:
        path = self.root / "state.jobs"
        found: dict[str, list[str]] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def bootstrap(self, *, reload: bool = False, started_as: str | None = None) -> Bootstrap:
        return Bootstrap(
            read=lambda: read(self.file),
            file=self.file,
            lock=self.root / "lock",
            filtering=PacketFilter(pfctl=Tool(PFCTL), root=self.root / "etc"),
            launching=LaunchdJobs(
                launchctl=Tool(LAUNCHCTL),
                daemons=self.root / "Library/LaunchDaemons",
                ours=self.root / "etc/paddock/launch",
                logs=self.root / "var/log/paddock",
                started_as=started_as,
            ),
            reload=reload,
        )

    def keeping(self, attempt: Callable[[], AttemptResult] | None = None) -> Retrying:
        """`attempt`: instead of a real one."""
        return Retrying(
            attempt=attempt or self.bootstrap().attempt,
            reports=self,
            now=lambda: self._now,
            sleep=self._sleep,
            say=self.said.append,
        )

    def command(self, *options: str) -> subprocess.CompletedProcess[str]:
        """As on a Mac: only the directory, no environment, and replaced programs."""
        where = ("--config", str(self.file), "--root", str(self.root))
        return subprocess.run(
            [
                *(*PYTHON, str(Path(paddock.host.__file__).parent), "bootstrap", *where, *options),
                *("--pfctl", PFCTL[0], PFCTL[-1], "--launchctl", LAUNCHCTL[0], LAUNCHCTL[-1]),
            ],
            env={"STAND_IN": os.environ["STAND_IN"], "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            check=False,
        )

    def _sleep(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        self.paused.append(seconds)
        self.meanwhile(len(self.paused))

    def send(self, report: Report) -> None:
        if self.unreachable:
            raise ReportFailed("mac-1 could not read its Node: no answer.")
        self.reports.append(report)

    @property
    def told(self) -> list[tuple[bool, str]]:
        return [(report.ready, report.reason) for report in self.reports]
