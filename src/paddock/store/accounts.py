"""Hosts, Apps, accounts, installations, repositories, and the limits an operator gives them.

Whatever changes what may be claimed takes the matcher's lock, so that no claim is decided under an
old limit and written under a new one.
"""

from __future__ import annotations

from paddock.domain.accounts import InstallationFacts, MintBudget
from paddock.domain.ids import AccountId, AppId, HostId, RepositoryId
from paddock.domain.limits import UNLIMITED, Limits
from paddock.store.base import Part
from paddock.store.database import Connection
from paddock.store.sql import queries

_SQL = queries("accounts")


class Accounts(Part):
    async def ensure_host(self, name: str, *, api_url: str) -> HostId:
        async with self._database.transaction() as connection:
            return HostId(await connection.fetchval(_SQL["host"], name, api_url))

    async def ensure_app(
        self, host: HostId, github_id: int, *, slug: str | None = None, mints: MintBudget
    ) -> AppId:
        now = self._clock.now()
        async with self._database.transaction() as connection:
            app = AppId(await connection.fetchval(_SQL["app"], host, github_id, slug))
            for bucket, size, seconds in (
                ("mint_minute", mints.per_minute, 60),
                ("mint_hour", mints.per_hour, 3600),
            ):
                await connection.execute(
                    _SQL["budget"], app, bucket, float(size), size / seconds, now
                )
        return app

    async def record_installation(
        self, facts: InstallationFacts, *, limits: Limits = UNLIMITED, weight: int = 1
    ) -> AccountId:
        """Limits and weight are those of a new account; a known one keeps its own."""
        now = self._clock.now()
        async with self._database.transaction() as connection:
            account = AccountId(
                await connection.fetchval(
                    _SQL["account"],
                    facts.host,
                    facts.account_id,
                    facts.login,
                    facts.kind,
                    now,
                    limits.runners,
                    limits.vcpu_milli,
                    limits.memory_mib,
                    weight,
                )
            )
            if facts.state != "removed":
                await connection.execute(
                    _SQL["replace_installation"], account, facts.app, facts.host, facts.id, now
                )
            await connection.execute(
                _SQL["installation"],
                facts.host,
                facts.id,
                facts.app,
                account,
                facts.state,
                facts.all_repositories,
                now,
            )
        return account

    async def record_repository(
        self,
        host: HostId,
        account: AccountId,
        *,
        github_id: int,
        full_name: str,
        accessible: bool = True,
    ) -> RepositoryId:
        async with self._database.transaction() as connection:
            return RepositoryId(
                await connection.fetchval(
                    _SQL["repository"], host, github_id, account, full_name, accessible
                )
            )

    async def set_account_limits(self, account: AccountId, limits: Limits) -> bool:
        async with self._matching() as connection:
            found = await connection.fetchval(
                _SQL["set_account_limits"],
                account,
                limits.runners,
                limits.vcpu_milli,
                limits.memory_mib,
            )
            if found is not None:
                await self._note(connection, account, "limits", str(limits))
        return found is not None

    async def set_repository_limits(self, repository: RepositoryId, limits: Limits) -> bool:
        """Jobs that wait move to the scope at which the limit is exact; runners keep the one they
        were claimed for."""
        async with self._matching() as connection:
            account = await connection.fetchval(
                _SQL["set_repository_limits"],
                repository,
                limits.runners,
                limits.vcpu_milli,
                limits.memory_mib,
            )
            if account is None:
                return False
            await connection.execute(_SQL["new_keys"], repository)
            await connection.execute(_SQL["rekey_jobs"], repository)
            await self._note(
                connection, account, "repository limits", f"repository {repository}: {limits}"
            )
        return True

    async def set_weight(self, account: AccountId, weight: int) -> bool:
        async with self._matching() as connection:
            found = await connection.fetchval(_SQL["set_weight"], account, weight)
            if found is not None:
                await self._note(connection, account, "weight", str(weight))
        return found is not None

    async def pause_account(self, account: AccountId, *, why: str) -> bool:
        async with self._matching() as connection:
            found = await connection.fetchval(_SQL["pause"], account, self._clock.now(), self.actor)
            if found is not None:
                await self._note(connection, account, "paused", why)
        return found is not None

    async def resume_account(self, account: AccountId, *, why: str) -> bool:
        async with self._matching() as connection:
            found = await connection.fetchval(_SQL["resume"], account)
            if found is not None:
                await self._note(connection, account, "resumed", why)
        return found is not None

    async def _note(self, connection: Connection, account: AccountId, what: str, why: str) -> None:
        await connection.execute(_SQL["note"], self._clock.now(), self.actor, account, what, why)
