"""Every event that paddock logs, and what it means: docs/logs.md is generated from this.

An event is an identifier that alerts and queries may rely on. Its sentence is here and not in the log,
so that the sentence can be improved. A test compares this table with what the code logs.

An event about a runner has all known names of the runner, so that one field is enough to follow a job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypedDict

from paddock.domain.ids import JobId
from paddock.domain.names import PodName, RunnerName, pod_of
from paddock.domain.runners.runner import Claim, Runner

EVENTS: Final[Mapping[str, str]] = {
    "adoption.store_failed": (
        "A Pod without a row could not be adopted because the database failed."
    ),
    "budget.note_lost": (
        "What GitHub says is left of a quota could not be written. The next answer says it again."
    ),
    "claim.made": (
        "The matcher gave a Pod to a job's key. `job` is the job it was claimed for; GitHub "
        "may give the runner another one."
    ),
    "claim.released": (
        "A Pod waits for work again: GitHub did not register a runner for its claim, or recovery gave "
        "up a claim that stayed one. `why` says which."
    ),
    "claim.taken_over": (
        "The replica that minted for this claim did not finish in time. Another one goes on "
        "under a new name."
    ),
    "clock.database_jumped": "The database's clock moved. Silence of Pods is counted from zero.",
    "comparison.failed": (
        "GitHub did not answer about a repository's jobs. The comparison is made again later."
    ),
    "comparison.jobs_found": (
        "GitHub's list of a repository's jobs had jobs of which no webhook had told."
    ),
    "comparison.unreadable": (
        "A repository that is to be compared with GitHub's lists cannot be read from the database."
    ),
    "console.failed": "A page or an answer of the API could not be made.",
    "database.sessions_dead": "The sessions with the database do not answer and are closed.",
    "debt.postponed": (
        "GitHub did not answer about a leftover registration. It is asked again later."
    ),
    "delivery.batch_failed": (
        "A batch of deliveries could not be applied. Each of them is applied by itself."
    ),
    "delivery.runner_conflict": "A webhook names a runner whose state does not allow what it says.",
    "delivery.set_aside": (
        "One delivery could not be applied. `paddock deliveries` shows it with its error."
    ),
    "delivery.unstorable": (
        "The database refused one delivery. GitHub was answered with an error and sends it again."
    ),
    "fleet.list_failed": "The Pods could not be listed, so nothing counts as absent.",
    "fleet.unwritable": "What the list of Pods shows could not be written.",
    "fleet.watch_failed": "The watch of Pods ended with an error. Complete lists go on.",
    "github.key_kept": (
        "The new file of an App's private key cannot be used. The key read before stays in use."
    ),
    "groups.unreadable": "GitHub did not list the runner groups of an organisation.",
    "history.purged": "Rows older than the retention were deleted.",
    "hosts.avoided": "Pods keep failing to start on some nodes. New Pods avoid them for a while.",
    "hosts.unfit": "Nodes report that they are not fit for runners. New Pods are not put there.",
    "hosts.unreadable": "The nodes could not be listed.",
    "hosts.unwritable": "Which nodes are unfit could not be written.",
    "installation.enterprise_ignored": (
        "The App is installed at an enterprise. Runners are registered at organisations and "
        "repositories only."
    ),
    "installation.read_not_written": (
        "An installation was read from GitHub and the database could not be told. It is read again."
    ),
    "installation.unreadable": "GitHub did not answer about one installation. It is read again.",
    "installations.unreadable": (
        "GitHub did not list the installations of an App. They are listed again."
    ),
    "job.batch_failed": (
        "Jobs that GitHub listed could not be written together. Each of them is written by itself."
    ),
    "job.completed": "GitHub reported that a job is completed, with its conclusion.",
    "job.queued": "GitHub reported that a job is queued.",
    "job.runner_conflict": "GitHub names a runner for a job whose state does not allow it here.",
    "job.started": "GitHub reported that a job is in progress, and on which runner.",
    "job.unreadable": "A job that GitHub listed has fields that cannot be read.",
    "job.unwritable": "A job that GitHub listed could not be written.",
    "job.waiting": "GitHub reported that a job waits for an approval.",
    "kubernetes.change_unreadable": (
        "A message of the watch of Pods cannot be read. The next complete list corrects it."
    ),
    "kubernetes.event_unreadable": "An event of the cluster cannot be read.",
    "kubernetes.node_watch_denied": (
        "The role may not watch nodes. They are listed every five seconds instead."
    ),
    "kubernetes.node_watch_ended": "The watch of nodes ended and begins again.",
    "kubernetes.pod_unreadable": "A Pod of the list cannot be read, so the list proves no absence.",
    "kubernetes.watch_expired": (
        "The API server no longer has the position of the watch of Pods. The Pods are listed, "
        "and the watch begins again."
    ),
    "kubernetes.watch_failed": "The watch of Pods ended with an error and begins again.",
    "leader.acquired": "This replica runs a loop that only one replica runs.",
    "listener.connections_closed": (
        "A listener closed connections to make room, by the limit of a peer or for memory; at "
        "most one line a minute."
    ),
    "listener.few_open_files": (
        "The process may have too few open files for the connections in the settings. Each "
        "listener serves fewer."
    ),
    "local.directory_unreadable": "The directory of a Pod of this machine cannot be read.",
    "local.directory_unusable": "The directory of a Pod of this machine cannot be written to.",
    "local.supervisor_lost": "The process that supervises a runner of this machine is gone.",
    "log.captured": "The end of the log of a runner that ended abnormally, masked.",
    "log.given_up": "The log of an ended runner could not be read within two minutes.",
    "log.read_ahead_failed": (
        "The log of a Pod that is about to end could not be read in advance. It is requested "
        "again after the end."
    ),
    "log.unreadable": (
        "The log of an ended runner could not be read. It is requested again for two minutes."
    ),
    "login.failed": (
        "A login had a wrong token. There is at most one line a second; `attempts` have failed since "
        "the last one, and `address` sent the latest."
    ),
    "login.succeeded": "A person logged in.",
    "metrics.unreadable": "The gauges could not be read from the database.",
    "mint.broken": (
        "An unexpected error ended a mint. This is a bug; the claim is released after its deadline."
    ),
    "mint.done": "GitHub registered a runner, and its JIT waits for the Pod.",
    "mint.failed": (
        "GitHub did not register a runner. The claim is released, and the scope that the "
        "failure names backs off."
    ),
    "mint.too_late": (
        "A JIT arrived after its claim had moved on. Its registration at GitHub is removed later."
    ),
    "mint.unwritten": (
        "A JIT was minted and the database could not be told. Its registration at GitHub is "
        "removed later."
    ),
    "operator.acted": (
        "An operator did something by the command line or the dashboard: `actor` did `action` to "
        "`subject`. `done` is false if it was so already."
    ),
    "pod.create_failed": "The fleet did not create a Pod. It is asked for again.",
    "pod.delete_failed": "An ended Pod could not be deleted. Recovery deletes it later.",
    "pod.ended_without_pool": "A Pod whose pool has no row has ended.",
    "pod.request_failed": (
        "A Pod's request could not be answered because the database or the fleet failed. There is at "
        "most one line a second; it stands for as many `requests`."
    ),
    "pod.stop_failed": (
        "The fleet did not accept the deletion of a live Pod. The next round tries again."
    ),
    "pool.applied": "A RunnerPool object was written to the database.",
    "pool.apply_all_failed": "RunnerPool objects could not be written to the database.",
    "pool.finalizer_removed": (
        "All runners of a deleted RunnerPool are gone, and its finalizer was removed."
    ),
    "pool.list_failed": "RunnerPool objects could not be listed.",
    "pool.mirror_failed": (
        "One RunnerPool object could not be applied. The others are. As an error: this is a bug."
    ),
    "pool.object_missing": (
        "A RunnerPool object is gone although it had a finalizer. Its runners finish their jobs."
    ),
    "pool.plan_failed": "The rows of new runners could not be written.",
    "pool.removed": "The last runner of a deleted pool is gone.",
    "pool.round_failed": "The sizes of pools could not be decided. The next round tries again.",
    "pool.unusable": "The description of a pool cannot be used. The pool keeps what it has.",
    "pool.watch_failed": "RunnerPool objects cannot be watched. They are listed instead.",
    "recovery.acted": "A rule of recovery did something, or would have in a dry run.",
    "recovery.github_failed": "GitHub did not answer a question of recovery. It is asked again.",
    "recovery.repositories_unreadable": (
        "GitHub did not list the repositories of an installation, so no repository counts as "
        "deleted."
    ),
    "redelivery.failed": "GitHub did not answer about missed webhooks. It is asked again.",
    "redelivery.given_up": "Webhooks that GitHub no longer keeps were never received.",
    "refusal.lifted": "Jobs that fitted no pool, or several, fit one after a change of pools.",
    "replica.not_ready": "This replica is not ready.",
    "replica.ready": "This replica is ready again.",
    "request.failed": "An unexpected error ended a request. This is a bug.",
    "retire.busy": "A runner that was to be retired executes a job, and is left alone.",
    "retire.pod_outlived_row": "A retired runner's row is gone and its Pod is still there.",
    "retire.waits_for_github": "A retirement waits because GitHub did not answer.",
    "retire.waits_for_installation": (
        "A retirement waits because no installation can be asked about its runner."
    ),
    "retire.waits_for_log": "A retirement waits because the runner's log cannot be read.",
    "runner.acknowledged": "A Pod holds its JIT, and its runner starts.",
    "runner.ended": "A runner's Pod has ended, and its verdict is written.",
    "runner.fence_failed": (
        "A runner that is too many could not be fenced. The next round tries again."
    ),
    "runner.forced": "An operator ended a runner by force.",
    "search.list_endless": (
        "A list of runners at GitHub has more pages than can be. The search does not use it."
    ),
    "service.failed": "A loop of this replica failed and is started again.",
    "stamp.failed": "The owner's label could not be put on a Pod. Nothing is decided by it.",
    "store.unavailable": "A loop could not reach the database and tries again.",
    "stream.publish_failed": "The live stream could not be updated.",
    "tls.certificate_expired": "The certificate of the Pods' port has expired. Pods reject it.",
    "tls.certificate_rejected": (
        "A new certificate cannot be used. The one read before stays in use."
    ),
    "tls.certificate_replaced": "The certificate of the Pods' port was renewed.",
    "token_keys.read": "The keys that sign Pods' tokens were read.",
    "token_keys.unreadable": (
        "The keys that sign Pods' tokens cannot be read. Tokens are reviewed within limits."
    ),
    "trust.unknown": (
        "GitHub did not answer about a workflow run. Its jobs are untrusted until it does."
    ),
    "verdict.refined": "GitHub's answer changed the ending in a runner's verdict.",
    "version.answered": "GitHub said until when it accepts a runner version.",
    "version.not_known": "GitHub does not know a runner version, or has no dates in that account.",
    "version.refused": (
        "GitHub refused a runner because of its version. Its Pods get no JIT for the account for a "
        "while."
    ),
    "version.unanswered": "GitHub did not answer about a runner version. It is asked again.",
    "vitals.unwritable": "A report of vitals could not be written.",
    "wakeups.lost": (
        "Notifications of the database do not arrive. Loops look by themselves, less often."
    ),
    "webhook.pinged": "GitHub sent a ping to a webhook.",
    "webhook.refused": "A request to the webhook address was refused.",
    "webhook.refused_more": "More requests were refused for the same reason since the last line.",
}


class RunnerFields(TypedDict):
    """All names of a runner: GitHub's number of its job, its name at GitHub, its Pod, its account and
    its pool. `None` if there is none, or if it is not known here."""

    job: JobId | None
    runner: RunnerName | None
    pod: PodName | None
    account: str | None
    pool: str | None


def owner_of(repository: str) -> str:
    """The account of a repository, which is the first part of its full name."""
    return repository.partition("/")[0]


def claim_fields(claim: Claim) -> RunnerFields:
    """The fields of a claim; `job` is the job it was made for."""
    named = pod_of(claim.name)
    return RunnerFields(
        job=claim.hint,
        runner=claim.name,
        pod=named and named[0],
        account=claim.login,
        pool=claim.pool,
    )


def runner_fields(runner: Runner) -> RunnerFields:
    """The fields of a runner; `job` is the job it executes, or else the one it was claimed for."""
    return RunnerFields(
        job=runner.job or runner.hint,
        runner=runner.name,
        pod=runner.pod_name,
        account=runner.login,
        pool=runner.pool_name,
    )
