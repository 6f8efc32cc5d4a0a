"""The store as one class. The ports document most of its methods."""

from __future__ import annotations

from paddock.ports import Store
from paddock.store.accounts import Accounts
from paddock.store.deliveries import Deliveries
from paddock.store.dispatch import Dispatch
from paddock.store.intake import Intake
from paddock.store.matching import Matching
from paddock.store.operators import Pausing, Sessions
from paddock.store.recovery import Recovering
from paddock.store.retention import Retaining
from paddock.store.sizing import Sizing
from paddock.store.versions import Versions
from paddock.store.vitals import Vitals


class PgStore(
    Accounts,
    Sizing,
    Deliveries,
    Intake,
    Matching,
    Recovering,
    Dispatch,
    Vitals,
    Retaining,
    Pausing,
    Sessions,
    Versions,
):
    """PostgreSQL behind the store's ports."""


def _implements_the_port(store: PgStore) -> Store:
    """Lets mypy check that the class implements the port."""
    return store
