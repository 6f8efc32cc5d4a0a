"""What a container's status says about its runner's process: whether it ever ran, and how it ended.

Whether a Pod may be deleted depends on these answers. A Pod was once deleted under a running job
because a sweep did not check whether its runner had started (I34). "Lost communication" could not be
explained for weeks because the exit code was not read before the Pod was reaped (I58). So an unfamiliar
shape is never interpreted: it yields no fingerprint, and it protects its Pod.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from paddock.domain.runners.dialects import RunnerProgram, dialect

#: The container that executes jobs, in every Pod shape.
RUNNER_CONTAINER: Final = "runner"

#: Linux's numbers of the signals that end runners.
_SIGNALS: Final = {
    2: "SIGINT",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    15: "SIGTERM",
}
#: The kubelet's reasons for any exit code but 0, and for 0. A clean exit with 100 would read as an
#: error.
_SAYS_NOTHING: Final = ("Error", "Completed")


class Waiting(msgspec.Struct, frozen=True, rename="camel"):
    reason: str = ""


class Running(msgspec.Struct, frozen=True, rename="camel"):
    started_at: datetime | None = None


class Terminated(msgspec.Struct, frozen=True, rename="camel"):
    exit_code: int | None = None
    signal: int = 0
    reason: str = ""
    finished_at: datetime | None = None
    #: What the container wrote to its termination log: untrusted, 4 KiB at most.
    message: str = ""


class ContainerState(msgspec.Struct, frozen=True, rename="camel"):
    """At most one of the three is set. The kubelet sets none only for a last state that never
    existed."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None

    @property
    def understood(self) -> bool:
        return [self.waiting, self.running, self.terminated].count(None) >= 2


class ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The part of Kubernetes' container status that endings are read from, under its own names: the
    kube fleet decodes it, the local fleet fills it in from a process."""

    name: str
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    started: bool | None = None


class Source(StrEnum):
    """Where in a container's status the fingerprint was found."""

    STATE = "state"
    LAST_STATE = "lastState"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """How the runner's process ended. `signal` is mostly absent: the kubelet reports exit code 128 + n
    instead."""

    exit_code: int
    signal: int | None = None
    reason: str = ""
    finished_at: datetime | None = None
    source: Source = Source.STATE
    #: Whose exit code it is, as far as its pool tells.
    program: RunnerProgram = RunnerProgram.UNKNOWN

    def __str__(self) -> str:
        said = describe_exit(self.exit_code, self.signal, self.reason, self.program)
        return f"{said}, of its last life" if self.source is Source.LAST_STATE else said


def describe_exit(
    exit_code: int | None,
    signal: int | None,
    reason: str | None,
    program: RunnerProgram = RunnerProgram.UNKNOWN,
) -> str:
    """How a process ended, for people; empty if nothing is known. After a signal, the code is not the
    runner's."""
    parts = []
    if exit_code is not None:
        codes = dialect(program).meanings
        meaning = "" if signal else codes.get(exit_code) or _SIGNALS.get(exit_code - 128, "")
        parts.append(f"exit code {exit_code}" + (f": {meaning}" if meaning else ""))
    if signal:
        name = _SIGNALS.get(signal)
        parts.append(f"signal {signal}" + (f" ({name})" if name else ""))
    if reason and reason not in _SAYS_NOTHING:
        parts.append(f"reason {reason}")
    return ", ".join(parts)


class Certainty(StrEnum):
    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


def fingerprint(
    statuses: Sequence[ContainerStatus], program: RunnerProgram = RunnerProgram.UNKNOWN
) -> Fingerprint | None:
    """`None` for a runner that has not ended or is absent, and for a status of unknown shape."""
    runner = _runner(statuses)
    if runner is None or runner.state.running:
        return None
    if runner.state.terminated:
        return _read(runner.state.terminated, Source.STATE, program)
    if runner.last_state.terminated:
        return _read(runner.last_state.terminated, Source.LAST_STATE, program)
    return None


def ever_started(statuses: Sequence[ContainerStatus]) -> Certainty:
    """Whether the runner's container ever ran. Only `NO` counts against a Pod. It takes a container
    that says it is waiting, or no status at all. An unknown shape is `UNKNOWN` and protects its Pod
    (I34). In a Pod whose one container polls and runs, this is `YES` from the first second and says
    nothing about jobs."""
    if not statuses:
        return Certainty.NO
    runner = _runner(statuses)
    if runner is None:
        return Certainty.UNKNOWN
    traces = (runner.state.running, runner.state.terminated, runner.last_state.terminated)
    if runner.started or any(traces):
        return Certainty.YES
    return Certainty.NO if runner.state.waiting else Certainty.UNKNOWN


def _runner(statuses: Sequence[ContainerStatus]) -> ContainerStatus | None:
    match [status for status in statuses if status.name == RUNNER_CONTAINER]:
        case [only] if only.state.understood and only.last_state.understood:
            return only
        case _:
            return None


def _read(ended: Terminated, source: Source, program: RunnerProgram) -> Fingerprint | None:
    if ended.exit_code is None:
        return None
    return Fingerprint(
        exit_code=ended.exit_code,
        signal=ended.signal or None,
        reason=ended.reason,
        finished_at=ended.finished_at,
        source=source,
        program=program,
    )
