"""Whose token it is, in Kubernetes' words.

A TokenReview says for which Pod a projected token was made, and for which of the audiences we named.
It does not say until when: that is in the token, which can be read once the API server has vouched
for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import jwt
import msgspec

from paddock.domain.names import PodName
from paddock.domain.pods import Audience, PodIdentity

#: Named in the Pod's template and in the review alike; a token for anybody else is not for us.
AUDIENCES: Final[Mapping[str, Audience]] = {
    "paddock.dev/dispatch": Audience.DISPATCH,
    "paddock.dev/vitals": Audience.VITALS,
}

_POD_NAME: Final = "authentication.kubernetes.io/pod-name"
_POD_UID: Final = "authentication.kubernetes.io/pod-uid"


class User(msgspec.Struct, frozen=True):
    username: str = ""
    extra: Mapping[str, Sequence[str]] = {}


class ReviewStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: User = User()
    audiences: Sequence[str] = ()
    error: str = ""


class TokenReview(msgspec.Struct, frozen=True):
    status: ReviewStatus


def review_request(token: str) -> dict[str, object]:
    return {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token, "audiences": list(AUDIENCES)},
    }


def identity(review: TokenReview, token: str, *, service_account: str) -> PodIdentity | None:
    """Who it is, or `None`: not vouched for, for another audience, of another service account
    (`system:serviceaccount:NAMESPACE:NAME`), or not bound to a Pod."""
    status = review.status
    if not status.authenticated or status.user.username != service_account:
        return None
    audiences = [AUDIENCES[name] for name in status.audiences if name in AUDIENCES]
    name, uid = (_only(status.user.extra.get(key)) for key in (_POD_NAME, _POD_UID))
    expires_at = _expiry(token)
    # A token for both would let job code, which sees the one for vitals, ask for work (I21).
    if len(audiences) != 1 or name is None or uid is None or expires_at is None:
        return None
    return PodIdentity(
        pod_name=PodName(name), pod_uid=uid, expires_at=expires_at, audience=audiences[0]
    )


def _only(values: Sequence[str] | None) -> str | None:
    return values[0] if values is not None and len(values) == 1 else None


def _expiry(token: str) -> datetime | None:
    try:
        claims = jwt.decode(token, options={"verify_signature": False})
        return datetime.fromtimestamp(claims["exp"], UTC)
    except (jwt.InvalidTokenError, KeyError, TypeError, ValueError, OverflowError, OSError):
        return None
