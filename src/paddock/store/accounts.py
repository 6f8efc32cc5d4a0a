"""Hosts, Apps, accounts, installations, repositories, and the limits an operator gives them.

A method that changes what may be claimed takes the matcher's lock, so that the matcher never decides
a claim under an old limit and writes it under a new one.
"""

from __future__ import annotations

from collections.abc import Sequence

from paddock.domain.accounts import (
    CONFIRMED_APART,
    AccountSummary,
    InstallationFacts,
    MintBudget,
    ServedAccount,
)
from paddock.domain.ids import AccountId, AppId, HostId, RepositoryId
from paddock.domain.jobs.facts import RepositoryFacts
from paddock.domain.limits import UNLIMITED, Limits
from paddock.store.base import StorePart
from paddock.store.database import Connection
from paddock.store.row_parts import limits_of, used_of
from paddock.store.sql import converted, named

_SQL = named("accounts")


class Accounts(StorePart):
    async def ensure_host(self, name: str, *, api_url: str) -> HostId:
        async with self._database.transaction() as connection:
            return HostId(await connection.fetchval(*_SQL["host"](name=name, api_url=api_url)))

    async def ensure_app(
        self, host: HostId, github_id: int, *, slug: str | None = None, mints: MintBudget
    ) -> AppId:
        hour = mints.hourly(self._clock.now())
        async with self._database.transaction() as connection:
            app = await connection.fetchval(
                *_SQL["app"](
                    host=host,
                    github_id=github_id,
                    slug=slug,
                    per_minute=mints.per_minute,
                    burst=hour and hour.capacity,
                    refill_per_s=hour and hour.refill_per_s,
                ),
            )
            await connection.execute(*_SQL["mint_budgets"](app=app))
            await connection.execute(*_SQL["no_mint_budgets"](app=app))
        return AppId(app)

    async def record_installation(
        self, facts: InstallationFacts, *, limits: Limits = UNLIMITED, weight: int = 1
    ) -> AccountId:
        known = await self._unchanged(facts)
        if known is not None:
            return known
        now = self._clock.now()
        async with self._matching() as connection:
            account = AccountId(
                await connection.fetchval(
                    *_SQL["account"](
                        host=facts.host,
                        github_id=facts.account_id,
                        login=facts.login,
                        kind=facts.kind,
                        now=now,
                        max_runners=limits.runners,
                        max_vcpu_milli=limits.vcpu_milli,
                        max_memory_mib=limits.memory_mib,
                        weight=weight,
                    ),
                )
            )
            if facts.state != "removed":
                await connection.execute(
                    *_SQL["replace_installation"](
                        account=account,
                        app=facts.app,
                        host=facts.host,
                        installation=facts.id,
                        now=now,
                    )
                )
            if facts.state == "active":
                await connection.execute(
                    *_SQL["forgive"](host=facts.host, installation=facts.id, account=account)
                )
            await connection.execute(
                *_SQL["installation"](
                    host=facts.host,
                    installation=facts.id,
                    app=facts.app,
                    account=account,
                    state=facts.state,
                    all_repositories=facts.all_repositories,
                    now=now,
                ),
            )
            if facts.state != "removed":
                await connection.execute(
                    *_SQL["back_again"](host=facts.host, installation=facts.id)
                )
        return account

    async def _unchanged(self, facts: InstallationFacts) -> AccountId | None:
        """Read without the matcher's lock: re-reading a thousand accounts must not delay a match."""
        async with self._database.transaction() as connection:
            found = await connection.fetchval(
                *_SQL["unchanged"](
                    host=facts.host,
                    installation=facts.id,
                    app=facts.app,
                    state=facts.state,
                    all_repositories=facts.all_repositories,
                    github_id=facts.account_id,
                    login=facts.login,
                    kind=facts.kind,
                ),
            )
        return None if found is None else AccountId(found)

    async def remove_installation(self, host: HostId, installation: int) -> None:
        async with self._matching() as connection:
            now = self._clock.now()
            await connection.execute(
                *_SQL["remove_installation"](host=host, installation=installation, now=now)
            )
            await connection.execute(
                *_SQL["confirm_removal"](
                    host=host, installation=installation, now=now, last_before=now - CONFIRMED_APART
                )
            )

    async def removed_installations(self, app: AppId) -> list[int]:
        rows = await self._database.rows(*_SQL["removed_installations"](app=app))
        return [row["github_id"] for row in rows]

    async def active_installations(self, app: AppId) -> list[int]:
        rows = await self._database.rows(*_SQL["active_installations"](app=app))
        return [row["github_id"] for row in rows]

    async def record_repositories(
        self, host: HostId, account: AccountId, repositories: Sequence[RepositoryFacts]
    ) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(
                *_SQL["repositories"](
                    host=host,
                    account=account,
                    github_ids=[repository.github_id for repository in repositories],
                    full_names=[repository.full_name for repository in repositories],
                ),
            )

    async def list_accounts(self) -> list[AccountSummary]:
        rows = await self._database.rows(*_SQL["list"]())
        return [
            converted(AccountSummary, row, limits=limits_of(row), used=used_of(row)) for row in rows
        ]

    async def find_repository(
        self, account: AccountId, full_name: str
    ) -> tuple[RepositoryId, Limits] | None:
        row = await self._database.row(
            *_SQL["repository_named"](account=account, full_name=full_name)
        )
        return None if row is None else (RepositoryId(row["id"]), limits_of(row))

    async def served_accounts(self, app: AppId) -> list[ServedAccount]:
        rows = await self._database.rows(*_SQL["organisations"](app=app))
        return [converted(ServedAccount, row) for row in rows]

    async def set_account_limits(self, account: AccountId, limits: Limits) -> bool:
        async with self._matching() as connection:
            found = await connection.fetchval(
                *_SQL["set_account_limits"](
                    account=account,
                    runners=limits.runners,
                    vcpu_milli=limits.vcpu_milli,
                    memory_mib=limits.memory_mib,
                ),
            )
            if found is not None:
                await self._note(connection, account, "limits", str(limits))
        return found is not None

    async def set_repository_limits(self, repository: RepositoryId, limits: Limits) -> bool:
        async with self._matching() as connection:
            account = await connection.fetchval(
                *_SQL["set_repository_limits"](
                    repository=repository,
                    runners=limits.runners,
                    vcpu_milli=limits.vcpu_milli,
                    memory_mib=limits.memory_mib,
                ),
            )
            if account is None:
                return False
            await connection.execute(*_SQL["move_misplaced"](accounts=[account]))
            await self._note(
                connection, account, "repository limits", f"repository {repository}: {limits}"
            )
        return True

    async def pools_beside_limits(self, account: AccountId | None = None) -> list[tuple[str, str]]:
        """(login, pool) pairs: accounts that have repository limits (`account`, or all accounts), and
        pools whose runner group keeps their runners at the organisation."""
        rows = await self._database.rows(*_SQL["pools_beside_limits"](account=account))
        return [(row["login"], row["pool"]) for row in rows]

    async def set_weight(self, account: AccountId, weight: int) -> bool:
        async with self._matching() as connection:
            found = await connection.fetchval(*_SQL["set_weight"](account=account, weight=weight))
            if found is not None:
                await self._note(connection, account, "weight", str(weight))
        return found is not None

    async def pause_account(self, account: AccountId, *, why: str) -> bool:
        async with self._matching() as connection:
            found = await connection.fetchval(
                *_SQL["pause"](account=account, now=self._clock.now(), actor=self.actor, why=why)
            )
            if found is not None:
                await self._note(connection, account, "paused", why)
        return found is not None

    async def resume_account(self, account: AccountId, *, why: str) -> bool:
        async with self._matching() as connection:
            found = await connection.fetchval(*_SQL["resume"](account=account))
            if found is not None:
                await self._note(connection, account, "resumed", why)
        return found is not None

    async def _note(self, connection: Connection, account: AccountId, what: str, why: str) -> None:
        await connection.execute(
            *_SQL["note"](
                now=self._clock.now(), actor=self.actor, account=account, what=what, why=why
            )
        )
