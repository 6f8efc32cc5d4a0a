"""Debts: runner records to remove at GitHub, under names that no runner has any more (I41), and how a
name is settled."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from paddock.domain.github.objects import InstallationKey, Scope
from paddock.domain.ids import GitHubRunnerId


class MintOutcome(StrEnum):
    """What is known of the record under a settled name. A mint that GitHub refused has the sentence of
    its failure instead."""

    #: paddock removed it. So GitHub had not removed it, as it does when a job of the runner completes.
    REMOVED = "removed"
    WAS_GONE = "it was gone"
    NEVER_MADE = "it was never made"
    #: The statement `finish` in `store/queries/runners.sql` writes this value.
    JOB_COMPLETED = "its job completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Debt:
    """`github_id` is unknown when the answer to the mint was lost."""

    name: str
    github_id: GitHubRunnerId | None
    chosen_at: datetime
    who: InstallationKey
    scope: Scope
