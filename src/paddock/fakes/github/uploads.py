"""What runners have uploaded for their jobs: states of steps, results, and logs.

A fake that runs for days must not grow for ever, and a job chooses what it uploads. So each job has a
limit, and of all jobs the newest are kept. What exceeds a limit is left out.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

#: The largest size of one log. A job may write without end.
LOG_OCTETS: Final = 1 << 20
#: The largest size of all that one job has uploaded.
JOB_OCTETS: Final = 16 << 20
#: The largest size of all uploads together.
ALL_OCTETS: Final = 64 << 20
#: A decoded object uses some eight times as much memory as its JSON.
_OBJECT_COST: Final = 8
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
    #: The memory that all of this uses.
    octets: int = 0

    @property
    def room(self) -> int:
        return max(0, JOB_OCTETS - self.octets)

    def log(self, step: str = "") -> str:
        return self.logs.get(step, b"").decode(errors="replace")

    def text(self) -> str:
        """The log of the whole job; without one, its steps' logs in their order."""
        return self.log() or "".join(self.log(step) for step in self.logs)


class Uploads:
    """All uploads, by the job's number."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[int, JobUploads] = OrderedDict()
        self.octets = 0

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
        self.octets -= dropped.octets

    def _charge(self, uploads: JobUploads, octets: int) -> None:
        uploads.octets += octets
        self.octets += octets
        while self.octets > ALL_OCTETS and len(self._jobs) > 1:
            self._drop_oldest()

    def write(self, job: int, step: str, content: bytes, *, append: bool) -> None:
        uploads = self._for(job)
        logs = uploads.logs
        if step not in logs:
            name = sys.getsizeof(step)
            if len(logs) >= _STEPS or name > uploads.room:
                return
            logs[step] = bytearray()
            self._charge(uploads, name)
        log = logs[step]
        before = len(log)
        if not append:
            log.clear()
        log += content[: min(LOG_OCTETS - len(log), uploads.room + before - len(log))]
        self._charge(uploads, len(log) - before)

    def update_steps(self, job: int, steps: list[dict[str, Any]]) -> None:
        uploads = self._for(job)
        known = uploads.steps
        for step in steps:
            name = str(step.get("external_id", ""))
            more = _memory(step) - _memory(known.get(name))
            if (name in known or len(known) < _STEPS) and more <= uploads.room:
                known[name] = step
                self._charge(uploads, more)

    def complete(self, job: int, results: list[dict[str, Any]], outputs: dict[str, Any]) -> None:
        uploads = self._for(job)
        results = results[:_STEPS]
        size = _memory(results) + _memory(outputs)
        if size <= uploads.room:
            uploads.results, uploads.outputs = results, outputs
            self._charge(uploads, size)

    def say(self, job: int, lines: list[str]) -> None:
        uploads = self._for(job)
        for line in lines[: _FEED_LINES - len(uploads.feed)]:
            size = sys.getsizeof(line)
            if size <= uploads.room:
                uploads.feed.append(line)
                self._charge(uploads, size)


def _memory(object_: Any) -> int:
    return 0 if object_ is None else _OBJECT_COST * len(msgspec.json.encode(object_))
