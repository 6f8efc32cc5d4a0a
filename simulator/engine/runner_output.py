"""What the simulated runner programs write and exit with: actions/runner, github-act-runner, and a
program that paddock does not know."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Speech:
    #: As the start script names it.
    name: str
    connected: tuple[str, ...]
    running: str
    finished: str
    #: Its exit code says what became of its job.
    tells_results: bool

    @property
    def started(self) -> str:
        return f"paddock: starting the runner ({self.name})"

    def code(self, code: int) -> int:
        """The exit code where actions/runner would end with `code`."""
        return 0 if code >= 100 and code < 128 and not self.tells_results else code


ACTIONS: Final = Speech(
    "actions",
    ("√ Connected to GitHub", "Listening for Jobs"),
    "2026-01-05 09:00:00Z: Running job: {name}",
    "Job {name} completed with result: {result}",
    tells_results=True,
)
ACT_RUNNER: Final = Speech(
    "act-runner",
    ("Listening for Jobs: runner ( https://github.example/acme )",),
    "runner ( https://github.example/acme ): Running Job '{name}'",
    "runner ( https://github.example/acme ): Finished Job '{name}' with Status {result}",
    tells_results=False,
)
STRANGE: Final = Speech(
    "unknown",
    ("ready for work",),
    "{name} begins",
    "{name} is over: {result}",
    tells_results=False,
)


def of_pod(name: str) -> Speech:
    """A quarter of all Pods run the third-party program. Drawn from the name, so that it costs no
    draw."""
    return ACT_RUNNER if zlib.crc32(name.encode()) % 4 == 0 else ACTIONS
