"""Which pool a job belongs to, or the reason it belongs to none.

GitHub gives a job to any runner that has all of its labels. paddock must know beforehand which pool
that will be, because pools are sized and counted. So a job that fits two pools is refused, never given
to the first in some list (I10), and two pools may not exist if one would take every job of the other.
Each refusal has its own name: an outage must not look like a typo in `runs-on` (I11), nor must a job
that was never meant for us.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from paddock.domain.names import PoolName

#: GitHub refuses a mint with more labels, or without any.
MAX_LABELS: Final = 100
#: GitHub's longest label.
MAX_LABEL_LENGTH: Final = 256

#: The label that says "not GitHub's own machines". It says nothing about which others.
SELF_HOSTED: Final = "self-hosted"

#: A sentence names at most this many labels and this much of each: any author of a workflow can choose
#: them.
_LISTED: Final = 10
_LISTED_LENGTH: Final = 60


@dataclass(frozen=True, slots=True)
class LabelSet:
    """Labels as GitHub compares them: trimmed, without regard to case or order, each once.

    `LabelSet.of` accepts any labels, as a job may have. `pool_labels_problem` checks those of a pool.
    """

    labels: frozenset[str]

    @classmethod
    def of(cls, labels: Iterable[str]) -> LabelSet:
        return cls(frozenset(label.strip().lower() for label in labels) - {""})

    def __iter__(self) -> Iterator[str]:
        """In alphabetical order, so that what is shown, stored and sent is the same every time."""
        return iter(sorted(self.labels))

    def __len__(self) -> int:
        return len(self.labels)

    def __str__(self) -> str:
        return _listed(self.labels)


class LabelProblem(StrEnum):
    """Why a job gets no pool."""

    EMPTY = "empty"
    AMBIGUOUS = "ambiguous"
    NEAR_MISS = "near-miss"
    NO_POOL = "no-pool"

    @property
    def could_be_ours(self) -> bool:
        """Whether the job's author may expect one of our runners. Such a job is stored with its reason;
        the others are only counted. A job without labels is stored too: `runs-on` may name nothing but
        a runner group, and that may be ours."""
        return self is not LabelProblem.NO_POOL


@dataclass(frozen=True, slots=True)
class Resolved:
    pool: PoolName


@dataclass(frozen=True, slots=True)
class LabelsRefused:
    reason: LabelProblem
    why: str

    @property
    def could_be_ours(self) -> bool:
        return self.reason.could_be_ours


Resolution = Resolved | LabelsRefused


@dataclass(frozen=True, slots=True)
class LabelConflict:
    """A pool beside which another one may not exist."""

    pool: PoolName
    why: str


def pool_labels_problem(labels: LabelSet) -> str | None:
    """Why a pool cannot have these labels, in a sentence; `None` if it can."""
    if not labels:
        return "a pool needs at least one label"
    if len(labels) > MAX_LABELS:
        return f"a pool has at most {MAX_LABELS} labels; these are {len(labels)}"
    for label in labels:
        if len(label) > MAX_LABEL_LENGTH:
            return (
                f"a label has at most {MAX_LABEL_LENGTH} characters; "
                f"{_shortened(label)} has {len(label)}"
            )
    return None


def covers(pool: LabelSet, job: LabelSet) -> bool:
    """Whether GitHub may give this job to a runner of this pool."""
    return job.labels <= pool.labels


def resolve(job: LabelSet, pools: Mapping[PoolName, LabelSet]) -> Resolution:
    if not job:
        return LabelsRefused(
            LabelProblem.EMPTY,
            "the job asks for no label at all; name the labels of a pool in its runs-on",
        )
    match sorted(name for name, labels in pools.items() if covers(labels, job)):
        case [pool]:
            return Resolved(pool)
        case []:
            return _uncovered(job, pools)
        case several:
            return LabelsRefused(
                LabelProblem.AMBIGUOUS,
                f"the labels {job} fit the pools {_listed(several)}; "
                "add a label to runs-on that only one of them has",
            )


def conflicts(labels: LabelSet, others: Mapping[PoolName, LabelSet]) -> list[LabelConflict]:
    """The pools beside which a pool with these labels cannot exist: where one set contains the
    other, every job of the smaller fits both."""
    found = []
    for name, theirs in sorted(others.items()):
        if labels == theirs:
            why = f"pool {name} has the same labels ({theirs})"
        elif covers(labels, theirs):
            why = f"pool {name} has only labels that are among these ({theirs})"
        elif covers(theirs, labels):
            why = f"pool {name} has all of these labels and more ({theirs})"
        else:
            continue
        found.append(LabelConflict(name, f"{why}; give each a label that the other does not have"))
    return found


def _uncovered(job: LabelSet, pools: Mapping[PoolName, LabelSet]) -> LabelsRefused:
    ours = frozenset[str]().union(*(labels.labels for labels in pools.values()))
    if not job.labels & (ours | {SELF_HOSTED}):
        return LabelsRefused(
            LabelProblem.NO_POOL, f"the labels {job} are no pool's; the job is meant for others"
        )
    if not pools:
        return LabelsRefused(
            LabelProblem.NEAR_MISS, f"the job asks for {job}, and there is no pool yet"
        )
    missing, nearest = min(
        ((job.labels - labels.labels, name) for name, labels in pools.items()),
        key=lambda candidate: (len(candidate[0]), candidate[1]),
    )
    return LabelsRefused(
        LabelProblem.NEAR_MISS,
        f"no pool has all of the labels {job}; the nearest, {nearest}, lacks {_listed(missing)}",
    )


def _listed(words: Iterable[str]) -> str:
    ordered = sorted(words)
    shown = ", ".join(_shortened(word) for word in ordered[:_LISTED])
    return f"{shown} and {len(ordered) - _LISTED} more" if len(ordered) > _LISTED else shown


def _shortened(word: str) -> str:
    return word if len(word) <= _LISTED_LENGTH else f"{word[: _LISTED_LENGTH - 1]}…"
