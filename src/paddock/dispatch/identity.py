"""The identity of a Pod: its bearer token, reviewed once and cached until it expires.

Without the cache, a thousand idle Pods that ask every minute would cause a thousand TokenReviews a
minute. Tokens are cached by their hash only. A rejection is not cached here (a reviewer may cache it
for seconds), nor is a failure to reach the reviewer (I9).
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Final

from paddock.domain.pods.pod import PodIdentity
from paddock.ports import Clock, Reviewer

#: The kubelet renews projected tokens within an hour. A token with a later expiry is reviewed again
#: after this time too.
_LONGEST: Final = timedelta(hours=1)
#: More tokens than this are not valid at once; beyond it the oldest entries are dropped.
_MOST: Final = 50_000
#: A token longer than this is no token.
_TOKEN_MAX: Final = 8192


class Identities:
    def __init__(self, reviewer: Reviewer, clock: Clock) -> None:
        self._reviewer = reviewer
        self._clock = clock
        #: By the hash of the token.
        self._known: dict[bytes, PodIdentity] = {}
        self._of_pod: defaultdict[str, set[bytes]] = defaultdict(set)

    async def identify(self, headers: Mapping[str, str], *, peer: str) -> PodIdentity | None:
        """The Pod whose token is in the Authorization header that `peer` sent; `None` if the token is
        not a Pod's. Raises `FleetUnavailable` if the token cannot be reviewed."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not 0 < len(token) <= _TOKEN_MAX:
            return None
        digest = hashlib.sha256(token.encode(errors="surrogateescape")).digest()
        known = self._known.get(digest)
        if known is not None and known.expires_at > self._clock.now():
            return known
        self._drop(digest)
        found = await self._reviewer.review(token, peer=peer)
        if found is not None:
            self._remember(digest, found)
        return found

    def forget(self, pod_uid: str) -> None:
        """The Pod is gone: drop its tokens."""
        for digest in self._of_pod.pop(pod_uid, ()):
            del self._known[digest]

    def _remember(self, digest: bytes, identity: PodIdentity) -> None:
        latest = self._clock.now() + _LONGEST
        if identity.expires_at > latest:
            identity = replace(identity, expires_at=latest)
        if len(self._known) >= _MOST:
            self._drop(next(iter(self._known)))
        self._known[digest] = identity
        self._of_pod[identity.pod_uid].add(digest)

    def _drop(self, digest: bytes) -> None:
        if (known := self._known.pop(digest, None)) is None:
            return
        others = self._of_pod[known.pod_uid]
        others.remove(digest)
        if not others:
            del self._of_pod[known.pod_uid]
