"""`paddock doctor`"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Final

import typer
from rich.text import Text

from paddock.checkup.database import examine_clock, examine_database
from paddock.checkup.finding import Finding, Health, absent, ill, poor, well
from paddock.cli.options import Config, DataDir, Json
from paddock.cli.output import console, show, show_json
from paddock.cli.running import run
from paddock.cli.store import open_database
from paddock.domain.levels import HostFault, LimitBypass
from paddock.fleet.local.settings import NO_CGROUP
from paddock.fleet.local.shares import NoCgroup, cgroup_for_runners, give_back
from paddock.serve import configured_apps
from paddock.settings import FleetKind, Settings, SettingsError, load
from paddock.store.clock import DatabaseClock, asking
from paddock.store.errors import StoreError
from paddock.store.store import PgStore
from paddock.system import SystemClock, SystemIds

_MARKS: Final = {
    Health.WELL: ("ok      ", "green"),
    Health.POOR: ("warning ", "yellow"),
    Health.ILL: ("failed  ", "bold red"),
    Health.ABSENT: ("–       ", "dim"),
}


def doctor(as_json: Json = False, config: Config = None, data_dir: DataDir = None) -> None:
    """Look whether all that paddock stands on is as it needs it.

    The settings, the database and its pooling mode, the GitHub App's permissions and webhook,
    access to runner groups, the cluster and its RunnerPool, the clock. Each failure comes with its
    remedy. Nothing is changed. Exit code 1: something failed.

    Examples:

        paddock doctor --config /etc/paddock/paddock.toml

        paddock doctor --json | jq '.[] | select(.health == "failed")'
    """
    settings = load(config, data_dir=data_dir)
    found: list[Finding] = []

    async def examine() -> None:
        async for finding in _examine(settings):
            found.append(finding)
            if not as_json:
                _show(finding)

    run(examine(), settings)
    if as_json:
        show_json(found)
    if any(finding.health is Health.ILL for finding in found):
        raise typer.Exit(1)


async def _examine(settings: Settings) -> AsyncIterator[Finding]:
    yield well("settings", "they can be read, and hold no mistake")
    groups: list[tuple[str, str]] = []
    clock: DatabaseClock | None = None
    async with AsyncExitStack() as stack:
        try:
            database = await stack.enter_async_context(
                open_database(settings, name="paddock doctor")
            )
            async for finding in examine_database(database):
                yield finding
            clock = await DatabaseClock.measured(asking(database), SystemClock())
            yield examine_clock(clock)
            store = PgStore(database, clock=clock, ids=SystemIds(), actor="doctor")
            pools = await store.list_pools()
            groups = [(each.name, each.runner_group) for each in pools if each.runner_group]
            yield _pools(len(pools))
            for fault in await store.host_faults():
                yield _unfit(fault)
            for bypass in await store.limit_bypasses():
                yield _bypassed(bypass)
            for account, pool in await store.pools_beside_limits():
                yield _inexact(account, pool)
        except StoreError as error:
            yield ill("database", error.message, "see docs/database.md")
    async for finding in _github(settings, groups, clock):
        yield finding
    async for finding in _fleet(settings):
        yield finding


def _pools(count: int) -> Finding:
    if count:
        return well("pools", f"{count} described")
    return poor(
        "pools",
        "there is none, so no job is taken",
        "describe one: a RunnerPool object, or a file for `paddock pools apply`",
    )


def _unfit(fault: HostFault) -> Finding:
    return ill(
        f"host {fault.host}",
        f"it has been unfit for runners since {fault.since:%Y-%m-%d %H:%M} UTC: {fault.why}",
        "look at the condition of its Node; docs/macos.md says what each means",
    )


def _bypassed(bypass: LimitBypass) -> Finding:
    return poor(
        f"limits of {bypass.repository}", bypass.sentence, "see docs/alerts.md#paddocklimitbypassed"
    )


def _inexact(account: str, pool: str) -> Finding:
    return poor(
        f"limits in {account}",
        f"pool {pool} names a runner group, so its runners register at the organisation, and limits "
        "of single repositories are not exact",
        "take the group from the pool, or the repositories with limits from the group "
        "(docs/matching.md#limits-of-repositories)",
    )


async def _github(
    settings: Settings, groups: list[tuple[str, str]], clock: DatabaseClock | None
) -> AsyncIterator[Finding]:
    if not settings.github.all_apps:
        yield absent("GitHub", "no App is configured; `paddock up` brings a GitHub of its own")
        return
    try:
        apps = configured_apps(settings)
    except SettingsError as error:
        yield ill("GitHub", str(error), "correct [[github.apps]]")
        return
    from paddock.checkup.github import examine_apps

    whose = "this machine's" if clock is None else "the database's"
    async for finding in examine_apps(apps, clock or SystemClock(), groups=groups, whose=whose):
        yield finding


async def _fleet(settings: Settings) -> AsyncIterator[Finding]:
    match settings.fleet:
        case FleetKind.KUBE:
            if not settings.sealing:
                yield ill(
                    "sealing key",
                    "there is none, and JITs are not stored in the clear",
                    "set PADDOCK_SEALING_KEYS to the output of `head -c 32 /dev/urandom | base64`",
                )
            # Seven megabytes, only where they are needed.
            from paddock.checkup.cluster import examine_cluster

            async for finding in examine_cluster(settings.kube, SystemClock()):
                yield finding
        case FleetKind.LOCAL | None:
            yield absent("cluster", "PADDOCK_FLEET is not kube")
            yield _this_machine(settings)


def _this_machine(settings: Settings) -> Finding:
    if settings.local.cgroup is not None:
        limits = "none" if settings.local.cgroup == NO_CGROUP else f"by {settings.local.cgroup}"
        return well("this machine", f"limits of local runners: {limits}")
    try:
        give_back(cgroup_for_runners("doctor"))
    except NoCgroup as reason:
        return poor(
            "this machine",
            f"local runners would have no limits: {reason}",
            "name a cgroup that is paddock's to divide in [local], or live with it (docs/local.md)",
        )
    return well("this machine", "local runners get their pool's memory as limit")


def _show(finding: Finding) -> None:
    mark, style = _MARKS[finding.health]
    console.print(Text.assemble((mark, style), (f"{finding.about}: ", "bold"), finding.what))
    if finding.remedy:
        show(f"          → {finding.remedy}")
