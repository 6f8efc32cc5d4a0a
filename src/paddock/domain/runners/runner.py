"""A runner as its row tells of it, and the answer of a write that came too late."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Literal
from uuid import UUID

import msgspec

from paddock.domain.allocation import Withheld
from paddock.domain.ids import (
    AccountId,
    AppId,
    GitHubRunnerId,
    JobId,
    KeyId,
    PoolId,
    RunnerId,
)
from paddock.domain.limits import NOTHING, Resources
from paddock.domain.names import PodName, RunnerName
from paddock.domain.runners.dialects import RunnerProgram
from paddock.domain.runners.endings import Retired
from paddock.domain.runners.versions import RunnerVersion
from paddock.domain.states import RunnerState


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    id: RunnerId
    pool: PoolId
    pod_name: PodName
    pod_uid: str | None
    state: RunnerState
    generation: int
    since: datetime
    key: KeyId | None
    account: AccountId | None
    name: RunnerName | None
    mint_deadline: datetime | None
    github_id: GitHubRunnerId | None
    delivery: UUID | None
    job: JobId | None
    shape: Literal["gated", "single"]
    spec_hash: str
    node: str | None
    created_at: datetime
    #: When its poller last began to ask.
    heard_at: datetime | None
    acknowledged_at: datetime | None
    #: When the runner itself said that a job began.
    job_marked_at: datetime | None
    hint: JobId | None
    suspect_at: datetime | None
    absent_reads: int
    absent_since: datetime | None
    retire_reason: str | None
    deregistered_at: datetime | None
    proved_at: datetime | None
    claimed_at: datetime | None = None
    armed_at: datetime | None = None
    done_at: datetime | None = None
    retiring_at: datetime | None = None
    #: Why it is retired.
    retired: Retired | None = None
    #: It is retired because GitHub never saw it online.
    unregistered: bool = False
    #: Who ended it by force; then nothing brings it back.
    forced_by: str | None = None
    #: When we were about to ask the fleet for its deletion.
    deletion_asked_at: datetime | None = None
    #: Whether its runner container was ever seen started; `None`: not known.
    started: bool | None = None
    #: The version of its runner program; `None`: not known.
    version: RunnerVersion | None = None
    #: What it takes, by the description of its pool that it was made from.
    cost: Resources = NOTHING
    #: The program of its pool, as far as the pool tells, and the pool was not changed since.
    program: RunnerProgram = field(default=RunnerProgram.UNKNOWN, compare=False)
    #: The names of its account and its pool, for logs. `None`: the row was read without them.
    login: str | None = field(default=None, compare=False)
    pool_name: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerSummary:
    """A runner as it is listed for people."""

    pod: PodName
    pool: str
    state: RunnerState
    since: datetime
    #: Why it is in this state.
    why: str
    account: str | None
    #: The name GitHub knows it by.
    name: RunnerName | None
    job: JobId | None
    node: str | None
    suspect_since: datetime | None


class WaitingPod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An idle runner whose poller holds a request open, as the matcher needs to know it."""

    id: RunnerId
    pool: PoolId
    pod_name: PodName
    generation: int
    #: Its own cost: its pool's description may have changed since it was made.
    cost: Resources = NOTHING


class WaitingPods(Collection[WaitingPod]):
    """Waiting Pods by pool, in the order in which they came. A match reads only the pools it needs, so
    the Pods of all other pools cost it nothing (I77)."""

    def __init__(self, pods: Iterable[WaitingPod] = ()) -> None:
        self._pools: dict[PoolId, dict[RunnerId, WaitingPod]] = {}
        self._count = 0
        for pod in pods:
            self.add(pod)

    def add(self, pod: WaitingPod) -> None:
        pods = self._pools.setdefault(pod.pool, {})
        self._count += pod.id not in pods
        pods[pod.id] = pod

    def remove(self, pod: WaitingPod) -> None:
        pods = self._pools[pod.pool]
        del pods[pod.id]
        self._count -= 1
        if not pods:
            del self._pools[pod.pool]

    def first(self, pool: PoolId, most: int) -> list[WaitingPod]:
        return list(islice(self._pools.get(pool, {}).values(), most))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[WaitingPod]:
        for pods in self._pools.values():
            yield from pods.values()

    def __contains__(self, pod: object) -> bool:
        return isinstance(pod, WaitingPod) and pod.id in self._pools.get(pod.pool, {})


class Claim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A Pod matched with a key: all that its mint needs, read in the transaction that made it.

    `generation` is the fence: every later write for this claim names it, and does nothing if the runner
    is in another generation by then (I16, I32).
    """

    runner: RunnerId
    generation: int
    name: RunnerName
    mint_deadline: datetime
    key: KeyId
    account: AccountId
    app: AppId
    #: GitHub's own number of the App.
    github_app: int
    installation: int
    host: str
    login: str
    #: The repository the runner registers at; `None` is the organisation.
    repository: str | None
    runner_group: int
    labels: tuple[str, ...]
    pool: str
    hint: JobId | None


class Match(msgspec.Struct, frozen=True):
    """What one match gave out, and why the other keys with unserved jobs got nothing."""

    claims: tuple[Claim, ...]
    withheld: Mapping[KeyId, Withheld]
    #: Pods that were chosen and not claimed: they were no longer idle in the generation they asked in.
    left_out: tuple[RunnerId, ...] = ()
    #: The batch was full, or Pods were left out: another match can give out more at once.
    more: bool = False
    #: A key could use another Pod, and none of its pool waits.
    short_of_pods: bool = False


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
