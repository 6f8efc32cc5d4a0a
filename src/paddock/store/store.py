"""The one store. Each public method is one transaction."""

from __future__ import annotations

from paddock.store.accounts import Accounts
from paddock.store.deliveries import Deliveries
from paddock.store.intake import Intake
from paddock.store.matching import Matching
from paddock.store.pools import Pools
from paddock.store.retention import Retaining
from paddock.store.runners import Runners


class PgStore(Accounts, Pools, Deliveries, Intake, Runners, Matching, Retaining):
    """PostgreSQL behind the `Store` port."""
