"""Parts of rows that several statements return under the same column names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddock.domain.allocation import Withheld
from paddock.domain.github.objects import (
    GitHubAppId,
    GitHubHost,
    InstallationId,
    InstallationKey,
    Scope,
    repository_scope,
)
from paddock.domain.limits import Limits, Resources
from paddock.domain.pauses import Pause

Row = Mapping[str, Any]


def cost_of(row: Row) -> Resources:
    return Resources(vcpu_milli=row["vcpu_milli"], memory_mib=row["memory_mib"])


def used_of(row: Row, prefix: str = "") -> Resources:
    """Sums, which PostgreSQL may return as decimals."""
    return Resources(
        runners=row[f"{prefix}runners"],
        vcpu_milli=int(row[f"{prefix}vcpu_milli"]),
        memory_mib=int(row[f"{prefix}memory_mib"]),
    )


def limits_of(row: Row, prefix: str = "") -> Limits:
    return Limits(
        runners=row[f"{prefix}max_runners"],
        vcpu_milli=row[f"{prefix}max_vcpu_milli"],
        memory_mib=row[f"{prefix}max_memory_mib"],
    )


def installation_of(row: Row) -> InstallationKey:
    """From GitHub's names and numbers: `host`, `app`, `installation`."""
    return InstallationKey(
        host=GitHubHost(row["host"]),
        app=GitHubAppId(row["app"]),
        installation=InstallationId(row["installation"]),
    )


def scope_of(row: Row) -> Scope:
    """A repository, if the row names one, or else the account."""
    host = GitHubHost(row["host"])
    if row["repository"]:
        return repository_scope(host, row["repository"])
    return Scope(host=host, owner=row["login"])


def blocked_of(row: Row) -> Withheld | None:
    """Why dispatch would not serve a key now, from a row of `keys` in `sizing.sql`."""
    if row["paused"]:
        return Withheld.PAUSED
    if row["uninstalled"]:
        return Withheld.INSTALLATION
    if row["blocked_until"] is not None:
        return Withheld.BACK_OFF
    return Withheld.RUNNER_VERSION if row["outdated"] else None


def pause_of(row: Row, prefix: str = "") -> Pause | None:
    """The pause in the columns `paused_at`, `paused_by` and `paused_why`, if there is one."""
    at, by, why = (row[f"{prefix}paused_{column}"] for column in ("at", "by", "why"))
    return None if at is None else Pause(at=at, by=by, why=why)
