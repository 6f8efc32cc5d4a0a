"""What runners have uploaded for their jobs: states of steps, results, and logs.

A fake that runs for days must not grow for ever: a log is kept up to a limit, and of the logs of all
jobs the newest.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final

#: The largest size of one log. A job may write without end.
LOG_OCTETS: Final = 1 << 20
#: The largest size of all logs together.
_ALL_OCTETS: Final = 64 << 20
#: The largest number of lines that a runner shows while its step runs.
_FEED_LINES: Final = 1000
_STEPS: Final = 1000
_KEPT_JOBS: Final = 10_000


@dataclass(slots=True)
class JobUploads:
    #: Octets by the step's id; the whole job's are under "".
    logs: dict[str, bytearray] = field(default_factory=dict)
    #: How the runner's updates describe each step, by its id.
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: What the runner reported at the end.
    results: list[dict[str, Any]] = field(default_factory=list)
    outputs: dict[str, Any] = field(default_factory=dict)
    #: Lines sent while steps ran.
    feed: list[str] = field(default_factory=list)

    def log(self, step: str = "") -> str:
        return self.logs.get(step, b"").decode(errors="replace")

    def text(self) -> str:
        """The log of the whole job; without one, its steps' logs in their order."""
        return self.log() or "".join(self.log(step) for step in self.logs)


class Uploads:
    """All uploads, by the job's number."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[int, JobUploads] = OrderedDict()
        self._octets = 0

    def of(self, job: int) -> JobUploads:
        """For reading; empty if nothing was uploaded."""
        return self._jobs.get(job) or JobUploads()

    def _for(self, job: int) -> JobUploads:
        found = self._jobs.setdefault(job, JobUploads())
        while len(self._jobs) > _KEPT_JOBS:
            self._drop_oldest()
        return found

    def _drop_oldest(self) -> None:
        _, dropped = self._jobs.popitem(last=False)
        self._octets -= sum(map(len, dropped.logs.values()))

    def write(self, job: int, step: str, content: bytes, *, append: bool) -> None:
        logs = self._for(job).logs
        if step not in logs and len(logs) >= _STEPS:
            return
        log = logs.setdefault(step, bytearray())
        before = len(log)
        if not append:
            log.clear()
        log += content[: LOG_OCTETS - len(log)]
        self._octets += len(log) - before
        while self._octets > _ALL_OCTETS and len(self._jobs) > 1:
            self._drop_oldest()

    def update_steps(self, job: int, steps: list[dict[str, Any]]) -> None:
        known = self._for(job).steps
        for step in steps:
            name = str(step.get("external_id", ""))
            if name in known or len(known) < _STEPS:
                known[name] = step

    def complete(self, job: int, results: list[dict[str, Any]], outputs: dict[str, Any]) -> None:
        uploads = self._for(job)
        uploads.results, uploads.outputs = results[:_STEPS], outputs

    def say(self, job: int, lines: list[str]) -> None:
        feed = self._for(job).feed
        feed += lines[: _FEED_LINES - len(feed)]
