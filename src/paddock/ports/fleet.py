"""The fleet: where runners live. Two adapters, `kube` and `local`, are driven by the same services."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from paddock.domain.names import PodName
from paddock.domain.pods import Host, Pod, PodIdentity, PodList, PodOrder

#: Stands before what a fleet knows to be only the rest of a log, where one may take it for the whole.
LOG_IS_CUT: Final = "[the beginning of this log is gone]"


class FleetUnavailable(Exception):
    """It could not be asked, or did not answer. Nothing is known of what became of a request; a
    sentence says what was tried."""


class ReviewsExhausted(FleetUnavailable):
    """A token was not reviewed: too many reviews are under way, or have said no."""


class Fleet(Protocol):
    async def create(self, order: PodOrder) -> Pod:
        """Create the Pod. One of that name that is there already, and is ours, is returned as it
        is: the row fixed the name, so it can only be an earlier try."""
        ...

    async def list(self) -> PodList: ...

    async def hosts(self) -> Sequence[Host]:
        """The hosts there are."""
        ...

    def watch(self) -> AsyncIterator[Pod]:
        """Pods as they change, without end. A Pod that vanished comes once more with
        `Phase.UNKNOWN` and reason "deleted". What is missed while the watch is down is made up for
        by `list` (I28)."""
        ...

    async def ask_to_go(self, name: PodName, *, uid: str) -> None:
        """Ask for the end of a Pod that may live. It stays to be seen until it is reaped, also if it
        ended at this very moment by itself: how it ended can still be read (I30). Only the Pod of that
        UID (I36); one that is not there is no error."""
        ...

    async def reap(self, name: PodName, *, uid: str) -> None:
        """Take away a Pod that has ended, and whose end is on record; the same of its UID."""
        ...

    async def stamp(self, name: PodName, *, uid: str, owner: str) -> None:
        """Put the owner's label on. For people and network policy; nothing is ever decided by it
        (I22)."""
        ...

    async def log_tail(self, name: PodName, *, uid: str, lines: int, most_bytes: int) -> str | None:
        """The end of the runner container's log; `None` if there is none, and never will be. Begins
        with `LOG_IS_CUT` if there was more, and it is lost. Raises `FleetUnavailable` where it could
        not be read now."""
        ...


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a fleet tells of a Pod's end beside the Pod's own status."""

    sentences: Sequence[str] = ()
    #: False if a part could not be read: it may be asked for again.
    complete: bool = True


class Witness(Protocol):
    """Who else saw it: a cluster writes down what it did to a Pod, and how its node was."""

    async def circumstances(self, *, uid: str, node: str | None) -> Circumstances:
        """The Pod may be gone."""
        ...

    async def overheard(self, *, uid: str) -> str | None:
        """What its runner had said when its end was announced, if that was heard. Its container may be
        gone, and its log with it. For a verdict, never for a proof: it may have said more since."""
        ...


class Reviewer(Protocol):
    """Who asks. Kubernetes' TokenReview, or the local fleet's secrets."""

    async def review(self, token: str, *, peer: str) -> PodIdentity | None:
        """Whose token it is; `None` if no Pod's. `peer` is the address that sent it, for limits. Raises
        `FleetUnavailable` when it cannot be told: that is no "no"."""
        ...
