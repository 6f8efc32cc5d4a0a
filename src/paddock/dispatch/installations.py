"""Accounts are read from the Apps' installations at GitHub.

Events about installations can be replayed and reordered, so their content is not used: an event only
makes paddock read the installation at GitHub and write what GitHub answers. All installations are read
at the start, and again every hour, to find renames and changes whose events were lost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import structlog

from paddock.domain.accounts import InstallationFacts, MintBudget
from paddock.domain.github.errors import GitHubError
from paddock.domain.github.objects import (
    Absent,
    AccountType,
    AppKey,
    InstallationId,
    InstallationKey,
    InstallationRecord,
)
from paddock.domain.ids import AccountId, AppId, HostId
from paddock.domain.jobs.facts import RepositoryFacts
from paddock.domain.limits import UNLIMITED, Limits
from paddock.ports import Clock, GitHub
from paddock.ports.accounts import InstallationStore

_log = structlog.get_logger()

#: A rename, a removal or the end of a suspension whose event was lost is found within this. An
#: account's jobs wait until the end of its suspension is found. One request reads a hundred
#: installations.
_EVERY: Final = 900.0
#: After a failed round: GitHub or the database was away.
_AGAIN: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredApp:
    """An App with the ids it has in our own tables."""

    key: AppKey
    host: HostId
    app: AppId


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAccount:
    """The defaults of an account that is first seen; afterwards only operators change them."""

    limits: Limits = field(default=UNLIMITED)
    weight: int = 1


async def register_apps(
    store: InstallationStore, apps: Mapping[AppKey, tuple[str, MintBudget]]
) -> list[RegisteredApp]:
    """Ensure a row for every App. `apps` maps each to its host's API address and its mint budget."""
    registered = []
    for key, (api_url, mints) in apps.items():
        host = await store.ensure_host(key.host, api_url=api_url)
        app = await store.ensure_app(host, key.app, mints=mints)
        registered.append(RegisteredApp(key=key, host=host, app=app))
    await store.serve_through([each.app for each in registered])
    return registered


class Installations:
    def __init__(
        self,
        *,
        store: InstallationStore,
        github: GitHub,
        clock: Clock,
        apps: list[RegisteredApp],
        new_account: NewAccount,
    ) -> None:
        self._store = store
        self._github = github
        self._clock = clock
        self._apps = {app.app: app for app in apps}
        self._new_account = new_account

    async def run(self) -> None:
        while True:
            complete = await self.read_all()
            await self._clock.sleep(_EVERY if complete else _AGAIN)

    async def read_all(self) -> bool:
        """Read every installation of every App; return whether all could be read. A failure of one App
        or account does not affect the others."""
        complete = True
        for app in self._apps.values():
            try:
                complete &= await self._read_app(app)
            except GitHubError as error:
                complete = False
                _log.warning(
                    "installations.unreadable",
                    app=str(app.key),
                    error=error.failure.sentence,
                )
        return complete

    async def read(
        self,
        app: AppId,
        installation: int,
        *,
        listed: Sequence[InstallationRecord] | None = None,
    ) -> bool:
        """Read one installation and write it. False if GitHub does not know it (any more), or if its
        account cannot have runners; raises `GitHubError` if the read failed. `listed`: the App's
        installations, if they were just read."""
        registered = self._apps[app]
        found = await self._github.get_installation(registered.key, InstallationId(installation))
        if isinstance(found, Absent):
            # A 404 counts only if the App's own list agrees: a single wrong 404 would leave the
            # account's jobs waiting until all installations are read again (I29).
            if listed is None:
                listed = await self._github.list_installations(registered.key)
            found = next((record for record in listed if record.id == installation), found)
        if isinstance(found, Absent):
            await self._store.remove_installation(registered.host, installation)
            return False
        return await self._write(registered, found)

    async def _read_app(self, app: RegisteredApp) -> bool:
        found = await self._github.list_installations(app.key)
        complete = True
        for record in found:
            complete &= await self._try(record.id, self._write(app, record))
        listed = {record.id for record in found}
        # A removed installation with live runners is read in every round: recovery ends its runners
        # only after several confirmations (I29).
        removed = await self._store.removed_installations(app.app)
        for known in [*await self._store.active_installations(app.app), *removed]:
            # Missing from the list proves nothing by itself (I29); a read by id does.
            if known not in listed:
                complete &= await self._try(known, self.read(app.app, known, listed=found))
        return complete

    async def _try(self, installation: int, reading: Awaitable[bool]) -> bool:
        """A failure of one installation must not stop the others (I17)."""
        try:
            await reading
        except GitHubError as error:
            _log.warning(
                "installation.unreadable",
                installation=installation,
                error=error.failure.sentence,
            )
            return False
        return True

    async def _write(self, app: RegisteredApp, record: InstallationRecord) -> bool:
        kind = _kind(record)
        if kind is None:
            _log.info("installation.enterprise_ignored", installation=record.id)
            return False
        account = await self._store.record_installation(
            InstallationFacts(
                host=app.host,
                app=app.app,
                id=record.id,
                account_id=record.account_id,
                login=record.account_login,
                kind=kind,
                state="active" if record.suspended_at is None else "suspended",
                all_repositories=record.all_repositories,
            ),
            limits=self._new_account.limits,
            weight=self._new_account.weight,
        )
        if record.suspended_at is None and not record.all_repositories:
            await self._read_repositories(app, record, account)
        return True

    async def _read_repositories(
        self, app: RegisteredApp, record: InstallationRecord, account: AccountId
    ) -> None:
        """Write the chosen repositories. Those taken away are marked, so that `why` can say so."""
        who = InstallationKey(
            host=app.key.host, app=app.key.app, installation=InstallationId(record.id)
        )
        repositories = await self._github.list_repositories(who)
        await self._store.record_repositories(
            app.host,
            account,
            [RepositoryFacts(github_id=each.id, full_name=each.full_name) for each in repositories],
        )


def _kind(record: InstallationRecord) -> Literal["organization", "user"] | None:
    match record.account_type:
        case AccountType.ORGANISATION:
            return "organization"
        case AccountType.USER:
            return "user"
        case _:
            return None
