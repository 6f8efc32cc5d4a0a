"""Kubernetes' TokenReview: the request, and the Pod's identity in the answer.

A TokenReview names the Pod that a projected token was made for, and which of our audiences it is for.
It does not give the expiry. That is in the token, which is trusted once the API server has
authenticated it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from paddock.domain.names import PodName
from paddock.domain.pods.pod import PodIdentity
from paddock.fleet.kube.token_claims import AUDIENCES, only_audience

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


def identity(
    review: TokenReview, *, expires_at: datetime, service_account: str
) -> PodIdentity | None:
    """The Pod's identity. `None` if the token is not authenticated, is for another audience, is of
    another service account (`system:serviceaccount:NAMESPACE:NAME`), or is not bound to a Pod."""
    status = review.status
    if not status.authenticated or status.user.username != service_account:
        return None
    audience = only_audience(status.audiences)
    name, uid = (_only(status.user.extra.get(key)) for key in (_POD_NAME, _POD_UID))
    if audience is None or name is None or uid is None:
        return None
    return PodIdentity(
        pod_name=PodName(name), pod_uid=uid, expires_at=expires_at, audience=audience
    )


def _only(values: Sequence[str] | None) -> str | None:
    return values[0] if values is not None and len(values) == 1 else None
