"""The one store. Each public method is one transaction."""

from __future__ import annotations

from paddock.store.accounts import Accounts
from paddock.store.jobs import Jobs
from paddock.store.matching import Matching
from paddock.store.pools import Pools
from paddock.store.retention import Retaining
from paddock.store.runners import Runners


class PgStore(Accounts, Pools, Jobs, Runners, Matching, Retaining):
    """PostgreSQL behind the `Store` port."""
