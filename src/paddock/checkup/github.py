"""GitHub: whether the App is who it says, what it may do, whether webhooks arrive, and the clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Final

import msgspec

from paddock.checkup.finding import Finding, failure, ok, warning
from paddock.domain.github.errors import GitHubError
from paddock.domain.github.objects import InstallationKey, InstallationRecord, Scope
from paddock.github.apps import Apps, GitHubApp
from paddock.github.budget import MemoryBudget
from paddock.github.caller import Caller, app_request
from paddock.github.client import GitHubClient
from paddock.ports import Clock

#: No threshold by which recovery judges is shorter.
_CLOCK_OFF: Final = 30.0
#: What is asked of GitHub, and the permission that it takes.
NEEDED: Final = {
    "organization_self_hosted_runners": ("write", "registering runners at organisations"),
    "administration": ("write", "registering runners at single repositories, and for users"),
    "actions": ("read", "asking what became of a job"),
    "metadata": ("read", "reading repositories"),
}
EVENT: Final = "workflow_job"


class _App(msgspec.Struct, frozen=True):
    slug: str = ""
    permissions: dict[str, str] = {}
    events: list[str] = []


async def examine_apps(
    apps: Apps,
    clock: Clock,
    *,
    groups: Sequence[tuple[str, str]],
    whose: str = "this machine's",
) -> AsyncIterator[Finding]:
    """`groups`: pools and the runner groups they name. `whose`: the machine whose clock is compared."""
    budget = MemoryBudget(clock, apps.limits)
    caller = Caller(apps, clock=clock, budget=budget)
    client = GitHubClient(apps, clock=clock, budget=budget)
    try:
        for app in apps:
            async for finding in _examine(app, caller, client, (clock, whose), groups):
                yield finding
    finally:
        await caller.aclose()
        await client.aclose()


async def _examine(
    app: GitHubApp,
    caller: Caller,
    client: GitHubClient,
    clock: tuple[Clock, str],
    groups: Sequence[tuple[str, str]],
) -> AsyncIterator[Finding]:
    about = f"App {app.key}"
    request = app_request(app.key)
    try:
        received = await caller.ask(app.key, request)
        described = caller.decode(request, received.answer, _App)
        installations = await client.list_installations(app.key)
    except GitHubError as error:
        yield failure(
            about,
            str(error),
            "check app_id, the private key and api_url",
        )
        return
    yield ok(about, f"GitHub knows it as {described.slug or 'an App without a name'}")
    yield _clock(received.answer.headers, clock[0].now(), whose=clock[1])
    for finding in _rights(about, described.permissions, described.events):
        yield finding
    async for finding in _hooks(about, app, client):
        yield finding
    if not installations:
        yield warning(about, "it is installed nowhere", "install it for an organisation")
    for installation in installations:
        async for finding in _installation(app, installation, client, groups):
            yield finding


def _clock(headers: Mapping[str, str], now: datetime, *, whose: str) -> Finding:
    """Compare the clock with GitHub's, to the second."""
    try:
        theirs = parsedate_to_datetime(headers.get("date", ""))
    except ValueError:
        return warning("clock", "GitHub's answer has no date to compare with", "ask again")
    off = (now - theirs).total_seconds()
    if abs(off) > _CLOCK_OFF:
        return warning(
            "clock",
            f"{whose} clock is {abs(off):.0f} s {'ahead of' if off > 0 else 'behind'} GitHub's",
            "synchronise it (NTP): the ages of jobs are judged by it, and GitHub dates their beginning",
        )
    return ok("clock", f"{whose} is within {max(1.0, abs(off)):.0f} s of GitHub's")


def _rights(about: str, permissions: Mapping[str, str], events: Sequence[str]) -> list[Finding]:
    found = []
    for name, (needed, what_for) in NEEDED.items():
        if name not in permissions and name != "metadata":
            found.append(
                failure(
                    about,
                    f"it lacks the permission {name}: {needed}, for {what_for}",
                    "grant it in the App's settings; owners of installations have to accept it",
                )
            )
        elif needed == "write" and permissions.get(name) == "read":
            found.append(
                failure(
                    about,
                    f"its permission {name} is read, and {what_for} takes write",
                    "raise it in the App's settings; owners of installations have to accept it",
                )
            )
    if EVENT not in events:
        found.append(
            failure(
                about,
                f"it is not subscribed to the event {EVENT}",
                "subscribe to it in the App's settings: no job is heard of otherwise",
            )
        )
    return found or [ok(about, "it has the permissions and the event it needs")]


async def _hooks(about: str, app: GitHubApp, client: GitHubClient) -> AsyncIterator[Finding]:
    try:
        page = await client.list_deliveries(app.key)
    except GitHubError as error:
        yield failure(about, str(error), "look at the App's webhook in its settings")
        return
    lately = page.deliveries[:20]
    failed = [each for each in lately if not each.succeeded]
    if not lately:
        yield warning(
            about,
            "GitHub has sent no webhook lately",
            "check that the App's webhook is active and its URL is https://HOST/webhooks/github",
        )
    elif len(failed) * 2 > len(lately):
        last = failed[0]
        yield failure(
            about,
            f"{len(failed)} of the last {len(lately)} webhooks failed, last with "
            f"{last.status_code} {last.status}",
            "check the webhook's URL and secret, and whether GitHub can reach it (401: the secret)",
        )
    else:
        yield ok(about, f"{len(lately) - len(failed)} of the last {len(lately)} webhooks arrived")


async def _installation(
    app: GitHubApp,
    installation: InstallationRecord,
    client: GitHubClient,
    groups: Sequence[tuple[str, str]],
) -> AsyncIterator[Finding]:
    login = installation.account_login
    about = f"installation {login}"
    if installation.suspended_at is not None:
        yield failure(about, "it is suspended", f"an owner of {login} unsuspends it")
        return
    if installation.account_type != "Organization":
        yield ok(about, "a user's: runners register at single repositories")
        return
    who = InstallationKey(host=app.host, app=app.app_id, installation=installation.id)
    scope = Scope(host=app.host, owner=login)
    try:
        there = {group.name for group in await client.list_runner_groups(who, scope)}
        await client.control_read(who, scope)
    except GitHubError as error:
        yield failure(
            about,
            str(error),
            f"an owner of {login} accepts the App's permissions, and allows self-hosted runners",
        )
        return
    missing = [f"{group!r} of pool {pool}" for pool, group in groups if group not in there]
    if missing:
        yield warning(
            about,
            f"it has no runner group {', '.join(missing)}: those pools take none of its jobs",
            f"make the group in {login} and let its repositories use it, or take it from the pool",
        )
    else:
        yield ok(about, f"runners can be registered; runner groups: {', '.join(sorted(there))}")
