"""The whole store: what the assembly of a replica hands to its services.

No service takes this type. Each takes the port it uses, so its signature says what it can read and
change. The modules beside this one declare them by consumer; the errors of all are in
`paddock.ports.errors`.
"""

from __future__ import annotations

from typing import Protocol

from paddock.ports.accounts import InstallationStore, RunnerGroupStore
from paddock.ports.deliveries import DeliveryStore, InboxStore, RedeliveryStore
from paddock.ports.history import HistoryStore, StepStore
from paddock.ports.jobs import ComparisonStore, RefusedJobStore, TrustStore
from paddock.ports.matching import DebtStore, MatchingStore, MintStore
from paddock.ports.operators import OperatorStore, SessionStore
from paddock.ports.pools import PoolSizeStore
from paddock.ports.recovery import PodViewStore, RecoveryStore
from paddock.ports.runner_versions import VersionScheduleStore
from paddock.ports.runners import VitalsStore


class Store(
    InstallationStore,
    RunnerGroupStore,
    InboxStore,
    DeliveryStore,
    RedeliveryStore,
    RefusedJobStore,
    TrustStore,
    ComparisonStore,
    MatchingStore,
    MintStore,
    DebtStore,
    VitalsStore,
    VersionScheduleStore,
    PodViewStore,
    RecoveryStore,
    PoolSizeStore,
    OperatorStore,
    SessionStore,
    StepStore,
    HistoryStore,
    Protocol,
):
    """Every store port."""
