"""The launchd jobs: this program, which keeps the rules in force while the host is up, and the program
that runs virtual machines, once the rules are in force.

macOS must not start the second program at boot: it would start before anything is filtered.
"""

from __future__ import annotations

import os
import plistlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from paddock.host import files
from paddock.host.tools import StepFailed, Tool, ToolFailed

KEEPER: Final = "dev.paddock.host"
MACHINES: Final = "dev.paddock.machines"
#: In the environment of jobs that launchd started, so that this program does not stop itself.
STARTED_AS: Final = "PADDOCK_HOST_STARTED_AS"
#: launchd waits this long between two starts of a program that ends at once (ten seconds by default).
#: Faster restarts would not help such a program.
_THROTTLE_S: Final = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchdJob:
    label: str
    program: Sequence[str]
    file: Path

    def text(self, logs: Path) -> str:
        described: dict[str, Any] = {
            "Label": self.label,
            "ProgramArguments": list(self.program),
            "EnvironmentVariables": {STARTED_AS: self.label},
            "RunAtLoad": True,
            "KeepAlive": True,
            "ThrottleInterval": _THROTTLE_S,
            "StandardOutPath": str(logs / f"{self.label}.log"),
            "StandardErrorPath": str(logs / f"{self.label}.log"),
        }
        return plistlib.dumps(described).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchdJobs:
    launchctl: Tool
    #: The directories of the jobs that macOS starts at boot, and of those that only paddock starts.
    daemons: Path
    ours: Path
    logs: Path
    #: The label this process was started under, if launchd did.
    started_as: str | None = None

    def keeper(self, configuration: Path) -> LaunchdJob:
        """This program, as it was started now."""
        here = str(Path(__file__).parent)
        program = [sys.executable, "-I", "-S", here, "bootstrap", "--keep"]
        return LaunchdJob(
            label=KEEPER,
            program=[*program, "--config", str(configuration)],
            file=self.daemons / f"{KEEPER}.plist",
        )

    def machines(self, program: Sequence[str]) -> LaunchdJob:
        return LaunchdJob(label=MACHINES, program=program, file=self.ours / f"{MACHINES}.plist")

    def apply(self, job: LaunchdJob, *, reload: bool = False) -> list[str]:
        """Returns what was done. A running job is not stopped for a changed description unless `reload`
        is true: it may run virtual machines with jobs in them."""
        if not os.access(job.program[0], os.X_OK):
            # launchd would accept it, and fail to start it again and again.
            raise StepFailed("launch", f"{job.program[0]} is no program that can be run")
        wanted = job.text(self.logs)
        current = files.text(job.file) == wanted
        loaded = self._is_loaded(job)
        if loaded and current:
            return []
        if loaded and job.label == self.started_as:
            files.write(job.file, wanted)
            return [f"wrote {job.label} again, for the next boot"]
        if loaded and not reload:
            return [f"left {job.label} as it runs, with its old description: drain, then --reload"]
        if loaded:
            self._run("bootout", f"system/{job.label}")
        self.logs.mkdir(parents=True, exist_ok=True)
        files.write(job.file, wanted)
        self._run("bootstrap", "system", str(job.file))
        if not self._is_loaded(job):
            raise StepFailed("launch", f"launchd took {job.label} and does not know it now")
        return [f"started {job.label}"]

    def _is_loaded(self, job: LaunchdJob) -> bool:
        try:
            self.launchctl.run("print", f"system/{job.label}")
        except ToolFailed as failed:
            if "Could not find service" in str(failed):
                return False
            raise StepFailed("launch", str(failed)) from failed
        return True

    def _run(self, *arguments: str) -> None:
        try:
            self.launchctl.run(*arguments)
        except ToolFailed as failed:
            raise StepFailed("launch", str(failed)) from failed
