"""`paddock doctor`"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Final

import typer

from paddock.agent.client import Url
from paddock.checkup.database import examine_clock, examine_database, examine_schema
from paddock.checkup.finding import CheckResult, Finding, failure, ok, skipped, warning
from paddock.cli.layout import Line
from paddock.cli.options import AsJson, Config, DataDir
from paddock.cli.output import room, show, show_json
from paddock.cli.run_command import run
from paddock.cli.store import existing_database
from paddock.domain.reading.overview import LimitBypassLine, PoolVersionLine, UnfitHost
from paddock.fleet.local.settings import NO_CGROUP
from paddock.fleet.local.shares import NoCgroup, cgroup_for_runners, give_back
from paddock.ports.errors import StoreError
from paddock.ports.reading import Reading
from paddock.serve import certificate_files, configured_apps
from paddock.settings import FleetKind, Settings, SettingsError, load
from paddock.store.clock import DatabaseClock, asking
from paddock.store.reading import PgReading
from paddock.store.store import PgStore
from paddock.system import SystemClock, SystemIds
from paddock.web.tls import CertificateRejected, load_certificate

_MARKS: Final = {
    CheckResult.OK: ("ok      ", "green"),
    CheckResult.WARNING: ("warning ", "yellow"),
    CheckResult.FAILED: ("failed  ", "bold red"),
    CheckResult.SKIPPED: ("–       ", "dim"),
}


def doctor(as_json: AsJson = False, config: Config = None, data_dir: DataDir = None) -> None:
    """Check everything that paddock depends on.

    That is the settings, the database and its pooling mode, the GitHub App's permissions and webhook,
    access to runner groups, the cluster and its RunnerPool, the clock. Each failure comes with its
    remedy. Nothing is changed. Exit code 1: a check failed.

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
    if any(finding.health is CheckResult.FAILED for finding in found):
        raise typer.Exit(1)


async def _examine(settings: Settings) -> AsyncIterator[Finding]:
    yield ok("settings", "they can be read, and hold no mistake")
    groups: list[tuple[str, str]] = []
    clock: DatabaseClock | None = None
    async with AsyncExitStack() as stack:
        try:
            database = await stack.enter_async_context(
                existing_database(settings, name="paddock doctor")
            )
            async for finding in examine_database(database):
                yield finding
            clock = await DatabaseClock.measured(asking(database), SystemClock())
            yield examine_clock(clock)
            schema = await examine_schema(database)
            yield schema
            if schema.health is CheckResult.OK:
                store = PgStore(database, clock=clock, ids=SystemIds(), actor="doctor")
                pools = await store.list_pools()
                groups = [(each.name, each.runner_group) for each in pools if each.runner_group]
                reading = PgReading(database, clock)
                async for finding in _examine_rows(store, reading, len(pools), clock.now()):
                    yield finding
        except StoreError as error:
            yield failure("database", error.message, "see docs/database.md")
    async for finding in _github(settings, groups, clock):
        yield finding
    async for finding in _fleet(settings):
        yield finding


async def _examine_rows(
    store: PgStore, reading: Reading, pools: int, now: datetime
) -> AsyncIterator[Finding]:
    yield _pools(pools)
    levels = await reading.levels()
    for host in levels.unfit_hosts:
        yield _unfit(host)
    for version in levels.runner_versions:
        yield _version(version, now)
    for bypass in levels.limit_bypasses:
        yield _bypassed(bypass)
    for account, pool in await store.pools_beside_limits():
        yield _inexact(account, pool)


def _pools(count: int) -> Finding:
    if count:
        return ok("pools", f"{count} described")
    return warning(
        "pools",
        "there is none, so no job is taken",
        "describe one: a RunnerPool object, or a file for `paddock pools apply`",
    )


def _unfit(host: UnfitHost) -> Finding:
    return failure(
        f"host {host.host}",
        f"it has been unfit for runners since {host.since:%Y-%m-%d %H:%M} UTC: {host.why}",
        "look at the condition of its Node; docs/macos.md says what each means",
    )


def _version(version: PoolVersionLine, now: datetime) -> Finding:
    about, said = f"pool {version.pool}", version.sentence(now)
    remedy = "renew actions/runner in the image of the pool (docs/github.md#runner-versions)"
    if version.is_refused(now):
        return failure(about, said, remedy)
    if version.ends_soon(now):
        return warning(about, said, remedy)
    return ok(about, said)


def _bypassed(bypass: LimitBypassLine) -> Finding:
    jobs = "1 job" if bypass.jobs == 1 else f"{bypass.jobs} jobs"
    where = (
        "runners that are not paddock's"
        if bypass.runner == "foreign"
        else "runners that are registered at its organisation"
    )
    return warning(
        f"limits of {bypass.repository}",
        f"{jobs} of {bypass.repository} on {where}: its limits do not hold there.",
        "see docs/alerts.md#paddocklimitbypassed",
    )


def _inexact(account: str, pool: str) -> Finding:
    return warning(
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
        yield skipped("GitHub", "no App is configured; `paddock up` brings a GitHub of its own")
        return
    try:
        apps = configured_apps(settings)
    except SettingsError as error:
        yield failure("GitHub", str(error), "correct [[github.apps]]")
        return
    from paddock.checkup.github import examine_apps

    whose = "this machine's" if clock is None else "the database's"
    async for finding in examine_apps(apps, clock or SystemClock(), groups=groups, whose=whose):
        yield finding


async def _fleet(settings: Settings) -> AsyncIterator[Finding]:
    match settings.fleet:
        case FleetKind.KUBE:
            if not settings.sealing:
                yield failure(
                    "sealing key",
                    "there is none, and JITs are not stored in the clear",
                    "set PADDOCK_SEALING_KEYS to the output of `head -c 32 /dev/urandom | base64`",
                )
            yield examine_certificate(settings, SystemClock().now())
            # Seven megabytes, imported only if needed.
            from paddock.checkup.cluster import examine_cluster

            async for finding in examine_cluster(settings.kube, SystemClock()):
                yield finding
        case FleetKind.LOCAL | None:
            yield skipped("cluster", "PADDOCK_FLEET is not kube")
            yield _this_machine(settings)


def examine_certificate(settings: Settings, now: datetime) -> Finding:
    """Whether Pods will accept the server's certificate, by its names and its dates."""
    about, urls = "TLS for Pods", [settings.kube.server_url, settings.kube.vitals_url]
    try:
        files = certificate_files(settings)
        if files is None:
            return _without_certificate(about, settings.kube.server_url)
        found = load_certificate(files)
    except (SettingsError, CertificateRejected) as error:
        return failure(about, str(error).rstrip("."), "put a certificate and its key there, in PEM")
    for url in filter(None, urls):
        host = Url.parse(url)
        if not host.secure:
            return failure(
                about,
                f"Pods are told {url}, and those addresses are served over TLS",
                "write https:// in PADDOCK_KUBE_SERVER_URL and PADDOCK_KUBE_VITALS_URL",
            )
        if not found.is_for(host.host):
            return failure(
                about,
                f"the certificate is not for {host.host}, by which Pods know the server, but for "
                f"{', '.join(sorted(found.names)) or 'no name'}",
                "have it issued for that name",
            )
    when = f"{found.not_after:%Y-%m-%d %H:%M} UTC"
    if not found.not_before <= now < found.not_after:
        valid = f"the certificate is valid from {found.not_before:%Y-%m-%d %H:%M} to {when}"
        return failure(about, valid, "renew it: no Pod accepts it now")
    if found.expires_soon(now):
        return warning(
            about,
            f"the certificate expires at {when}, in {(found.not_after - now).days} days",
            "find out why it was not renewed, or renew it (docs/install.md#tls-for-dispatch)",
        )
    return ok(about, f"the certificate is for {', '.join(sorted(found.names))}, until {when}")


def _without_certificate(about: str, server_url: str | None) -> Finding:
    if server_url and Url.parse(server_url).secure:
        return ok(about, f"Pods ask at {server_url}; this server does not end TLS itself")
    return skipped(
        about,
        "none: tokens and JITs cross the network between Pods and server in clear text "
        "(docs/security.md#dispatch-over-the-network)",
    )


def _this_machine(settings: Settings) -> Finding:
    if settings.local.cgroup is not None:
        limits = "none" if settings.local.cgroup == NO_CGROUP else f"by {settings.local.cgroup}"
        return ok("this machine", f"limits of local runners: {limits}")
    try:
        give_back(cgroup_for_runners("doctor"))
    except NoCgroup as reason:
        return warning(
            "this machine",
            f"local runners would have no limits: {reason}",
            "name a cgroup that is paddock's to divide in [local], or live with it (docs/local.md)",
        )
    return ok("this machine", "local runners get their pool's memory as limit")


def _show(finding: Finding) -> None:
    mark, style = _MARKS[finding.health]
    said: Line = ((mark, style), (f"{finding.about}: ", "bold"), finding.what)
    remedy = f"→ {finding.remedy}" if finding.remedy else ""
    if room() is None:
        show(*said, *([f"  {remedy}"] if remedy else []))  # one line per finding, for grep
        return
    show(*said, hanging=len(mark))
    if remedy:
        show(f"{'':{len(mark) + 2}}{remedy}", hanging=len(mark) + 4)
