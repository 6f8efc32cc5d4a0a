"""GitHub's possible faults, as values.

`Faults` are probabilities and ranges that hold until they are replaced; all are off by default. An
`Injected` fault hits the next calls that match it and is then used up. Both draw from the model's own
seeded generator, so a seed replays exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import msgspec

#: Seconds, from and to.
Range = tuple[float, float]

NO_TIME: Range = (0.0, 0.0)


class Faults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    # Webhooks
    hook_lost: float = 0.0  # never sent and never listed: only a comparison finds the job (I8)
    hook_failed: float = 0.0  # listed as failed, so an App can request redelivery
    hook_doubled: float = 0.0
    hook_delay: Range = NO_TIME
    hook_held_back: float = 0.0  # this one is overtaken by later ones
    hook_held_back_for: Range = (1.0, 30.0)

    # Calls
    latency: Range = NO_TIME
    request_lost: float = 0.0  # never arrived: nothing happened
    reply_lost: float = 0.0  # it happened, and the caller gets no answer
    server_error: float = 0.0  # 500, 502 or 503; nothing happened

    # Assignment and runners
    assign_delay: Range = NO_TIME
    #: How often, and for how long, GitHub calls a busy runner idle. DELETE then succeeds.
    busy_unseen: float = 0.0
    busy_unseen_for: Range = (1.0, 60.0)
    #: DELETE succeeds although GitHub itself says busy.
    busy_deleted: float = 0.0
    #: GitHub's answer to a suspended installation's old tokens: 404 for everything (I66), or 403.
    suspended_is_404: bool = True


class FaultKind(StrEnum):
    """A false answer to one call."""

    SUSPENDED = "suspended"
    RUNNERS_DISABLED = "runners-disabled"
    ACTIONS_DISABLED = "actions-disabled"
    IP_NOT_PERMITTED = "ip-not-permitted"
    NOT_ACCESSIBLE = "not-accessible"
    MAX_RUNNERS = "max-runners"
    RATE_LIMIT = "rate-limit"
    SECONDARY_LIMIT = "secondary-limit"
    NOT_FOUND = "not-found"
    BAD_CREDENTIALS = "bad-credentials"
    NAME_EXISTS = "name-exists"
    INVALID = "invalid"
    SERVER_ERROR = "server-error"
    BAD_GATEWAY = "bad-gateway"
    UNAVAILABLE = "unavailable"
    REQUEST_LOST = "request-lost"
    REPLY_LOST = "reply-lost"
    CONFLICT = "conflict"  # for the calls of runners
    BUSY_UNSEEN = "busy-unseen"  # this answer says "not busy"
    BUSY_DELETED = "busy-deleted"  # this DELETE is granted, busy or not


@dataclass(slots=True)
class Injected:
    kind: FaultKind
    #: Names of routes (`paddock.fakes.github.api`), an account's login, a part of the path; None: any.
    #: Calls of runners are hit only by their names (`runner.acquire`), or all by `runner`.
    route: str | None = None
    owner: str | None = None
    path: str | None = None
    #: How many calls it hits; None: all, until `until`.
    times: int | None = 1
    until: datetime | None = None

    def hits(self, *, route: str, owner: str | None, path: str, now: datetime) -> bool:
        return (
            (self.times is None or self.times > 0)
            and (self.until is None or now < self.until)
            and self.route in (None, route)
            and (self.owner is None or (owner or "").lower() == self.owner.lower())
            and (self.path is None or self.path in path)
        )

    def spent(self, now: datetime) -> bool:
        return self.times == 0 or (self.until is not None and now >= self.until)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long GitHub takes without faults (docs/github.md)."""

    #: The lease on a job; the runner renews it every 60 s. After this time without a renewal GitHub
    #: reports "lost communication".
    lease: float = 600.0
    #: After that GitHub goes on calling the dead runner busy for a while (10 to 15 minutes in all).
    lost_lingers: Range = (0.0, 300.0)
    #: GitHub calls a runner offline after this time without contact. Its long poll is 50 s.
    offline_after: float = 90.0
    #: After this time a job that its runner has not fetched goes back into the queue.
    fetch_within: float = 60.0
    #: GitHub gives up a cancelled runner that has not answered within this time.
    cancel_within: float = 300.0
    #: A queued job is cancelled after a day.
    queued_for: float = 86_400.0
    #: The record of an ephemeral runner that never ran goes after about a day.
    unused_for: float = 86_400.0
    token_for: float = 3_600.0
    #: Deliveries older than this are no longer listed.
    deliveries_for: float = 3 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """Per hour, except where it says otherwise. The mint bucket and the points are an App's; the
    rest is each installation's."""

    core: int = 5_000
    mint: int = 10_000
    points_per_minute: int = 900
    runners_per_group: int = 10_000
