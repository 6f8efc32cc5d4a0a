"""What happened, in order: hashed to compare two runs of a seed, and kept for readers."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TraceLine:
    step: int
    at: float
    who: str
    what: str

    def __str__(self) -> str:
        minutes, seconds = divmod(self.at, 60)
        return f"{self.step:>7}  {int(minutes):>3}:{seconds:06.3f}  {self.who:<12} {self.what}"


class Trace:
    def __init__(
        self,
        *,
        step: Callable[[], int],
        now: Callable[[], float],
        keep: bool = False,
        tell: Callable[[TraceLine], None] | None = None,
    ) -> None:
        self._step = step
        self._now = now
        self._keep = keep
        self._tell = tell
        self._hash = hashlib.blake2b(digest_size=16)
        self.lines: list[TraceLine] = []
        #: How often each fault, rule and transition occurred.
        self.exercised: Counter[str] = Counter()

    def note(self, who: str, what: str) -> None:
        step, now = self._step(), self._now()
        self._hash.update(f"{step} {now!r} {who} {what}\n".encode())
        if self._keep or self._tell:
            line = TraceLine(step, now, who, what)
            if self._keep:
                self.lines.append(line)
            if self._tell:
                self._tell(line)

    def remark(self, who: str, what: str) -> None:
        """For readers only: two runs need not have it in common."""
        if self._keep or self._tell:
            line = TraceLine(self._step(), self._now(), who, what)
            if self._keep:
                self.lines.append(line)
            if self._tell:
                self._tell(line)

    def count(self, what: str) -> None:
        self.exercised[what] += 1

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()
