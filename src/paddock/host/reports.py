"""The report of a bootstrap to the cluster: a condition of the Node, and an event when that changes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

#: A host whose condition is not `True` gets no runners of any pool.
CONDITION: Final = "PaddockHostReady"
READY: Final = "Bootstrapped"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """The outcome of one attempt. `failed` names the step that failed."""

    failed: str | None = None
    words: str = ""

    @property
    def reason(self) -> str:
        """One word, as in a condition's `reason`."""
        return READY if self.failed is None else f"{self.failed.capitalize()}Failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    at: datetime
    ready: bool
    reason: str
    message: str
    #: The number of failures in a row.
    failures: int
    #: Whether the report changes what is known; then an event is created too.
    news: bool


class ReportFailed(Exception):
    """The report did not reach the cluster."""


class Reports(Protocol):
    def send(self, report: Report) -> None:
        """Raises ReportFailed."""
        ...
