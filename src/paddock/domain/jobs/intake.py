"""What an incoming job means for us: whose it is, which pool serves it, or why nothing is done.

Every reason for passing a job over has its own name and is counted by it (I11): an outage must not
look like a typo in `runs-on`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from paddock.domain.ids import AccountId, HostId, PoolId
from paddock.domain.jobs.facts import JobFacts, JobReport, Refusal, RepositoryFacts, UnservedCause
from paddock.domain.jobs.labels import LabelSet, Resolved, resolve
from paddock.domain.jobs.trust import Forks
from paddock.domain.names import PoolName


class Passed(StrEnum):
    """Why a delivery was understood and changed nothing."""

    NO_INSTALLATION = "no installation"  # a repository's or organisation's own webhook
    INSTALLATION_REMOVED = "installation removed"
    NOT_OURS = "not ours"  # no pool has its labels: `ubuntu-latest` is no mistake
    UNKNOWN_ACTION = "unknown action"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPool:
    """`in_accounts`: the accounts in which the pool's runner group is known. `None`: it needs no
    group."""

    id: PoolId
    labels: LabelSet
    runner_group: str | None = None
    in_accounts: frozenset[AccountId] | None = None
    forks: Forks = Forks.IGNORE

    def takes(self, account: AccountId) -> bool:
        return self.in_accounts is None or account in self.in_accounts


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeContext:
    """What incoming jobs are judged by. The tenant is found by installation, never by name (I4);
    an installation that is not in here has to be read first."""

    accounts: Mapping[tuple[HostId, int], AccountId]
    pools: Mapping[PoolName, KnownPool]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedJob:
    facts: JobFacts
    account: AccountId
    repository: RepositoryFacts
    #: What its run said, if it was looked up.
    trusted: bool | None = None


def judge(
    facts: JobFacts,
    repository: RepositoryFacts,
    account: AccountId,
    around: IntakeContext,
    *,
    trusted: bool | None = None,
) -> tuple[JobReport, bool]:
    """The report of a job, and whether it could be ours. A job that could not be ours is only stored if
    one of our runners executes it: GitHub does give foreign jobs to them."""
    labels = {name: pool.labels for name, pool in around.pools.items()}
    resolution = resolve(LabelSet.of(facts.labels), labels)
    served: PoolId | Refusal
    if isinstance(resolution, Resolved):
        could_be_ours = True
        pool = around.pools[resolution.pool]
        if not pool.takes(account):
            served = _no_group(resolution.pool, pool)
        elif pool.forks is Forks.REFUSE and not trusted:
            served = _untrusted(resolution.pool)
        else:
            served = pool.id
    else:
        could_be_ours = resolution.could_be_ours
        served = Refusal(reason=resolution.reason, detail=resolution.why)
    report = JobReport(facts=facts, account=account, repository=repository, served=served)
    return report, could_be_ours


def _untrusted(name: PoolName) -> Refusal:
    """Refused until its run has been looked up, and for good if the run is untrusted (I62)."""
    return Refusal(
        reason=UnservedCause.UNTRUSTED,
        detail=f"pool {name} takes no jobs of strangers, and whose code it runs is not known yet",
    )


def _no_group(name: PoolName, pool: KnownPool) -> Refusal:
    return Refusal(
        reason="no runner group",
        detail=f"pool {name} registers its runners in the group {pool.runner_group!r}, and the job's "
        "account has no such group that the App can see; create it, or take it from the pool",
    )
