"""Runner groups: a pool names its group, each organisation has a number for it.

A group decides which repositories a runner works for. So if an organisation lacks a pool's group, the
pool takes none of its jobs: the default group would open the pool to all its repositories.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog

from paddock.dispatch.installations import RegisteredApp
from paddock.domain.accounts import ServedAccount
from paddock.domain.github.errors import GitHubError
from paddock.domain.github.objects import InstallationId, InstallationKey, Scope
from paddock.domain.ids import PoolId
from paddock.ports import GitHub, Topic, Wakeups
from paddock.ports.accounts import RunnerGroupStore

_log = structlog.get_logger()

#: A group created at GitHub after a job needed it is found within this.
_LOOK_AGAIN: Final = 600.0
#: After a read that failed: the account's jobs for such pools are refused meanwhile. Only the accounts
#: that were not read are read again.
_AGAIN: Final = 30.0
#: The group of every user's repositories, and the default of every organisation.
_DEFAULT_GROUP: Final = 1


class RunnerGroups:
    def __init__(
        self,
        *,
        store: RunnerGroupStore,
        github: GitHub,
        apps: Sequence[RegisteredApp],
        wakeups: Wakeups,
    ) -> None:
        self._store = store
        self._github = github
        self._apps = apps
        self._woken = wakeups.subscribe(Topic.POOLS)
        self._read: set[tuple[int, frozenset[str]]] = set()

    async def run(self) -> None:
        while True:
            self._read.clear()
            left = _LOOK_AGAIN
            while left > 0:
                wait = left if await self.round() else min(_AGAIN, left)
                if not await self._woken.wait(wait):
                    left -= wait

    async def round(self) -> bool:
        """Look up the group numbers of every account; return whether all could be read. An account is
        read again only when the pools name other groups, or after a while."""
        wanted = await self._store.wanted_groups()
        if not wanted:
            return True
        names = frozenset(name for _, name in wanted)
        complete = True
        for app in self._apps:
            for account in await self._store.served_accounts(app.app):
                if (account.id, names) not in self._read:
                    complete &= await self._number(app, account, wanted)
        return complete

    async def _number(
        self, app: RegisteredApp, account: ServedAccount, wanted: Sequence[tuple[PoolId, str]]
    ) -> bool:
        try:
            ids = await self._ids(app, account)
        except GitHubError as error:
            _log.warning(
                "groups.unreadable",
                account=account.login,
                error=error.failure.sentence,
            )
            return False
        found = {
            pool: _DEFAULT_GROUP if ids is None else ids[name.lower()]
            for pool, name in wanted
            if ids is None or name.lower() in ids
        }
        await self._store.set_groups(account.id, found)
        self._read.add((account.id, frozenset(name for _, name in wanted)))
        return True

    async def _ids(self, app: RegisteredApp, account: ServedAccount) -> dict[str, int] | None:
        """Every group's number by name; `None` for a user, because a user's runners are in the group of
        their repository."""
        if account.kind == "user":
            return None
        who = InstallationKey(
            host=app.key.host,
            app=app.key.app,
            installation=InstallationId(account.installation),
        )
        groups = await self._github.list_runner_groups(
            who, Scope(host=app.key.host, owner=account.login)
        )
        return {group.name.lower(): group.id for group in groups}
