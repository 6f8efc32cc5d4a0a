"""What binds each key, kept between matches and read again when any of it changed.

Limits, weights, names and installations change by the hour, matches happen many times a second.
Triggers give every state of the terms a version (`terms.version`). A match reads that version under its
lock with everything else, so a limit lowered a moment ago binds the next claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

import asyncpg
import msgspec

from paddock.domain.ids import AccountId, AppId, KeyId, PoolId, RepositoryId
from paddock.domain.limits import Limits, Resources
from paddock.store.database import Connection
from paddock.store.sql import queries

_SQL = queries("matching")


class KeyTerms(msgspec.Struct, frozen=True, kw_only=True):
    account: AccountId
    weight: int
    limits: Limits
    host: str
    login: str
    #: `None`: no active installation serves the account.
    app: AppId | None
    github_app: int | None
    installation: int | None
    #: The repository the key's runners register at; `None` is the organisation.
    repository_id: RepositoryId | None
    repository: str | None
    repository_limits: Limits
    runner_group: int
    pool: PoolId
    pool_name: str
    cost: Resources
    pool_maximum: int | None
    labels: tuple[str, ...]
    paused: bool
    #: The account's runners of this pool now register at another scope, or in another group.
    misplaced: bool
    #: The key's runners register at an organisation one of whose repositories has limits: what they
    #: execute may count against those limits (I78).
    beside_limits: bool
    #: Its repository has limits and belonged to another account before, whose runners count as well.
    transferred: bool


class TermsCache:
    """One per store, shared by all its `acting_as` copies."""

    def __init__(self) -> None:
        self._version: UUID | None = None
        self._known: dict[KeyId, KeyTerms] = {}

    async def of(
        self,
        connection: Connection,
        version: UUID,
        keys: Iterable[KeyId],
        *,
        apps: Sequence[AppId],
    ) -> Mapping[KeyId, KeyTerms]:
        """The terms of `keys`, perhaps of more. Call it in the transaction that read `version`. `apps`:
        serve through these alone; empty: through any."""
        if version != self._version:
            self._version, self._known = version, {}
        known = self._known
        if missing := [key for key in keys if key not in known]:
            for row in await connection.fetch(_SQL["terms"], missing, apps):
                known[KeyId(row["id"])] = _terms_of(row)
        return known


def _terms_of(row: asyncpg.Record) -> KeyTerms:
    return KeyTerms(
        account=row["account_id"],
        weight=row["weight"],
        limits=_limits_of(row, ""),
        host=row["host"],
        login=row["login"],
        pool_name=row["pool"],
        app=row["app_id"],
        github_app=row["github_app"],
        installation=row["installation_id"],
        repository_id=row["repository_id"],
        repository=row["repository"],
        repository_limits=_limits_of(row, "repository_"),
        runner_group=row["runner_group_id"],
        pool=row["pool_id"],
        cost=Resources(vcpu_milli=row["vcpu_milli"], memory_mib=row["memory_mib"]),
        pool_maximum=row["pool_max_runners"],
        labels=tuple(row["labels"]),
        paused=row["paused"],
        misplaced=row["misplaced"],
        beside_limits=row["beside_limits"],
        transferred=row["transferred"],
    )


def _limits_of(row: asyncpg.Record, prefix: str) -> Limits:
    return Limits(
        runners=row[f"{prefix}max_runners"],
        vcpu_milli=row[f"{prefix}max_vcpu_milli"],
        memory_mib=row[f"{prefix}max_memory_mib"],
    )
