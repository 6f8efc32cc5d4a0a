"""What recovery may do: how long it waits, how much it does at once, and whether it only records.

The thresholds are put together from the files of the rules: each default and the reason for it are in
the file of the state that it is for.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from paddock.domain.recovery.durations import setting
from paddock.domain.recovery.ended_without_job import SUPPLY_GRACE_DEFAULT, VERDICT_DEFAULT
from paddock.domain.recovery.expired_job import JOB_END_DEFAULT, JOB_EXPIRED_DEFAULT
from paddock.domain.recovery.forced_end import REMOVALS_DEFAULT, REMOVED_DEFAULT
from paddock.domain.recovery.lingering import LINGER_DEFAULT
from paddock.domain.recovery.missed_webhook import IN_PROGRESS_DEFAULT, UNHEARD_DEFAULT
from paddock.domain.recovery.never_registered import NEVER_REGISTERED_DEFAULT
from paddock.domain.recovery.never_started import BOOT_DEFAULT, PULL_DEFAULT
from paddock.domain.recovery.no_job_in_time import NO_JOB_DEFAULT
from paddock.domain.recovery.pod_gone import ABSENT_READS_DEFAULT
from paddock.domain.recovery.pod_without_row import ADOPT_DEFAULT
from paddock.domain.recovery.predicates import FRESH_DEFAULT, RECHECK_DEFAULT
from paddock.domain.recovery.silent_poller import SILENT_DEFAULT
from paddock.domain.recovery.stale_claim import STALE_CLAIM_DEFAULT
from paddock.domain.recovery.surplus import SURPLUS_DEFAULT
from paddock.domain.recovery.suspect import START_DEFAULT, SUSPECT_DEFAULT, SUSPECTS_DEFAULT
from paddock.domain.recovery.unassigned_job import REFUSALS_DEFAULT, UNASSIGNED_DEFAULT
from paddock.domain.recovery.undelivered import UNDELIVERED_DEFAULT
from paddock.domain.recovery.unschedulable import UNSCHEDULABLE_DEFAULT
from paddock.domain.recovery.waiting_container import WAITING_DEFAULT
from paddock.domain.recovery.zombie import ZOMBIE_DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Seconds, unless it is a number of times. A pool may have its own for `boot`, `pull` and
    `unschedulable`: then it is diagnosed with a copy."""

    fresh: float = setting(FRESH_DEFAULT)
    recheck: float = setting(RECHECK_DEFAULT)
    absent_reads: int = setting(ABSENT_READS_DEFAULT)
    boot: float = setting(BOOT_DEFAULT)
    pull: float = setting(PULL_DEFAULT)
    unschedulable: float = setting(UNSCHEDULABLE_DEFAULT)
    silent: float = setting(SILENT_DEFAULT)
    stale_claim: float = setting(STALE_CLAIM_DEFAULT)
    undelivered: float = setting(UNDELIVERED_DEFAULT)
    start: float = setting(START_DEFAULT)
    suspect: float = setting(SUSPECT_DEFAULT)
    suspects: int = setting(SUSPECTS_DEFAULT)
    waiting: float = setting(WAITING_DEFAULT)
    never_registered: float = setting(NEVER_REGISTERED_DEFAULT)
    zombie: float = setting(ZOMBIE_DEFAULT)
    surplus: float = setting(SURPLUS_DEFAULT)
    no_job: float = setting(NO_JOB_DEFAULT)
    unassigned: float = setting(UNASSIGNED_DEFAULT)
    refusals: int = setting(REFUSALS_DEFAULT)
    linger: float = setting(LINGER_DEFAULT)
    removals: int = setting(REMOVALS_DEFAULT)
    removed: float = setting(REMOVED_DEFAULT)
    adopt: float = setting(ADOPT_DEFAULT)
    supply_grace: float = setting(SUPPLY_GRACE_DEFAULT)
    verdict: float = setting(VERDICT_DEFAULT)
    in_progress: float = setting(IN_PROGRESS_DEFAULT)
    unheard: float = setting(UNHEARD_DEFAULT)
    job_expired: float = setting(JOB_EXPIRED_DEFAULT)
    job_end: float = setting(JOB_END_DEFAULT)


def reasons() -> dict[str, str]:
    return {each.name: each.metadata["reason"] for each in fields(Thresholds)}


def counted(name: str) -> bool:
    """Whether it is a number of times rather than a time."""
    return any(each.name == name and not each.metadata["unit"] for each in fields(Thresholds))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryTerms:
    """`dry_run`: record what would be done, and do nothing; for all rules, or for `dry_run_rules`."""

    thresholds: Thresholds = field(default_factory=Thresholds)
    dry_run: bool = False
    dry_run_rules: frozenset[str] = frozenset()
    #: Actions of one rule, and of all, within ten seconds: a fault does harm slowly enough for an
    #: operator to see it (I29). Ends that were seen are not counted.
    per_rule: int = 20
    per_round: int = 50
    #: Questions to GitHub in one round.
    questions: int = 30

    def is_dry(self, rule: str) -> bool:
        return self.dry_run or rule in self.dry_run_rules
