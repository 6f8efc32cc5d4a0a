"""Whose code a job runs: our own repository's, or a stranger's.

A webhook does not say; the run does, so it is looked up for pools that ask (`forks`). Any doubt means
untrusted (I62): a head repository that is gone, a run that GitHub does not know, an event that a
stranger can set off, an event that paddock does not know.

It is a mark, not a barrier. GitHub gives a runner any job that its labels cover, and in a fork's pull
request the labels are the stranger's to choose; what keeps such jobs from a runner is its runner group.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from paddock.domain.github.objects import Absent, RunId, RunRecord
from paddock.domain.ids import AppId, HostId, JobId, RepositoryId


class Forks(StrEnum):
    """What a pool does about jobs of strangers."""

    IGNORE = "ignore"
    MARK = "mark"
    REFUSE = "refuse"


#: Only accounts that may write to the repository set these off. A pull request counts by where it comes
#: from. A review does not: every reader of the repository can submit one.
_BY_MEMBERS: Final = frozenset(
    {
        "create",
        "delete",
        "deployment",
        "deployment_status",
        "merge_group",
        "pull_request",
        "push",
        "release",
        "repository_dispatch",
        "schedule",
        "workflow_dispatch",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    trusted: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustQuestion:
    """A job whose run is to be looked up, and the installation that asks."""

    host: HostId
    job: JobId
    run: RunId
    repository: RepositoryId
    full_name: str
    app: AppId
    installation: int


def judge_run(run: RunRecord | Absent) -> Trust:
    if isinstance(run, Absent):
        return Trust(trusted=False, why="GitHub does not know its run")
    if run.head_repository_id is None:
        return Trust(trusted=False, why="the repository its code comes from is gone")
    if run.fork:
        return Trust(
            trusted=False,
            why=f"its code comes from another repository ({run.head_repository_id}), a fork",
        )
    if run.event not in _BY_MEMBERS:
        return Trust(trusted=False, why=f"strangers can set off {run.event!r}")
    return Trust(trusted=True, why=f"its code is the repository's own ({run.event})")
