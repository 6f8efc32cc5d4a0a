"""Which Pod a token belongs to, by a review of the API server (`dispatch.identity` caches the answer).

The API server is asked last. A token that its own claims, the cluster's keys or a recent rejection rule
out costs no request. The other reviews are limited: strangers can send thousands of tokens a second.
"""

from __future__ import annotations

import hashlib
from typing import Final

from prometheus_client import Counter

from paddock.domain.pods.pod import PodIdentity
from paddock.fleet.kube.api import KubeApi, KubeCall, Resource
from paddock.fleet.kube.review_limits import ReviewLimits
from paddock.fleet.kube.reviews import TokenReview, identity, review_request
from paddock.fleet.kube.token_claims import Rejection, TokenClaims, screened
from paddock.fleet.kube.token_keys import Signature, TokenKeys
from paddock.ports import Clock

_REVIEWS = Resource("tokenreviews", group="authentication.k8s.io")
#: An API server that has just started may reject tokens that it soon accepts. A Pod gives up after a
#: minute of rejections.
REJECTED_FOR: Final = 10.0
#: Beyond this the oldest is dropped. 500 peers at their limits send this many within `REJECTED_FOR`.
MOST_REJECTED: Final = 10_000

REJECTIONS = Counter(
    "paddock_tokens_rejected_total",
    "Pods' tokens rejected, by reason; the API server was asked only for `review`.",
    ["reason"],
)


class KubeReviewer:
    def __init__(self, api: KubeApi, *, namespace: str, service_account: str, clock: Clock) -> None:
        """`api` has connections of its own: reviews must not take those of other requests."""
        self._api = api
        self._service_account = f"system:serviceaccount:{namespace}:{service_account}"
        self._clock = clock
        self._keys = TokenKeys(api, clock)
        self._limits = ReviewLimits(clock)
        #: Times of rejections, by the token's hash; the latest is last.
        self._rejected: dict[bytes, float] = {}

    async def review(self, token: str, *, peer: str) -> PodIdentity | None:
        found = await self._review(token, peer)
        if isinstance(found, Rejection):
            REJECTIONS.labels(found).inc()
            return None
        return found

    async def _review(self, token: str, peer: str) -> PodIdentity | Rejection:
        now = self._clock.now()
        claims = screened(token, service_account=self._service_account, now=now)
        if isinstance(claims, Rejection):
            return claims
        digest = hashlib.sha256(token.encode()).digest()
        if self._was_rejected(digest):
            return Rejection.REPEATED
        signature = self._keys.check(token, claims.key_id)
        if signature is Signature.FORGED:
            return Rejection.SIGNATURE
        async with self._limits.place(peer):
            found = await self._asked(token, claims, signature)
            if found is Rejection.REVIEW:
                self._limits.charge(peer)
                self._reject(digest)
        return found

    async def _asked(
        self, token: str, claims: TokenClaims, signature: Signature
    ) -> PodIdentity | Rejection:
        if signature is Signature.UNDECIDED:
            await self._keys.refresh()
            signature = self._keys.check(token, claims.key_id)
        if signature is Signature.FORGED:
            return Rejection.SIGNATURE
        answer = await self._api.send(
            "POST", KubeCall("create", _REVIEWS), review_request(token), TokenReview
        )
        found = identity(
            answer, expires_at=claims.expires_at, service_account=self._service_account
        )
        if found is None:
            return Rejection.REVIEW
        if signature is Signature.VERIFIED:
            self._keys.confirm()
        return found

    def _was_rejected(self, digest: bytes) -> bool:
        rejected_at = self._rejected.get(digest)
        return rejected_at is not None and self._clock.monotonic() - rejected_at < REJECTED_FOR

    def _reject(self, digest: bytes) -> None:
        self._rejected.pop(digest, None)
        if len(self._rejected) >= MOST_REJECTED:
            del self._rejected[next(iter(self._rejected))]
        self._rejected[digest] = self._clock.monotonic()
