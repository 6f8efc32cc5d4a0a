"""Repeats attempts: until one succeeds, or for as long as the host is up."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from paddock.host.reports import AttemptResult, Report, ReportFailed, Reports

#: Passing causes (a lock, a reload by another process) are over within a second.
FIRST_PAUSE_S: Final = 1.0
#: Once the cause is removed, the host is back within this time.
LONGEST_PAUSE_S: Final = 60.0
#: Failures in a row before the cluster is told: pools send away the runners that wait on a host that is
#: not ready. With the first pauses this takes three seconds.
TOLD_FROM: Final = 3
#: Seconds between checks of the rules in force: any root process may change pf's rules, and updates of
#: macOS replace them.
LOOK_EVERY_S: Final = 300.0


@dataclass(slots=True, kw_only=True)
class Retrying:
    attempt: Callable[[], AttemptResult]
    reports: Reports | None
    now: Callable[[], datetime]
    sleep: Callable[[float], None]
    say: Callable[[str], None]
    failures: int = 0
    _since: datetime | None = None
    #: The reason in the last report that reached the cluster, if any.
    _told: str | None = None
    #: The last line that was logged, so that the same line is not logged every minute for years.
    _said: str | None = None

    def until_it_succeeds(self, attempts: int) -> AttemptResult:
        """Stops after this many attempts. The outcome of the last one is always reported."""
        while True:
            outcome = self._once(last=self.failures + 1 >= attempts)
            if outcome.failed is None or self.failures >= attempts:
                return outcome
            self.sleep(self._pause())

    def for_ever(self) -> None:
        while True:
            outcome = self._once()
            self.sleep(LOOK_EVERY_S if outcome.failed is None else self._pause())

    def _once(self, *, last: bool = False) -> AttemptResult:
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

    def _attempted(self) -> AttemptResult:
        try:
            return self.attempt()
        except Exception as error:  # a bug must be reported, not repeated in silence
            return AttemptResult(failed="run", words=f"unexpected {type(error).__name__}: {error}.")

    def _pause(self) -> float:
        """Between half the pause and all of it: hosts of one fleet fail at the same moment."""
        longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self.failures - 1, 16))
        return longest * random.uniform(0.5, 1.0)  # noqa: S311  it need not be unpredictable

    def _tell(self, outcome: AttemptResult, failed_before: int) -> None:
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
        """True for the 4th, 8th, 16th, … failure in a row: an operator sees in the events that it goes
        on, and the cluster does not get two thousand events."""
        return self.failures >= TOLD_FROM and self.failures & (self.failures - 1) == 0
