"""When a claim and its mint are given up. One order of moments, in one place.

A claim is made in the database, then one request to GitHub mints its JIT. If the replica dies in
between, no component finishes the claim. The moments at which others may step in have to be in this
order, counted from the claim:

    30 s    MINT_GIVEN_UP   the GitHub client ends its request: this replica adds nothing any more
    45 s    MINT_DEADLINE   a poll of the claim's Pod may take the claim over, under a fresh name
    60 s    MINT_SETTLED    GitHub's answer whether it has a record under the name is final
    300 s   `stale_claim`   recovery releases the claim, if no poll has taken it over

If the first came after the second, two replicas could mint for one Pod. If the third came before the
first, a record made a moment later would be left at GitHub for ever. `recovery.stale_claim` tells the
whole of it; `tests/unit/test_claim_timing.py` holds the order.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

#: GitHub answers a mint in well under a second, and gives up on a request itself after 10 s. Single
#: reads have a limit of their own; this one ends an answer that arrives byte by byte. It limits each
#: request to GitHub, mints among them.
MINT_GIVEN_UP: Final = timedelta(seconds=30)

#: The row's `mint_deadline`. Half of `MINT_GIVEN_UP` more than that: time for the write after the
#: answer, and for clocks of replicas that differ by seconds.
MINT_DEADLINE: Final = timedelta(seconds=45)

#: Twice `MINT_GIVEN_UP`: a request that was sent at its last moment has had its effect at GitHub.
#: Before this, "there is no record under this name" may be true only for now.
MINT_SETTLED: Final = timedelta(seconds=60)
