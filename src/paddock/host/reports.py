"""How a bootstrap went, as the cluster is told: a condition of the Node, and an event when that
changes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

#: Pools go by it: a host whose condition is not `True` gets no runners.
CONDITION: Final = "PaddockHostReady"
READY: Final = "Bootstrapped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Of one attempt. `failed` names the step that did not succeed."""

    failed: str | None = None
    words: str = ""

    @property
    def reason(self) -> str:
        """One word, as conditions have it."""
        return READY if self.failed is None else f"{self.failed.capitalize()}Failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    at: datetime
    ready: bool
    reason: str
    message: str
    #: How often in a row it has failed.
    failures: int
    #: Whether it is news: then there is an event of it too.
    news: bool


class Reports(Protocol):
    def send(self, report: Report) -> None:
        """Raises ReportFailed."""
        ...
