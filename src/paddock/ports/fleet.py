"""The fleet: where runners live. Two adapters, `kube` and `local`, are driven by the same services."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from paddock.domain.names import PodName
from paddock.domain.pods.pod import Host, Pod, PodIdentity, PodList, PodOrder

#: The first line of a log whose beginning the fleet knows to be lost. Without it the rest would look
#: like the whole log.
LOG_IS_CUT: Final = "[the beginning of this log is gone]"


class FleetUnavailable(Exception):
    """The fleet could not be asked, or did not answer. The outcome of the request is unknown; a
    sentence says what was tried."""


class ReviewsExhausted(FleetUnavailable):
    """A token was not reviewed: too many reviews are under way, or were refused."""


class Fleet(Protocol):
    async def create(self, order: PodOrder) -> Pod:
        """Create the Pod. If a Pod of ours with that name exists, it is returned as it is: the row
        fixed the name, so it can only be an earlier try."""
        ...

    async def list(self) -> PodList: ...

    async def hosts(self) -> Sequence[Host]:
        """The hosts there are."""
        ...

    def watch(self) -> AsyncIterator[Pod]:
        """Pods as they change, without end. A Pod that vanished comes once more with `Phase.UNKNOWN`
        and reason "deleted". `list` makes up for changes that are missed while the watch is down
        (I28)."""
        ...

    async def delete_live_pod(self, name: PodName, *, uid: str) -> None:
        """Ask for the end of a Pod that may live. It stays visible until it is reaped, even if it ended
        by itself at this very moment: how it ended can still be read (I30). Only the Pod of that UID is
        asked for (I36); a missing Pod is no error."""
        ...

    async def reap(self, name: PodName, *, uid: str) -> None:
        """Remove a Pod that has ended and whose end is recorded. The UID counts as above."""
        ...

    async def stamp(self, name: PodName, *, uid: str, owner: str) -> None:
        """Set the owner's label, for people and network policies. No decision uses it (I22)."""
        ...

    async def log_tail(self, name: PodName, *, uid: str, lines: int, most_bytes: int) -> str | None:
        """The end of the runner container's log; `None` if there is none, and never will be. Begins
        with `LOG_IS_CUT` if its beginning is lost. Raises `FleetUnavailable` if it could not be read
        now."""
        ...


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a fleet tells of a Pod's end beside the Pod's own status."""

    sentences: Sequence[str] = ()
    #: False if a part could not be read: it may be asked for again.
    complete: bool = True


class EndRecords(Protocol):
    """Other evidence of a Pod's end: a cluster records what it did to a Pod, and the state of its
    node."""

    async def circumstances(self, *, uid: str, node: str | None) -> Circumstances:
        """The Pod may be gone."""
        ...

    async def captured_log(self, *, uid: str) -> str | None:
        """The runner's log as it was when its end was announced, if that was captured. The container
        may be gone, and its log with it. For a verdict, never for a proof: the runner may have logged
        more since."""
        ...


class Reviewer(Protocol):
    """Tells which Pod sent a token: by Kubernetes' TokenReview, or by the local fleet's secrets."""

    async def review(self, token: str, *, peer: str) -> PodIdentity | None:
        """The Pod whose token it is; `None` if no Pod's. `peer` is the address that sent it, for
        limits. Raises `FleetUnavailable` if the token could not be reviewed: it may still be valid."""
        ...
