"""Limits on concurrent and on rejected reviews, so that forged tokens cannot take the API server's time
from genuine ones.

Limits are per peer address, which the sender of a forged token cannot choose. A limit per claimed Pod
would let a hostile job lock out the Pod it names. Only a rejected review is charged: many Pods may
share one address behind a proxy, and all of them may have new tokens at once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import prometheus_client

from paddock.domain.github.budgets import TokenBucket
from paddock.ports import Clock, ReviewsExhausted

#: Connections for reviews alone. A review takes milliseconds, so these serve a thousand per second.
CONNECTIONS: Final = 8
#: Reviews of one peer that may be under way or rejected at once, and rejections forgiven per second.
#: A Pod needs a new review about once an hour.
PEER_BURST: Final = 20
PEER_REFILL_PER_S: Final = 1.0
#: Reviews that may wait for a connection. All Pods ask a starting server at once.
MOST_WAITING: Final = 2000
#: Peers whose charges are kept; beyond that the peer charged longest ago is dropped.
MOST_PEERS: Final = 10_000

LIMITED = prometheus_client.Counter(
    "paddock_token_reviews_limited_total",
    "Tokens that were not reviewed because too many reviews were under way or had said no, by limit: "
    "peer, total.",
    ["limit"],
)


class ReviewLimits:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._connections = asyncio.Semaphore(CONNECTIONS)
        #: Reviews under way or waiting, by peer.
        self._under_way: Counter[str] = Counter()
        self._total = 0
        #: Buckets of the peers that were charged; the latest charge is last.
        self._buckets: dict[str, TokenBucket] = {}

    @asynccontextmanager
    async def place(self, peer: str) -> AsyncIterator[None]:
        """Hold a place for one review; waits for a connection. Raises `ReviewsExhausted`."""
        if self._total >= CONNECTIONS + MOST_WAITING:
            LIMITED.labels("total").inc()
            raise ReviewsExhausted("Too many reviews of tokens are waiting.")
        if self._under_way[peer] + 1 > self._bucket(peer).tokens:
            LIMITED.labels("peer").inc()
            raise ReviewsExhausted(f"Too many reviews of tokens from {peer}.")
        self._under_way[peer] += 1
        self._total += 1
        try:
            async with self._connections:
                yield
        finally:
            self._total -= 1
            self._under_way[peer] -= 1
            if not self._under_way[peer]:
                del self._under_way[peer]

    def charge(self, peer: str) -> None:
        """Charge the peer for a rejected review."""
        left = self._bucket(peer).take(1)
        assert left is not None, "a place is given only for a token in the bucket"
        self._buckets.pop(peer, None)
        if len(self._buckets) >= MOST_PEERS:
            del self._buckets[next(iter(self._buckets))]
        self._buckets[peer] = left

    def _bucket(self, peer: str) -> TokenBucket:
        now = self._clock.now()
        if (known := self._buckets.get(peer)) is not None:
            return known.at(now)
        return TokenBucket.full(capacity=PEER_BURST, per_s=PEER_REFILL_PER_S, now=now)
