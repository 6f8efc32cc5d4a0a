"""Debts: runner records to remove at GitHub, under names that no runner has any more (I41)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from paddock.domain.github import InstallationKey, Scope
from paddock.domain.ids import GitHubRunnerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Debt:
    """`github_id` is unknown when the answer to the mint was lost."""

    name: str
    github_id: GitHubRunnerId | None
    chosen_at: datetime
    who: InstallationKey
    scope: Scope
