"""Who asks: a bearer token, reviewed once and remembered until it expires.

A thousand idle Pods that ask every minute would otherwise be a thousand TokenReviews a minute. Tokens
are remembered by their hash only. A "no" is not remembered here (a reviewer may, for seconds), and
neither is a reviewer that could not be asked (I9).
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Final

from paddock.domain.pods import PodIdentity
from paddock.ports import Clock, Reviewer

#: Kubernetes' projected tokens live for an hour at most before they are renewed; a token that says
#: otherwise is asked about again all the same.
_LONGEST: Final = timedelta(hours=1)
#: More tokens than this are not alive at once; the oldest entries make room.
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
        """The Pod behind an Authorization header that `peer` sent; `None` if it is no Pod's. Raises
        `FleetUnavailable` if that cannot be told."""
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
        """Its Pod is gone: whatever token it had is nobody's."""
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
