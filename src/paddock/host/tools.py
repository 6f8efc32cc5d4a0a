"""The macOS programs that this package calls, and their messages when they fail."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: They answer in milliseconds. A program that hangs must not keep its failure from being reported.
_TIMEOUT_S: Final = 30.0
#: pfctl writes these lines to stderr on each call.
_NOISE: Final = ("No ALTQ support in kernel", "ALTQ related functions disabled", "Use of -f option")
#: A condition's message is for people to read.
_LONGEST: Final = 400


class ToolFailed(Exception):
    """The program's own message, in one line."""


class StepFailed(Exception):
    """A step failed; the only known reason is the message of its program."""

    def __init__(self, step: str, why: str) -> None:
        super().__init__(why)
        self.step = step


@dataclass(frozen=True, slots=True)
class Tool:
    command: Sequence[str]

    def run(self, *arguments: str) -> str:
        """Returns what the program printed. Raises ToolFailed."""
        name = Path(self.command[-1]).name
        try:
            done = subprocess.run(
                [*self.command, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TIMEOUT_S,
                check=False,
                env={**os.environ, "LC_ALL": "C"},
            )
        except OSError as error:
            raise ToolFailed(f"{name} cannot be started: {error.strerror}") from error
        except subprocess.TimeoutExpired as error:
            raise ToolFailed(f"{name} did not end within {_TIMEOUT_S:g} s") from error
        if done.returncode != 0:
            said = [
                line.strip()
                for line in done.stderr.decode(errors="replace").splitlines()
                if line.strip() and not line.startswith(_NOISE)
            ]
            words = "; ".join(said)[:_LONGEST] or f"{name} ended with {done.returncode}"
            raise ToolFailed(words)
        return done.stdout.decode(errors="replace")
