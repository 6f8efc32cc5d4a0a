"""A runner as its row tells of it, and the answer of a write that came too late."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from paddock.domain.ids import (
    AccountId,
    AppId,
    GitHubRunnerId,
    JobId,
    KeyId,
    PoolId,
    RunnerId,
)
from paddock.domain.states import RunnerState


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    id: RunnerId
    pool: PoolId
    pod_name: str
    pod_uid: str | None
    state: RunnerState
    generation: int
    since: datetime
    key: KeyId | None
    account: AccountId | None
    name: str | None
    mint_deadline: datetime | None
    github_id: GitHubRunnerId | None
    delivery: UUID | None
    job: JobId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPod:
    """An idle runner whose poller holds a request open, as the matcher needs to know it."""

    id: RunnerId
    pool: PoolId
    pod_name: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A Pod matched with a key: all that its mint needs, read in the transaction that made it.

    `generation` is the fence: whoever acts for this claim later names it, and a write for a claim
    that is no longer the runner's finds another (I16, I32).
    """

    runner: RunnerId
    generation: int
    name: str
    mint_deadline: datetime
    key: KeyId
    account: AccountId
    app: AppId
    installation: int
    host: str
    login: str
    #: The repository the runner registers at; `None` is the organisation.
    repository: str | None
    runner_group: int
    labels: tuple[str, ...]
    hint: JobId | None


@dataclass(frozen=True, slots=True)
class Conflict:
    """The row was not as the writer believed; nothing was written. `state` is `None` when there is
    no such runner."""

    state: RunnerState | None
    generation: int | None

    def __str__(self) -> str:
        if self.state is None:
            return "there is no such runner"
        return f"it is {self.state} in generation {self.generation}"
