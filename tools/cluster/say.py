"""Progress, a line at a time: something that takes minutes must not look dead."""

from __future__ import annotations

import sys


def say(line: str) -> None:
    sys.stderr.write(f"cluster: {line}\n")
    sys.stderr.flush()
