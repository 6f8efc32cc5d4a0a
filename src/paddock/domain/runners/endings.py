"""How a runner ended.

"The self-hosted runner lost communication with the server" is what GitHub says of a clean exit, an OOM
kill, a drained node and a segmentation fault alike. Here the runner's fingerprint and the other
evidence become one `Ending`. Where nothing is known the ending is `unknown`, and that is abnormal: a
guess would hide the next incident (I58).

`RULES` is the whole table, in order; the first rule that holds decides. Evidence from the kernel and
the kubelet comes first, then requests to end the Pod, then the exit code. A runner that is told to stop
exits with 0, as if its job were done. One that is slow to stop is killed with 137, as if it had run out
of memory. So an exit code is taken at its word only if no end was requested.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Final

from paddock.domain.pods.fingerprints import Certainty, Fingerprint
from paddock.domain.runners.dialects import Dialect, dialect

#: For this long after an end was seen, paddock retries to read its log and circumstances (I79). A
#: restarted API server answers for its nodes again within a minute. A Pod kept in vain costs nothing.
LOG_WANTED_FOR: Final = timedelta(minutes=2)


class Ending(StrEnum):
    """Every way for a runner to end."""

    COMPLETED = "completed"
    HANDSHAKE_FAILED = "handshake-failed"
    HOST_OOM = "host-oom"
    GUEST_OOM_OR_KILL = "guest-oom-or-kill"
    TERMINATED = "terminated"
    CRASH = "crash"
    RUNNER_OUTDATED = "runner-outdated"
    EVICTED = "evicted"
    NODE_LOST = "node-lost"
    HARD_DELETED = "hard-deleted"
    NEVER_STARTED = "never-started"
    NEVER_REGISTERED = "never-registered"
    NEVER_RAN = "never-ran"
    LEFT = "left"
    SURPLUS = "surplus"
    UNKNOWN = "unknown"

    @property
    def meaning(self) -> str:
        return _MEANING[self]

    @property
    def abnormal(self) -> bool:
        """Whether its log is worth keeping. A result of the job's own steps is never abnormal: the
        runner exits cleanly after a failing test suite."""
        return self not in _NORMAL


_MEANING: Final[dict[Ending, str]] = {
    Ending.COMPLETED: "It ended by itself after its job, whatever the job's result.",
    Ending.HANDSHAKE_FAILED: (
        "It ended by itself, but it and GitHub had lost each other: its job is reported as lost "
        "although nothing died."
    ),
    Ending.HOST_OOM: "It reached its memory limit; the node's kernel killed it or a part of it.",
    Ending.GUEST_OOM_OR_KILL: (
        "It was killed from within, below its memory limit on the node: memory ran out inside its "
        "VM, or something in it sent SIGKILL."
    ),
    Ending.TERMINATED: "It was told to stop: its Pod was deleted or drained, or it got SIGTERM.",
    Ending.CRASH: "Its process failed by itself.",
    Ending.RUNNER_OUTDATED: "GitHub no longer accepts this version of the runner; renew its image.",
    Ending.EVICTED: "The kubelet threw it out to protect its node.",
    Ending.NODE_LOST: "Its node shut down or was lost, and how it ended there is not known.",
    Ending.HARD_DELETED: (
        "Its Pod vanished before anyone saw it end: a forced deletion, or the death of its node."
    ),
    Ending.NEVER_STARTED: "Its runner container never started.",
    Ending.NEVER_REGISTERED: "Its runner process ran, but GitHub never saw it online.",
    Ending.NEVER_RAN: "It ended without ever having had a job.",
    Ending.LEFT: "It was idle, no longer wanted, and was asked to go.",
    Ending.SURPLUS: "It was online, but had no job and none was waiting for it.",
    Ending.UNKNOWN: "Nothing tells how it ended.",
}

_NORMAL: Final = frozenset({Ending.COMPLETED, Ending.LEFT, Ending.SURPLUS})


class Retired(StrEnum):
    """Why paddock itself asked for the end."""

    UNWANTED = "unwanted"  # idle, in a pool that shrinks, rolls, drains or goes away
    SURPLUS = "surplus"  # online, with more supply than demand
    GIVEN_UP = "given-up"  # a recovery rule found it stuck
    FINISHED = "finished"  # its job was completed long ago, its Pod still lived
    DELETED = "deleted"  # another client asked for its Pod's deletion; paddock followed
    FORCED = "forced"  # by an operator, or because its account has long removed the App


@dataclass(frozen=True, slots=True, kw_only=True)
class EndingEvidence:
    """All that an ending is judged by. `UNKNOWN`: not asked, or not answered."""

    fingerprint: Fingerprint | None = None
    #: The Pod's own `status.reason`.
    pod_reason: str = ""
    #: It was never seen terminal, and is proven absent.
    vanished: bool = False
    #: A client other than paddock asked for its deletion before its runner ended.
    deleted: bool = False
    retired: Retired | None = None
    #: It ended before any client asked for its Pod's deletion.
    unasked: bool = False
    #: Who ended it by force, and why.
    forced: str = ""
    #: Whether a job was ever on it. `NO`: GitHub says so, or no name was ever chosen for it.
    job: Certainty = Certainty.UNKNOWN
    #: Whether GitHub reports its job as lost.
    lost_communication: Certainty = Certainty.UNKNOWN
    #: See `ever_started`; `UNKNOWN` where one container polls and runs.
    started: Certainty = Certainty.UNKNOWN
    registered: Certainty = Certainty.UNKNOWN
    node: str | None = None
    #: More from the fleet, for people: the Pod's events, the state of its node.
    circumstances: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EndingRule:
    """One row of the table: what is seen, and the ending it proves."""

    name: str
    seen: str
    ending: Ending
    holds: Callable[[EndingEvidence], bool]


@dataclass(frozen=True, slots=True)
class Classified:
    ending: Ending
    rule: str
    why: str
    #: False while an answer from GitHub could still make it another ending.
    settled: bool


def says_it_had_a_job(fingerprint: Fingerprint | None) -> bool:
    """Whether its exit code says so. A webhook may not have said so yet (I68)."""
    return (
        fingerprint is not None and fingerprint.exit_code in dialect(fingerprint.program).had_a_job
    )


def ended_in_good_order(fingerprint: Fingerprint | None) -> bool:
    """Whether it ended by itself, as a runner does after its job. A poller exits with other codes."""
    if fingerprint is None or fingerprint.signal is not None:
        return False
    codes = dialect(fingerprint.program)
    return fingerprint.exit_code in codes.clean | codes.abandoned


def classify(evidence: EndingEvidence) -> Classified:
    rule = _first(evidence)
    facts = [str(evidence.fingerprint or ""), evidence.pod_reason and f"Pod {evidence.pod_reason}"]
    known = "; ".join(filter(None, [*facts, evidence.forced]))
    return Classified(
        ending=rule.ending,
        rule=rule.name,
        why=f"{rule.seen} ({known})." if known else f"{rule.seen}.",
        settled=all(_first(later).ending is rule.ending for later in _answered(evidence)),
    )


def _first(evidence: EndingEvidence) -> EndingRule:
    return next(rule for rule in RULES if rule.holds(evidence))


def _answered(evidence: EndingEvidence) -> list[EndingEvidence]:
    """The evidence combined with every answer that GitHub may still give."""
    job, lost, registered = (
        (Certainty.YES, Certainty.NO) if answer is Certainty.UNKNOWN else (answer,)
        for answer in (evidence.job, evidence.lost_communication, evidence.registered)
    )
    return [
        replace(evidence, job=j, lost_communication=c, registered=r)
        for j, c, r in itertools.product(job, lost, registered)
    ]


_SIGKILL: Final = 9
_SIGTERM: Final = 15

_OOM_KILLED: Final = "OOMKilled"
_STATUS_UNKNOWN: Final = "ContainerStatusUnknown"
#: The container's process could not be executed at all; its exit code (128) is made up.
_CANNOT_START: Final = frozenset({"StartError", "ContainerCannotRun"})
_EVICTED: Final = frozenset({"Evicted", "Preempting"})
#: "Terminated" and, from older kubelets, "Shutdown" stand for a node that shut down in good order.
_NODE_LOST: Final = frozenset({"NodeLost", "Terminated", "Shutdown", _STATUS_UNKNOWN})


def _exited(evidence: EndingEvidence, codes: Callable[[Dialect], frozenset[int]]) -> bool:
    """Whether it exited by itself with one of these codes of its program. After a signal, the code is
    not the runner's."""
    ended = evidence.fingerprint
    if ended is None or ended.signal is not None:
        return False
    return ended.exit_code in codes(dialect(ended.program))


def _exited_cleanly(evidence: EndingEvidence) -> bool:
    return _exited(evidence, lambda codes: codes.clean)


def _signalled(evidence: EndingEvidence, signal: int) -> bool:
    ended = evidence.fingerprint
    return ended is not None and (ended.exit_code == 128 + signal or ended.signal == signal)


def _reason(evidence: EndingEvidence) -> str:
    return evidence.fingerprint.reason if evidence.fingerprint else ""


def _idle(evidence: EndingEvidence) -> bool:
    """No job was ever on it: GitHub says so, and its exit code does not say otherwise. GitHub has been
    seen to call a busy runner idle (I65); such a death must not count as normal."""
    return evidence.job is Certainty.NO and not _exited(evidence, lambda codes: codes.had_a_job)


def _given_up(evidence: EndingEvidence) -> bool:
    return evidence.retired is Retired.GIVEN_UP and _idle(evidence)


def _stopped(evidence: EndingEvidence) -> bool:
    if evidence.retired is Retired.FINISHED:
        return not _exited_cleanly(evidence)
    # actions/runner exits with 0 when it finds its record removed, and other programs after their jobs.
    by_itself = evidence.unasked and _exited_cleanly(evidence)
    asked = evidence.deleted or (evidence.retired is not None and not by_itself)
    return asked and not _exited(evidence, lambda codes: codes.succeeded)


RULES: Final[tuple[EndingRule, ...]] = (
    EndingRule(
        "oom-killed",
        "Its container reached its memory limit and the node's kernel killed in it",
        Ending.HOST_OOM,
        # With any exit code: when only the worker is killed, the listener still exits with 0.
        lambda e: _reason(e) == _OOM_KILLED,
    ),
    EndingRule(
        "evicted",
        "The kubelet evicted its Pod",
        Ending.EVICTED,
        # Before node-lost: an evicted Pod's containers often read ContainerStatusUnknown, 137.
        lambda e: e.pod_reason in _EVICTED,
    ),
    EndingRule(
        "node-lost",
        "Its node went away, and the kubelet cannot tell how it ended",
        Ending.NODE_LOST,
        lambda e: e.pod_reason in _NODE_LOST or _reason(e) == _STATUS_UNKNOWN,
    ),
    EndingRule(
        "refused-version",
        "GitHub refused the runner's version",
        Ending.RUNNER_OUTDATED,
        lambda e: _exited(e, lambda codes: codes.refused),
    ),
    EndingRule(
        "cannot-start",
        "Its runner container could not be started",
        Ending.NEVER_STARTED,
        lambda e: _reason(e) in _CANNOT_START,
    ),
    EndingRule(
        "asked-to-leave",
        "It was idle and no longer wanted",
        Ending.LEFT,
        lambda e: e.retired is Retired.UNWANTED and _idle(e),
    ),
    EndingRule(
        "not-needed",
        "It was online without a job while its key had more supply than demand",
        Ending.SURPLUS,
        lambda e: e.retired is Retired.SURPLUS and _idle(e),
    ),
    EndingRule(
        "given-up-before-its-start",
        "It was given up because its runner container did not start",
        Ending.NEVER_STARTED,
        lambda e: _given_up(e) and e.fingerprint is None and e.started is Certainty.NO,
    ),
    EndingRule(
        "given-up-unregistered",
        "It was given up because GitHub never saw it online",
        Ending.NEVER_REGISTERED,
        lambda e: _given_up(e) and e.registered is Certainty.NO,
    ),
    EndingRule(
        "given-up-without-a-job",
        "It was given up, and GitHub knows of no job that was ever on it",
        Ending.NEVER_RAN,
        _given_up,
    ),
    EndingRule(
        "vanished",
        "Its Pod was gone before anyone saw it end",
        Ending.HARD_DELETED,
        lambda e: e.vanished and e.fingerprint is None,
    ),
    EndingRule(
        "stopped",
        "Its deletion had been asked for before it ended",
        Ending.TERMINATED,
        _stopped,
    ),
    EndingRule(
        "gave-its-job-up",
        "It gave its job up because GitHub no longer renewed the lease",
        Ending.HANDSHAKE_FAILED,
        lambda e: _exited(e, lambda codes: codes.abandoned),
    ),
    EndingRule(
        "lost-communication",
        "It exited cleanly, but GitHub reports lost communication",
        Ending.HANDSHAKE_FAILED,
        lambda e: _exited_cleanly(e) and e.lost_communication is Certainty.YES,
    ),
    EndingRule(
        "exit-without-job",
        "It exited cleanly, and GitHub knows of no job that was ever on it",
        Ending.NEVER_RAN,
        # I39. An exit code of 100 or more says that there was a job, however short (I68).
        lambda e: _exited_cleanly(e) and _idle(e),
    ),
    EndingRule(
        "clean-exit",
        "It exited cleanly",
        Ending.COMPLETED,
        _exited_cleanly,
    ),
    EndingRule(
        "killed",
        "It was killed, and not by the node for memory",
        Ending.GUEST_OOM_OR_KILL,
        lambda e: _signalled(e, _SIGKILL),
    ),
    EndingRule(
        "told-to-stop",
        "It ended by SIGTERM",
        Ending.TERMINATED,
        lambda e: _signalled(e, _SIGTERM),
    ),
    EndingRule(
        "failed",
        "Its process failed",
        Ending.CRASH,
        lambda e: e.fingerprint is not None,
    ),
    EndingRule(
        "not-started",
        "Its Pod ended before its runner container started",
        Ending.NEVER_STARTED,
        lambda e: e.started is Certainty.NO,
    ),
    EndingRule(
        "no-evidence",
        "Nothing was seen that tells how it ended",
        Ending.UNKNOWN,
        lambda _: True,
    ),
)
