"""Which scope backs off, and for how long.

The narrowest scope that a failure is about backs off; all others go on (I17).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from paddock.domain.github.errors import BackOff, Failure
from paddock.domain.ids import AppId
from paddock.domain.runners.runner import Claim
from paddock.domain.runners.versions import REFUSED


class BackOffScope(StrEnum):
    KEY = "key"
    REPOSITORY = "repository"
    ACCOUNT = "account"
    APP = "app"


class BackOffCause(StrEnum):
    """What a back-off follows from. Its `reason` says the same in a sentence, with details."""

    MINT_FAILED = "mint failed"
    ENDED_WITHOUT_A_JOB = "ended without a job"
    VERSION_REFUSED = "runner version refused"


@dataclass(frozen=True, slots=True)
class BackOffSubject:
    scope: BackOffScope
    id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BackOffTerms:
    """The first failure causes a wait of `seconds`, each further one twice as long, up to `ceiling`.
    The first `forgiven` failures in a row cause none."""

    cause: BackOffCause
    reason: str
    seconds: float
    ceiling: float
    forgiven: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UnassignedTerms:
    """A job that GitHub does not assign waits `seconds`, each further time twice as long, up to
    `ceiling`."""

    seconds: float
    ceiling: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PausedScope:
    """A scope about which GitHub is not asked at present: an App, one of its installations (GitHub's
    number), or a repository of that installation (its full name)."""

    app: AppId
    installation: int | None = None
    repository: str | None = None


#: Two runners of a key may end without a job by bad luck (a cancelled run, a drained node); with the
#: third in a row something is wrong, and every further one would cost a mint (I69).
ENDED_WITHOUT_A_JOB: Final = BackOffTerms(
    cause=BackOffCause.ENDED_WITHOUT_A_JOB,
    reason="its runners keep ending without a job",
    seconds=30,
    ceiling=900,
    forgiven=2,
)


#: GitHub refused a runner whose version is not known, so all Pods of the key wait. (Of a known version
#: only its Pods wait: `paddock.domain.runners.versions.REFUSED`, whose times these are.)
VERSION_REFUSED: Final = BackOffTerms(
    cause=BackOffCause.VERSION_REFUSED,
    reason="GitHub refused the version of its runner",
    seconds=REFUSED.seconds,
    ceiling=REFUSED.ceiling,
)


#: GitHub does not assign a job although a runner for it was online. Only this job waits, not the others
#: of its key. Each further try takes another runner: a mint, and a Pod for minutes.
NOT_ASSIGNED: Final = UnassignedTerms(seconds=900, ceiling=4 * 3600)


def subject_of(failure: Failure, claim: Claim) -> BackOffSubject | None:
    """The scope that a failed mint is about; `None` if none has to wait. For a failure of one job or
    repository the key waits, since repositories that register at their organisation share a key."""
    match failure.backs_off:
        case BackOff.NONE:
            return None
        case BackOff.JOB | BackOff.REPOSITORY:
            return BackOffSubject(BackOffScope.KEY, claim.key)
        case BackOff.ACCOUNT:
            return BackOffSubject(BackOffScope.ACCOUNT, claim.account)
        case BackOff.APP:
            return BackOffSubject(BackOffScope.APP, claim.app)


def subjects_of(claim: Claim) -> tuple[BackOffSubject, ...]:
    """The scopes whose failures a successful mint ends. Not the key: a mint does not show that its
    runners get jobs."""
    return (
        BackOffSubject(BackOffScope.ACCOUNT, claim.account),
        BackOffSubject(BackOffScope.APP, claim.app),
    )


def terms_of(failure: Failure) -> BackOffTerms:
    return BackOffTerms(
        cause=BackOffCause.MINT_FAILED,
        reason=failure.sentence,
        seconds=failure.backoff_s,
        ceiling=failure.ceiling_s,
    )
