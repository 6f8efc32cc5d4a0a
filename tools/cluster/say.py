"""Prints progress, line by line: a step that takes minutes must not look dead."""

from __future__ import annotations

import sys


def say(line: str) -> None:
    sys.stderr.write(f"cluster: {line}\n")
    sys.stderr.flush()
