"""Tenants as GitHub describes them, and what an App may ask of GitHub in their name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paddock.domain.ids import AppId, HostId


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallationFacts:
    """An installation as GitHub describes it now."""

    host: HostId
    app: AppId
    id: int
    account_id: int
    login: str
    kind: Literal["organization", "user"]
    state: Literal["active", "suspended", "removed"]
    all_repositories: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MintBudget:
    """Requests an App may make per minute and per hour for JITs: GitHub's secondary limit (900
    points a minute, 5 a write) and the bucket `generate-jitconfig` has for itself."""

    per_minute: int = 180
    per_hour: int = 10_000
