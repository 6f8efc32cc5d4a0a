"""Accounts: what GitHub's installations tell of them, and what operators set for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from paddock.domain.accounts import AccountSummary, InstallationFacts, MintBudget, ServedAccount
from paddock.domain.ids import AccountId, AppId, HostId, PoolId, RepositoryId
from paddock.domain.jobs.facts import RepositoryFacts
from paddock.domain.limits import UNLIMITED, Limits


class ActiveInstallationStore(Protocol):
    async def active_installations(self, app: AppId) -> list[int]: ...


class InstallationStore(ActiveInstallationStore, Protocol):
    """The accounts and repositories that each App may serve."""

    async def ensure_host(self, name: str, *, api_url: str) -> HostId: ...

    async def ensure_app(
        self, host: HostId, github_id: int, *, slug: str | None = None, mints: MintBudget
    ) -> AppId: ...

    async def serve_through(self, apps: Sequence[AppId]) -> None:
        """From now on serve accounts through their installations of these Apps alone. An App that is no
        longer configured may still be installed."""
        ...

    async def record_installation(
        self, facts: InstallationFacts, *, limits: Limits = UNLIMITED, weight: int = 1
    ) -> AccountId:
        """Limits and weight are those of a new account; a known one keeps its own."""
        ...

    async def remove_installation(self, host: HostId, installation: int) -> None:
        """GitHub does not know the installation: neither by its number, nor in its list. Confirmations
        are counted, those `CONFIRMED_APART` from the last, until the installation is recorded again."""
        ...

    async def removed_installations(self, app: AppId) -> list[int]:
        """Removed ones whose accounts still have runners here."""
        ...

    async def record_repositories(
        self, host: HostId, account: AccountId, repositories: Sequence[RepositoryFacts]
    ) -> None:
        """The complete list of what the account's installation may use."""
        ...


class RunnerGroupStore(Protocol):
    """The runner groups that pools name, and their ids in each account."""

    async def served_accounts(self, app: AppId) -> list[ServedAccount]: ...

    async def wanted_groups(self) -> list[tuple[PoolId, str]]:
        """Active pools and the runner groups they name."""
        ...

    async def set_groups(self, account: AccountId, groups: Mapping[PoolId, int]) -> None:
        """The id of each pool's runner group in the account. A pool that is not given has no group
        there (any more), and takes none of the account's new jobs."""
        ...


class AccountStore(Protocol):
    """Limits, weights and pauses of accounts, which operators set."""

    async def list_accounts(self) -> list[AccountSummary]: ...

    async def find_repository(
        self, account: AccountId, full_name: str
    ) -> tuple[RepositoryId, Limits] | None: ...

    async def set_account_limits(self, account: AccountId, limits: Limits) -> bool: ...

    async def set_repository_limits(self, repository: RepositoryId, limits: Limits) -> bool:
        """Waiting jobs move to the scope at which the limit is exact; runners keep the scope they were
        claimed for."""
        ...

    async def set_weight(self, account: AccountId, weight: int) -> bool: ...

    async def pause_account(self, account: AccountId, *, why: str) -> bool: ...

    async def resume_account(self, account: AccountId, *, why: str) -> bool: ...
