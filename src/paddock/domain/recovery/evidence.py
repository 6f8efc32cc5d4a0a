"""What is known of a runner, a Pod or a job when recovery looks at it.

Three parties know something: the row, the fleet, GitHub; and a runner speaks for itself in its log.
In every incident behind paddock two of them disagreed while a third party acted on one alone. So a
value here says not only what each party says but also that it was not asked, or could not be read:
that is a value of its own and never "absent" or "no" (I29). `paddock.domain.recovery.table` decides
on these values and on nothing else.

Ages are seconds before the moment of the look. What has no age did not happen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, Final, Literal

from paddock.domain.github.objects import Absent, JobRecord, RunnerRecord
from paddock.domain.ids import GitHubRunnerId
from paddock.domain.pods.fingerprints import RUNNER_CONTAINER, ContainerStatus
from paddock.domain.pods.pod import Pod
from paddock.domain.runners.dialects import RunnerProgram, only_polls, program_of_log, shows_a_job
from paddock.domain.states import JobState, RunnerState


class Subject(StrEnum):
    """What a rule is about."""

    RUNNER = "runner"  # a row that lives
    ENDED = "ended runner"  # a row that is gone and whose verdict is open
    POD = "pod"  # a Pod that no living row knows
    JOB = "job"


class Sighting(StrEnum):
    UNREAD = "unread"  # the fleet could not be read, or not completely
    ABSENT = "absent"  # missing in the last complete read
    PRESENT = "present"


class Container(StrEnum):
    """A container as its status shows it. Only the first five prove that it never ran."""

    NO_STATUSES = "no statuses"
    PULLING = "pulling"  # or being created: the kubelet has one word for both
    IMAGE_ERROR = "image error"
    WAITING = "waiting"
    BROKEN = "cannot be started"
    STARTED = "started"
    TERMINATED = "terminated"
    LAST_TERMINATED = "terminated before"  # it waits, and an earlier life of it has ended
    UNRECOGNISED = "unrecognised"

    @property
    def never_ran(self) -> bool:
        return self in _NEVER_RAN


_NEVER_RAN: Final = frozenset(
    {
        Container.NO_STATUSES,
        Container.PULLING,
        Container.IMAGE_ERROR,
        Container.WAITING,
        Container.BROKEN,
    }
)


class RecordWord(StrEnum):
    """GitHub's word on the runner's record there."""

    NOT_ASKED = "not asked"
    UNREADABLE = "unreadable"
    ABSENT = "absent"  # proven by a control read (I66)
    OFFLINE = "offline"
    IDLE = "online"
    BUSY = "busy"


class LogWord(StrEnum):
    """What the runner's own log says."""

    NOT_READ = "not read"
    UNREADABLE = "unreadable"
    NO_JOB = "no job"
    JOB = "a job"


class JobWord(StrEnum):
    """GitHub's word on a job."""

    NOT_ASKED = "not asked"
    UNREADABLE = "unreadable"
    ABSENT = "absent"  # proven by a control read (I66)
    REPOSITORY_GONE = "repository gone"  # proven by the installation's own list (I66)
    WAITING = "waiting"
    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"

    @property
    def state(self) -> JobState | None:
        return _JOB_STATE.get(self)


_JOB_STATE: Final = {
    JobWord.WAITING: JobState.WAITING,
    JobWord.QUEUED: JobState.QUEUED,
    JobWord.IN_PROGRESS: JobState.IN_PROGRESS,
    JobWord.COMPLETED: JobState.COMPLETED,
}


class On(StrEnum):
    """On which runner GitHub says the job is."""

    NO_RUNNER = "no runner"  # GitHub names none
    THIS = "this runner"
    ANOTHER = "another runner"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSeen:
    """The Pod of a runner. `poller` is the same container as `runner` in the single shape."""

    sighting: Sighting = Sighting.UNREAD
    #: In how many consecutive complete reads it was missing.
    absent_reads: int = 0
    terminal: bool = False
    deletion_requested: bool = False
    age: float = 0.0
    #: For how long it has looked as it does now (`looks`). The observer counts from when it first saw
    #: it so; after a change of leaders this is too short, never too long.
    unchanged: float = 0.0
    #: The scheduler's words.
    unschedulable: str | None = None
    poller: Container = Container.NO_STATUSES
    runner: Container = Container.NO_STATUSES
    #: For how long the runner container has been up; `None` unless it is.
    up: float | None = None

    @property
    def looks(self) -> tuple[object, ...]:
        """What `unchanged` is about."""
        return (
            self.terminal,
            self.deletion_requested,
            self.unschedulable is not None,
            self.poller,
            self.runner,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A runner whose row lives."""

    subject: ClassVar[Subject] = Subject.RUNNER

    # The row.
    state: RunnerState
    since: float
    shape: Literal["gated", "single"]
    #: A Pod was ever seen for it, or its poller was heard. Before, a missing Pod is one to come.
    pod_seen: bool = False
    #: A name was chosen for it at least once.
    named: bool = False
    #: When its poller last began to ask.
    heard: float | None = None
    #: Dispatch has answered other Pods since then, so dispatch is not the cause of its silence.
    others_answered: bool = False
    acknowledged: float | None = None
    #: The sidecar said that a job began.
    job_marked: bool = False
    #: How far the job is, here, that the row names as executed by it.
    job: JobState | None = None
    mint_overdue: bool = False
    suspect: float | None = None
    #: How far its retirement has come.
    deregistered: float | None = None
    proved: float | None = None

    #: It was ended by force.
    forced: bool = False

    # Its account.
    #: How often it was confirmed that the account has removed the App; 0 while it is installed or
    #: suspended.
    removals: int = 0

    # Its key.
    #: It is among its key's surplus: supply beyond demand.
    surplus: bool = False
    #: How many of the runners that its scope was given lately are suspect, and of how many.
    suspects: int = 0
    recent: int = 0

    # The fleet.
    pod: PodSeen = PodSeen()

    # GitHub, and the runner itself; each answer with its age.
    record: RecordWord = RecordWord.NOT_ASKED
    record_age: float = 0.0
    log: LogWord = LogWord.NOT_READ
    log_age: float = 0.0
    #: How far the job it was claimed for is here; `None` if there is none, or it is known to be
    #: another runner's.
    hint: JobState | None = None
    hinted: JobWord = JobWord.NOT_ASKED
    hinted_on: On = On.NO_RUNNER
    hinted_age: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedEvidence:
    """A runner that is gone, had a name, and of which no job was ever reported."""

    subject: ClassVar[Subject] = Subject.ENDED

    since: float
    #: No answer of GitHub can change its verdict any more.
    settled: bool = False
    #: By its exit code it had a job (I68).
    says_it_had_a_job: bool = False
    #: Its record at GitHub. That our deletion of it was answered by 204 after its end counts as
    #: `OFFLINE`: the record was still there.
    record: RecordWord = RecordWord.NOT_ASKED
    record_age: float = 0.0
    hint: JobState | None = None
    hinted: JobWord = JobWord.NOT_ASKED
    hinted_on: On = On.NO_RUNNER
    hinted_age: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEvidence:
    """A Pod of ours that no living row knows."""

    subject: ClassVar[Subject] = Subject.POD

    shape: Literal["gated", "single"]
    pod: PodSeen
    #: A row that is gone knows it by its UID: its end was recorded.
    concluded: bool = False
    #: Its owner label: for people, no rule decides by it (I22, I34).
    stamped: bool = False
    #: GitHub's record under any of its possible names; the worst of them if there are several.
    record: RecordWord = RecordWord.NOT_ASKED
    record_age: float = 0.0
    log: LogWord = LogWord.NOT_READ
    log_age: float = 0.0


class ExecutorState(StrEnum):
    """What became of the runner that a job is on, as far as is known here."""

    NONE = "none"  # no runner is known for it
    FOREIGN = "foreign"
    ALIVE = "alive"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvidence:
    """A job that has not completed here, or that only GitHub knows."""

    subject: ClassVar[Subject] = Subject.JOB

    #: `None`: it has no row.
    state: JobState | None
    since: float = 0.0
    #: How long ago it became queued, or queued again (I76).
    queued: float = 0.0
    executor: ExecutorState = ExecutorState.NONE
    #: There are runners that could still get it.
    supply: bool = False
    #: For how long a runner of its key has been online and idle beside it.
    idle_beside: float | None = None
    #: A runner claimed for it ended without a reported job, and counts as supply until it is known
    #: whether that job was this one (I68).
    supply_grace: bool = False
    #: The reason why it waits is written down already.
    explained: bool = False
    word: JobWord = JobWord.NOT_ASKED
    word_age: float = 0.0
    #: How often in a row this was the answer, this one included.
    times: int = 0


AnyEvidence = Evidence | EndedEvidence | PodEvidence | JobEvidence


# Conversions from what the fleet, GitHub and the log report.

#: While a container is created its image is pulled; kubelets say the same of both. `Pulling` is for
#: fleets that know better.
_PULLING: Final = frozenset({"Pulling", "ContainerCreating"})
_IMAGE_ERRORS: Final = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
_BROKEN: Final = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "CreatePodSandboxError",
        "PreCreateHookError",
        "PreStartHookError",
        "PostStartHookError",
        "RunContainerError",
        "StartError",
    }
)


def container_seen(statuses: Sequence[ContainerStatus]) -> Container:
    """The runner container among all of a Pod's. One that is not among them, or there twice, or whose
    state is not known, is unrecognised (I34)."""
    if not statuses:
        return Container.NO_STATUSES
    match [status for status in statuses if status.name == RUNNER_CONTAINER]:
        case [only]:
            return _one(only)
        case _:
            return Container.UNRECOGNISED


def poller_seen(status: ContainerStatus | None) -> Container:
    return Container.NO_STATUSES if status is None else _one(status)


def _one(status: ContainerStatus) -> Container:
    state, last = status.state, status.last_state
    if not (state.understood and last.understood):
        return Container.UNRECOGNISED
    if state.terminated:
        return Container.TERMINATED
    if state.running or status.started:
        return Container.STARTED
    if last.terminated:
        return Container.LAST_TERMINATED
    if state.waiting is None:
        return Container.UNRECOGNISED
    return _waiting(state.waiting.reason)


def _waiting(reason: str) -> Container:
    if reason in _PULLING:
        return Container.PULLING
    if reason in _IMAGE_ERRORS:
        return Container.IMAGE_ERROR
    if reason in _BROKEN:
        return Container.BROKEN
    return Container.WAITING


def pod_seen(pod: Pod, *, now: datetime, unchanged: float) -> PodSeen:
    return PodSeen(
        sighting=Sighting.PRESENT,
        terminal=pod.phase.terminal,
        deletion_requested=pod.deletion_requested_at is not None,
        age=_before(pod.created_at, now),
        unchanged=unchanged,
        unschedulable=pod.unschedulable,
        poller=poller_seen(pod.poller),
        runner=container_seen(pod.containers),
        up=_up(pod, now),
    )


def polls(pod: Pod, *, shape: str) -> bool:
    """Its poller runs, its runner has not started, and its end was not asked for."""
    return (
        not pod.phase.terminal
        and pod.deletion_requested_at is None
        and pod.unschedulable is None
        and poller_seen(pod.poller) is Container.STARTED
        and (shape == "single" or container_seen(pod.containers) is Container.WAITING)
    )


def runs(pod: Pod) -> bool:
    """Its runner has started and has not ended, and its end was not asked for."""
    return (
        not pod.phase.terminal
        and pod.deletion_requested_at is None
        and container_seen(pod.containers) is Container.STARTED
    )


def pod_absent(reads: int) -> PodSeen:
    return PodSeen(sighting=Sighting.ABSENT, absent_reads=reads)


def _up(pod: Pod, now: datetime) -> float | None:
    for status in pod.containers:
        running = status.state.running
        if status.name == RUNNER_CONTAINER and running is not None:
            return _before(running.started_at or pod.created_at, now)
    return None


def _before(then: datetime, now: datetime) -> float:
    return max(0.0, (now - then).total_seconds())


def record_word(answer: RunnerRecord | Absent) -> RecordWord:
    if isinstance(answer, Absent):
        return RecordWord.ABSENT
    if answer.busy:
        return RecordWord.BUSY
    return RecordWord.IDLE if answer.online else RecordWord.OFFLINE


def job_word(answer: JobRecord | Absent) -> JobWord:
    """An unknown status is no evidence (I29)."""
    if isinstance(answer, Absent):
        return JobWord.ABSENT
    return JobWord(answer.state) if answer.state is not None else JobWord.UNREADABLE


def job_on(answer: JobRecord | Absent, *, github_id: GitHubRunnerId | None, name: str | None) -> On:
    """By id; by name only while the id is unknown (I71)."""
    if isinstance(answer, Absent) or answer.runner_id is None:
        return On.NO_RUNNER
    mine = answer.runner_id == github_id if github_id is not None else answer.runner_name == name
    return On.THIS if mine else On.ANOTHER


def log_word(log: str | None, *, whole: bool) -> LogWord:
    """Only a whole log of a known program speaks against a job. What a job prints can push the decisive
    line out of a part of the log, and nothing a job does may count against it (I24). A program with
    other words shows nothing by their absence (I89)."""
    if log is None:
        return LogWord.UNREADABLE
    if shows_a_job(log):
        return LogWord.JOB
    understood = whole and (program_of_log(log) is not RunnerProgram.UNKNOWN or only_polls(log))
    return LogWord.NO_JOB if understood else LogWord.UNREADABLE
