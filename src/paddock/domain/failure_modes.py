"""What can go wrong, in an operator's words, and which rules and endings answer it.

The tables of rules are ordered by the strength of their evidence, as the program needs them. People
start from a failure: a node died, a webhook never came. This is the index from failures to rules. The
documentation page is generated from it and from the rules, and a test fails for a rule that is not
named here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from paddock.domain.runners.endings import Ending


class Party(StrEnum):
    """Whose failure it is."""

    POD = "Pods and nodes"
    GITHUB = "GitHub and its webhooks"
    PADDOCK = "paddock and its database"
    PEOPLE = "people"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureMode:
    party: Party
    what: str
    #: The rules of recovery that notice it and act on it.
    rules: tuple[str, ...] = ()
    #: What is done about it besides rules.
    besides: str = ""
    #: What becomes of the job.
    job: str
    #: The endings that such a runner's verdict may name.
    endings: tuple[Ending, ...] = ()


_SERVED: Final = "Served by another runner: this one no longer counts as supply."
_NONE: Final = "It had none; what waits is served by another."
_LOST: Final = "Over at GitHub, as failed or lost. GitHub does not run it again by itself."
_GOES_ON: Final = "Goes on."
_WAITS: Final = "Waits, for a reason that is told."

_POD: Final = (
    FailureMode(
        party=Party.POD,
        what="A Pod gets no node",
        rules=("unschedulable",),
        job=_NONE,
        endings=(Ending.NEVER_STARTED,),
    ),
    FailureMode(
        party=Party.POD,
        what="A Pod does not start: its image, its node's runtime, a volume",
        rules=("never-started",),
        besides="After three failures in a row a host is avoided by new Pods (not for images).",
        job=_NONE,
        endings=(Ending.NEVER_STARTED,),
    ),
    FailureMode(
        party=Party.POD,
        what="A Pod was planned and never came to be",
        rules=("never-created",),
        besides="It is asked for again after 35 seconds.",
        job=_NONE,
        endings=(Ending.NEVER_STARTED,),
    ),
    FailureMode(
        party=Party.POD,
        what="An idle Pod is no longer heard",
        rules=("silent",),
        job=_NONE,
        endings=(Ending.LEFT, Ending.CRASH),
    ),
    FailureMode(
        party=Party.POD,
        what="A Pod got its JIT and does not fetch it",
        rules=("undelivered",),
        job=_SERVED,
    ),
    FailureMode(
        party=Party.POD,
        what="A Pod has its JIT, and its runner container does not start",
        rules=("suspect", "waiting-container"),
        job="Served by another runner within a minute; nothing is killed for that.",
        endings=(Ending.NEVER_STARTED,),
    ),
    FailureMode(
        party=Party.POD,
        what="A runner starts and never registers with GitHub (S2)",
        rules=("suspect", "never-registered", "too-many-suspects"),
        job="Served by another runner within a minute; nothing is killed for that.",
        endings=(Ending.NEVER_REGISTERED,),
    ),
    FailureMode(
        party=Party.POD,
        what="A runner dies while it works: memory, a crash, a signal",
        rules=("pod-ended",),
        besides="Its exit code, signal and last words are kept before the Pod is deleted (S3, S4).",
        job=_LOST,
        endings=(
            Ending.HOST_OOM,
            Ending.GUEST_OOM_OR_KILL,
            Ending.CRASH,
            Ending.TERMINATED,
            Ending.HANDSHAKE_FAILED,
        ),
    ),
    FailureMode(
        party=Party.POD,
        what="A node dies, or its Pods vanish without a trace",
        rules=("pod-gone", "runner-lost"),
        job="If GitHub puts it back into its queue, it is served again; otherwise it is over.",
        endings=(Ending.HARD_DELETED, Ending.NODE_LOST, Ending.EVICTED),
    ),
    FailureMode(
        party=Party.POD,
        what="A runner's process ended, and its Pod does not",
        rules=("runner-ended", "lingering", "runner-ended-without-row"),
        job="Was over before.",
        endings=(Ending.COMPLETED,),
    ),
    FailureMode(
        party=Party.POD,
        what="A Pod looks like nothing that is known",
        rules=("unrecognised", "unrecognised-without-row"),
        job=_GOES_ON,
        endings=(Ending.UNKNOWN,),
    ),
)

_GITHUB: Final = (
    FailureMode(
        party=Party.GITHUB,
        what="`queued` never arrives, or late",
        rules=("job-unknown",),
        besides="GitHub is asked for failed deliveries again, and for its own lists.",
        job="Found, and served.",
    ),
    FailureMode(
        party=Party.GITHUB,
        what="`in_progress` never arrives",
        rules=("missed-in-progress", "missed-start", "hint-moved-on", "busy"),
        job=_GOES_ON,
    ),
    FailureMode(
        party=Party.GITHUB,
        what="`completed` never arrives",
        rules=("missed-completion", "missed-completion-perhaps", "ran-after-all"),
        job="Was over before; its place is free as soon as its Pod has ended, whatever arrives.",
        endings=(Ending.COMPLETED,),
    ),
    FailureMode(
        party=Party.GITHUB,
        what="GitHub gives a job to another runner than it was meant for",
        besides="Nothing: jobs are not bound to runners.",
        rules=("surplus",),
        job="Runs there.",
        endings=(Ending.SURPLUS,),
    ),
    FailureMode(
        party=Party.GITHUB,
        what="GitHub has forgotten a runner that listens",
        rules=("zombie",),
        job=_SERVED,
        endings=(Ending.NEVER_RAN,),
    ),
    FailureMode(
        party=Party.GITHUB,
        what="GitHub does not assign a job although a runner is online for it",
        rules=("unassigned", "waits-beside-supply", "no-job-in-time"),
        job="Waits; the reason names the runner group and who may use it.",
        endings=(Ending.NEVER_RAN,),
    ),
    FailureMode(
        party=Party.GITHUB,
        what="A runner ends cleanly, and no job was ever reported on it",
        rules=("exit-without-job", "ended-unexplained", "stale-queued"),
        job="If GitHub still has it queued, it is served again within two minutes.",
        endings=(Ending.NEVER_RAN,),
    ),
    FailureMode(
        party=Party.GITHUB,
        what="A job that has not begun is gone from GitHub, or was cancelled there unheard",
        rules=("job-expired", "job-end", "job-deleted", "still-waiting"),
        job="Completed here as stale.",
    ),
    FailureMode(
        party=Party.GITHUB,
        what="A repository is deleted while one of its jobs is in progress",
        rules=("repository-deleted", "record-removed", "forced"),
        besides="A runner that is registered there and never exits is ended after five days, or by an "
        "operator at once: `paddock runners retire NAME --force`.",
        job="Completed here as stale, once no runner of ours is on it and GitHub did not know the "
        "repository three times in a row.",
    ),
    FailureMode(
        party=Party.GITHUB,
        what="Mints fail: rights, limits, an outage",
        besides="The narrowest scope backs off, with the reason; others are served.",
        rules=("stale-claim",),
        job=_WAITS,
    ),
    FailureMode(
        party=Party.GITHUB,
        what="GitHub is slow, or answers nothing",
        besides="No answer is no evidence: whatever needs one waits.",
        rules=("too-many-suspects", "protected"),
        job="Runs, if it has a runner. Otherwise it waits for GitHub.",
    ),
    FailureMode(
        party=Party.GITHUB,
        what="GitHub no longer accepts the runner's version",
        besides="Nothing is minted for Pods of that version, from GitHub's date on, or for hours after "
        "a runner was refused.",
        rules=("pod-ended",),
        job="Waits until the image is renewed.",
        endings=(Ending.RUNNER_OUTDATED,),
    ),
)

_PADDOCK: Final = (
    FailureMode(
        party=Party.PADDOCK,
        what="A replica dies while it mints",
        besides="The Pod that asks again is taken over in a new generation, under a fresh name.",
        rules=("stale-claim",),
        job="Served some seconds later.",
    ),
    FailureMode(
        party=Party.PADDOCK,
        what="All replicas are down",
        besides="Pods go on asking, GitHub's webhooks are asked for again afterwards.",
        rules=("job-unknown", "missed-completion"),
        job="What runs goes on. What waits is served when they are back.",
    ),
    FailureMode(
        party=Party.PADDOCK,
        what="The database is away",
        besides="Webhooks are answered 503, and asked for again later; nothing is decided.",
        rules=(),
        job="What runs goes on. What waits is served when it is back.",
    ),
    FailureMode(
        party=Party.PADDOCK,
        what="The API server is away, or its lists are incomplete",
        besides="Dispatch goes on for Pods whose tokens are known. Absence counts only in complete "
        "reads.",
        rules=("pod-gone",),
        job=_GOES_ON,
    ),
    FailureMode(
        party=Party.PADDOCK,
        what="The database is restored from a backup while jobs run",
        rules=(
            "executing",
            "executing-without-row",
            "started-unclaimed",
            "started-unexplained",
            "claim-in-doubt",
            "pod-without-row",
            "protected",
            "ended-without-row",
            "given-back",
        ),
        job=_GOES_ON,
    ),
    FailureMode(
        party=Party.PADDOCK,
        what="A Pod is recorded as ended, and could not be deleted",
        rules=("concluded",),
        job="Was over before; its place is free.",
    ),
)

_PEOPLE: Final = (
    FailureMode(
        party=Party.PEOPLE,
        what="An operator deletes a Pod",
        rules=("leaving", "retiring"),
        job="If it has one, it ends with the Pod. Kubernetes cannot be made to wait.",
        endings=(Ending.TERMINATED, Ending.LEFT),
    ),
    FailureMode(
        party=Party.PEOPLE,
        what="A node is drained, a pool deleted, renamed, rolled or shrunk",
        besides="Idle runners leave at once and are replaced; runners at work finish.",
        rules=("retiring",),
        job=_GOES_ON,
        endings=(Ending.LEFT,),
    ),
    FailureMode(
        party=Party.PEOPLE,
        what="A limit is lowered below what is in use",
        besides="New claims stop; nothing is ended.",
        rules=("surplus",),
        job=_GOES_ON,
        endings=(Ending.SURPLUS,),
    ),
    FailureMode(
        party=Party.PEOPLE,
        what="The first limit of a repository is set while its organisation has runners",
        besides="New runners register at repositories. Those at the organisation count against the "
        "limit until they execute another repository's job or are gone.",
        rules=("surplus",),
        job=_GOES_ON,
        endings=(Ending.SURPLUS,),
    ),
    FailureMode(
        party=Party.PEOPLE,
        what="An account removes the App while its runner executes a job, hangs or is stopped",
        besides="A job that runs goes on and its runner exits after it. A runner that never exits is "
        "ended after five days, or by an operator at once: `paddock runners retire NAME --force`.",
        rules=("account-removed", "forced"),
        job="Goes on, for as long as GitHub lets any job run.",
        endings=(Ending.COMPLETED, Ending.TERMINATED),
    ),
    FailureMode(
        party=Party.PEOPLE,
        what="An operator ends a runner by force",
        besides="Its Pod is deleted in the next round. The verdict names the operator and the reason.",
        rules=("forced",),
        job=_LOST,
        endings=(Ending.TERMINATED,),
    ),
)

FAILURE_MODES: Final = (*_POD, *_GITHUB, *_PADDOCK, *_PEOPLE)
