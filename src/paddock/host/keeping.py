"""Attempts, one after the other: until one succeeds, or for as long as the host is up."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from paddock.host.errors import ReportFailed
from paddock.host.reports import Outcome, Report, Reports

#: What passes by itself (a lock, a reload by somebody else) has passed in a second.
FIRST_PAUSE_S: Final = 1.0
#: Whoever has removed the cause waits no longer than this for the host to be back.
LONGEST_PAUSE_S: Final = 60.0
#: In a row, before the cluster is told: pools send away those who wait on a host that is not ready.
#: With the first pauses this is three seconds.
TOLD_FROM: Final = 3
#: Between two looks at what is in force: pf's rules are anybody's who is root, and macOS replaces
#: them when it is updated.
LOOK_EVERY_S: Final = 300.0


@dataclass(slots=True, kw_only=True)
class Keeping:
    attempt: Callable[[], Outcome]
    reports: Reports | None
    now: Callable[[], datetime]
    sleep: Callable[[float], None]
    say: Callable[[str], None]
    failures: int = 0
    _since: datetime | None = None
    #: What the cluster was last told, if it was.
    _told: str | None = None
    #: What was last said here, so that a log of years is not the same line every minute.
    _said: str | None = None

    def until_it_succeeds(self, attempts: int) -> Outcome:
        """Or until so many were made. The last is told, however it went."""
        while True:
            outcome = self._once(last=self.failures + 1 >= attempts)
            if outcome.failed is None or self.failures >= attempts:
                return outcome
            self.sleep(self._pause())

    def for_ever(self) -> None:
        while True:
            outcome = self._once()
            self.sleep(LOOK_EVERY_S if outcome.failed is None else self._pause())

    def _once(self, *, last: bool = False) -> Outcome:
        outcome = self._attempted()
        before = self.failures
        if outcome.failed is None:
            self.failures, self._since = 0, None
            line = f"ready: {outcome.words}"
        else:
            self.failures += 1
            self._since = self._since or self.now()
            line = f"{outcome.failed} failed: {outcome.words}"
        if line != self._said or self._is_notable():
            self.say(f"{line} {self.failures} in a row." if self.failures > 1 else line)
            self._said = line
        if outcome.failed is None or last or self.failures >= TOLD_FROM:
            self._tell(outcome, before)
        return outcome

    def _attempted(self) -> Outcome:
        try:
            return self.attempt()
        except Exception as error:  # a mistake of ours must not loop in silence either
            return Outcome(failed="run", words=f"unexpected {type(error).__name__}: {error}.")

    def _pause(self) -> float:
        """Between a half and the whole of it: hosts of one fleet fail at the same moment."""
        longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self.failures - 1, 16))
        return longest * random.uniform(0.5, 1.0)  # noqa: S311  nobody is to be surprised by it

    def _tell(self, outcome: Outcome, failed_before: int) -> None:
        if self.reports is None:
            return
        message = outcome.words
        if outcome.failed is not None:
            assert self._since is not None
            message += (
                f" {self.failures} attempts failed since {self._since:%Y-%m-%d %H:%M:%S} UTC."
            )
        elif failed_before:
            message += f" {failed_before} attempts before had failed."
        report = Report(
            at=self.now(),
            ready=outcome.failed is None,
            reason=outcome.reason,
            message=message,
            failures=self.failures,
            news=outcome.reason != self._told or self._is_notable(),
        )
        try:
            self.reports.send(report)
            self._told = outcome.reason
        except ReportFailed as error:
            self.say(f"the cluster was not told: {error}")

    def _is_notable(self) -> bool:
        """The 4th, 8th, 16th, … failure of the same kind: whoever watches events sees that it goes
        on, and the cluster does not get two thousand of them."""
        return self.failures >= TOLD_FROM and self.failures & (self.failures - 1) == 0
