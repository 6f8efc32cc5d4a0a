"""The services of a replica, assembled from ports: everything but HTTP.

`serve` runs them on a machine, the simulator in virtual time; both run exactly these services.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from paddock.dispatch.comparison import Comparison
from paddock.dispatch.debts import DebtCollector
from paddock.dispatch.deliveries import DeliveryApplier
from paddock.dispatch.delivery_writer import DeliveryWriter
from paddock.dispatch.dispatcher import Dispatcher
from paddock.dispatch.groups import RunnerGroups
from paddock.dispatch.housekeeping import Housekeeping
from paddock.dispatch.identity import Identities
from paddock.dispatch.installation_reads import InstallationReads
from paddock.dispatch.installations import Installations, NewAccount, RegisteredApp
from paddock.dispatch.minting import Minter
from paddock.dispatch.redelivery import Redelivery
from paddock.dispatch.refusals import RefusalReview
from paddock.dispatch.sealing import Sealer
from paddock.dispatch.step_times import StepTimes
from paddock.dispatch.trust import TrustReview
from paddock.dispatch.versions import VersionSchedules
from paddock.domain.recovery.thresholds import RecoveryTerms
from paddock.github.budget import Budget
from paddock.pools.mirror import PoolMirror
from paddock.pools.reconciler import Reconciler
from paddock.ports import Clock, EndRecords, Fleet, GitHub, Ids, Reviewer, Store, Wakeups
from paddock.ports.pools import PodTrial, PoolApi
from paddock.recovery.loop import Recovery
from paddock.recovery.observe import PodView
from paddock.services import Service, running

RunLoop = Callable[[], Awaitable[None]]


class Lead(Protocol):
    """`run`, on the replica that leads `name`."""

    def __call__(self, name: str, run: RunLoop) -> RunLoop: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetParts:
    """A fleet, where runners live, and the reviewer that identifies Pods by their tokens."""

    fleet: Fleet
    reviewer: Reviewer
    end_records: EndRecords | None = None
    #: The API where operators describe pools, if the fleet has one.
    pools: PoolApi | None = None
    trial: PodTrial | None = None
    #: The address at which Pods reach the server, if the fleet gives them a fixed one.
    server: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """What the services are made from."""

    store: Store
    wakeups: Wakeups
    clock: Clock
    ids: Ids
    apps: Sequence[RegisteredApp]
    github: GitHub
    budget: Budget
    new_account: NewAccount
    lead: Lead
    recovery: RecoveryTerms = field(default_factory=RecoveryTerms)

    def single(self, name: str, *services: Service) -> Service:
        """Services that need to run on only one replica: the leader of `name`."""

        async def all_of_them() -> None:
            async with running(services, self.clock):
                await asyncio.Event().wait()

        return Service(name, self.lead(name, all_of_them))


def intake(replica: Replica) -> Sequence[Service]:
    """The services that apply deliveries, and that read from GitHub what no webhook reported."""
    store, github, clock = replica.store, replica.github, replica.clock
    installations = Installations(
        store=store,
        github=github,
        clock=clock,
        apps=list(replica.apps),
        new_account=replica.new_account,
    )
    writer = DeliveryWriter(store)
    reads = InstallationReads(store=store, installations=installations, clock=clock, writer=writer)
    applier = DeliveryApplier(store=store, reads=reads, writer=writer, wakeups=replica.wakeups)
    groups = RunnerGroups(store=store, github=github, apps=replica.apps, wakeups=replica.wakeups)
    redelivery = Redelivery(
        store=store, github=github, budget=replica.budget, clock=clock, apps=replica.apps
    )
    comparison = Comparison(
        store=store, github=github, budget=replica.budget, clock=clock, apps=replica.apps
    )
    single = replica.single(
        "intake",
        Service("installations", installations.run),
        Service("runner groups", groups.run),
        Service("runner versions", VersionSchedules(store=store, github=github, clock=clock).run),
        Service("refusals", RefusalReview(store=store, wakeups=replica.wakeups).run),
        Service("redelivery", redelivery.run),
        Service("comparison", comparison.run),
        Service("debts", DebtCollector(store=store, github=github, clock=clock).run),
        Service("housekeeping", Housekeeping(store=store, clock=clock).run),
        Service("step-times", StepTimes(store=store, clock=clock, wakeups=replica.wakeups).run),
    )
    return (
        Service("deliveries", applier.run),
        Service("installation reads", reads.run),
        single,
    )


def trust(replica: Replica) -> Service:
    """The service that looks up whether jobs run trusted code, for pools that require it."""
    review = TrustReview(
        store=replica.store,
        github=replica.github,
        clock=replica.clock,
        apps=replica.apps,
        wakeups=replica.wakeups,
    )
    return replica.single("trust", Service("trust", review.run))


@dataclass(frozen=True, slots=True)
class Dispatching:
    """The parts that answer the requests of Pods."""

    dispatcher: Dispatcher
    identities: Identities
    services: Sequence[Service]


def dispatching(replica: Replica, parts: FleetParts, sealer: Sealer) -> Dispatching:
    store, clock = replica.store, replica.clock
    minter = Minter(store=store, github=replica.github, sealer=sealer, clock=clock, ids=replica.ids)
    dispatcher = Dispatcher(
        store=store, minter=minter, sealer=sealer, clock=clock, wakeups=replica.wakeups
    )
    identities = Identities(parts.reviewer, clock)
    view = PodView(store=store, fleet=parts.fleet, clock=clock)
    recovery = Recovery(
        store=store,
        fleet=parts.fleet,
        github=replica.github,
        clock=clock,
        ids=replica.ids,
        wakeups=replica.wakeups,
        view=view,
        apps=replica.apps,
        terms=replica.recovery,
        ended=identities.forget,
        end_records=parts.end_records,
    )
    pools = Reconciler(
        store=store,
        fleet=parts.fleet,
        pods=view.snapshot,
        clock=clock,
        ids=replica.ids,
        wakeups=replica.wakeups,
    )
    mirror: tuple[Service, ...] = ()
    if parts.pools is not None:
        mirrored = PoolMirror(
            store=store,
            pools=parts.pools,
            trial=parts.trial,
            clock=clock,
            wakeups=replica.wakeups,
            server=parts.server,
        )
        mirror = (Service("pool objects", mirrored.run),)
    return Dispatching(
        dispatcher,
        identities,
        (
            Service("dispatch", dispatcher.run),
            replica.single(
                "pools",
                Service("fleet", view.run),
                Service("recovery", recovery.run),
                Service("pools", pools.run),
                *mirror,
            ),
        ),
    )
