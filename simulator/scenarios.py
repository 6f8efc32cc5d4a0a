"""Stories of real incidents, or of coincidences that seeds meet too rarely (see `scripted_world`).

Each ends well with the product as it is, and exposes at least one mutant (`simulator.mutants`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final

import msgspec

from paddock.domain.limits import UNLIMITED, Limits
from paddock.domain.pods.fingerprints import ContainerState, Running
from paddock.domain.pods.placement import REMEMBERED, REPEATED
from paddock.domain.pods.pod import Phase, PodOrder
from paddock.domain.runners.endings import Ending
from paddock.fakes.github import FaultKind, Reply, Request
from paddock.fakes.github.records import Job, JobStatus, VersionDates
from paddock.ports import FleetUnavailable
from paddock.recovery.by_hand import retire_by_hand
from paddock.store import matching
from simulator.engine.backup import Backup
from simulator.engine.checks import FIT_WITHIN, Promise
from simulator.engine.faults import Fault
from simulator.engine.fleet import Jit, Node, SimPod
from simulator.engine.loop import Turn
from simulator.engine.pods import OURS
from simulator.engine.runner_output import ACT_RUNNER, STRANGE, Speech
from simulator.engine.scale import LINUX, MACOS, SMALL
from simulator.scripted_world import WARM, Scenario, Scene, Script

_TOLD: list[Scenario] = []


def _told(name: str, source: str, tells: str) -> Callable[[Script], Script]:
    def tell(script: Script) -> Script:
        _TOLD.append(Scenario(name=name, source=source, tells=tells, script=script))
        return script

    return tell


# Incidents.

#: From the log of S1's incident: registered at 21:30:14, reaped at 21:31:00.
RELEASED_AFTER: Final = 46.0
#: Within seconds of the database's return the JIT is written and delivered, and the runner starts. A
#: claim that was given up would be taken over after 45 s.
SERVED_AFTER_FAILOVER: Final = 25.0
#: Failed starts are counted every ten seconds, while Pods are ordered.
AVOIDED_WITHIN: Final = 30.0
#: After the collector of debts has looked twice, and before a mint counts as settled.
MINT_ARRIVES_AFTER: Final = 50.0
#: S2's job waited for 100 minutes.
SERVED_AGAIN_WITHIN: Final = 60.0
#: A runner that GitHub does not show online is replaced after a minute, and one request to GitHub.
REPLACED_WITHIN: Final = 85.0

#: Written by hand, past every guard: the row looks as if it had never been claimed.
_RELEASE = """
    UPDATE runners
       SET state = 'idle', key_id = NULL, account_id = NULL, hint_job_id = NULL, name = NULL,
           claimed_at = NULL, mint_deadline = NULL, github_id = NULL, job_id = NULL, jit = NULL,
           jit_key = NULL, delivery_id = NULL, armed_at = NULL, acknowledged_at = NULL,
           job_marked_at = NULL, busy_at = NULL
     WHERE pod_name = $1
"""


@_told("claim-released", "S1", "A claim is released 46 s into its job; sweeps go on every minute.")
async def _claim_released(scene: Scene) -> None:
    await scene.sleep(WARM)
    job = scene.queue(240.0)
    pod = await scene.started(job)
    if pod is None:
        return
    await scene.sleep(RELEASED_AFTER)
    await scene.session.execute("SET session_replication_role = replica")
    await scene.session.execute(_RELEASE, pod.name)
    await scene.session.execute("SET session_replication_role = origin")
    scene.note(f"the claim of {pod.name} is released while it executes job {job.id}")
    await scene.executed(job)


@_told(
    "never-started",
    "S2",
    "A JIT is minted for a Pod whose node never starts the runner; its job is served again within a"
    " minute.",
)
async def _never_started(scene: Scene) -> None:
    await scene.sleep(WARM)
    scene.force_once(Fault.NEVER_STARTS)
    job = scene.queue(30.0)
    await scene.until(lambda: any(pod.jit for pod in scene.living))
    if not await scene.until(lambda: _begun(job), within=SERVED_AGAIN_WITHIN):
        scene.broken(
            Promise.SERVED,
            f"job {job.id} was not served again within {SERVED_AGAIN_WITHIN:.0f} s",
        )
    await scene.executed(job)


def _begun(job: Job) -> bool:
    return job.status in (JobStatus.IN_PROGRESS, JobStatus.COMPLETED)


@_told("restored-backup", "I70", "A backup from before its rows is restored while a job executes.")
async def _restored_backup(scene: Scene) -> None:
    await scene.sleep(5.0)
    backup = Backup(scene.session)
    await backup.take()
    await scene.sleep(WARM)
    job = scene.queue(420.0)
    await scene.started(job)
    await scene.sleep(RELEASED_AFTER)
    scene.note("an old backup is restored")
    await backup.restore()
    for replica in scene.story.stage.replicas:
        replica.crash("it is started over the restored database")
    await scene.executed(job)


#: How long GitHub hides the second page of a list: longer than an adoption takes.
_TORN: Final = 900.0
#: After the first proof of a retirement; the second follows ten seconds later.
_BEFORE_THE_SECOND_PROOF: Final = 80.0


async def _restored_beside_an_idle_runner(scene: Scene) -> SimPod | None:
    """Restores a backup from before all rows. One Pod executes a job, another is online without one.
    GitHub may assign it a job at any moment; only its log would show that, and late."""
    backup = Backup(scene.session)
    await backup.take()
    await scene.sleep(WARM)
    scene.mute_sidecars()
    await _online_without_a_job(scene)
    idle = next((pod for pod in scene.living if pod.jit), None)
    await scene.sleep(10.0)
    long = scene.queue(600.0, repository="umbrella/core")
    await scene.started(long)
    scene.note("an old backup is restored")
    await backup.restore()
    for replica in scene.story.stage.replicas:
        replica.crash("it is started over the restored database")
    if idle is not None:
        idle.log_lag = 60.0
        _job_before_the_second_proof(scene)
    return idle


def _job_before_the_second_proof(scene: Scene) -> None:
    def act() -> None:
        scene.at_github(hook_delay=(200.0, 200.0))
        scene.queue(120.0)
        scene.at_github(hook_delay=(0.05, 0.5))

    def wait(_turn: Turn) -> None:
        scene.simulation._loop.call_later(_BEFORE_THE_SECOND_PROOF, act)  # noqa: SLF001

    scene.at_turn(lambda turn: turn.what.startswith("store.note_proved"), wait)


@_told(
    "restored-among-many",
    "I81",
    "A backup is restored among many accounts, one of them uninstalled; for a while GitHub shows the"
    " first page of a list alone.",
)
async def _restored_among_many(scene: Scene) -> None:
    story, github = scene.story, scene.github
    acme = story.installations[0].account
    for number in range(100):
        github.runners.add_foreign(
            acme,
            name=f"elsewhere-{number}",
            group=github.world.groups[acme.id][0],
            labels=("self-hosted", "bench"),
            ephemeral=False,
        )
    for number in range(20):
        account = github.accounts.add_organization(f"org-{number}")
        story.installations.append(github.accounts.install(story.stage.app, account))
    await scene.sleep(WARM)
    github.accounts.uninstall(story.installations.pop())
    torn_until = story.stage.clock.monotonic() + WARM + _TORN

    def tear(request: Request, reply: Reply) -> Reply:
        torn = story.stage.clock.monotonic() < torn_until
        return Reply(502) if torn and request.query.get("page") == "2" else reply

    scene.answer_runner_lists(tear)
    idle = await _restored_beside_an_idle_runner(scene)
    await scene.until(lambda: idle is None or idle.removed, within=_TORN + 900.0)


@_told(
    "list-slips",
    "I81",
    "A backup is restored; two lists of runners do not have one that is there.",
)
async def _list_slips(scene: Scene) -> None:
    left = [0, 0]

    def slip(_request: Request, reply: Reply) -> Reply:
        names = {pod.jit.runner_name for pod in scene.living if pod.jit and not scene.executes(pod)}
        runners = reply.body["runners"] if isinstance(reply.body, dict) else []
        kept = [each for each in runners if each["name"] not in names]
        if len(kept) == len(runners) or not left:
            return reply
        left.pop()
        scene.note(f"a list does not have {sorted(names)}")
        return Reply(200, {"total_count": len(kept), "runners": kept}, reply.headers)

    scene.answer_runner_lists(slip)
    idle = await _restored_beside_an_idle_runner(scene)
    await scene.until(lambda: idle is None or idle.removed, within=1200.0)


@_told(
    "restored-claim",
    "I70",
    "A backup from the middle of a mint is restored while a runner of one container executes; its"
    " account may have one.",
)
async def _restored_claim(scene: Scene) -> None:
    await scene.sleep(WARM)
    await scene.limit("umbrella", 1)
    scene.at_github(latency=(5.0, 8.0))
    first = scene.queue(600.0, repository="umbrella/core", labels=MACOS)
    while not await scene.session.fetch("SELECT FROM runners WHERE state = 'claimed'"):
        await scene.sleep(0.5)
    backup = Backup(scene.session)
    await backup.take()
    scene.at_github(latency=(0.02, 0.3))
    await scene.started(first)
    await scene.sleep(RELEASED_AFTER)
    scene.note("a backup from before the JIT is restored")
    await backup.restore()
    for replica in scene.story.stage.replicas:
        replica.crash("it is started over the restored database")
    second = scene.queue(20.0, repository="umbrella/core", labels=MACOS)
    await scene.executed(first)
    await scene.executed(second, within=1800.0)


# What accounts and pools take from one another.

#: A batch that the Pods of one pool fill in a world with few Pods.
_SMALL_BATCH: Final = 1


@contextmanager
def _small_batches() -> Iterator[None]:
    batch = matching.BATCH
    matching.BATCH = _SMALL_BATCH
    try:
        yield
    finally:
        matching.BATCH = batch


async def _crowd(scene: Scene) -> None:
    """Many idle Pods of one pool."""
    crowd = replace(SMALL.pools[0], min_idle=30)
    await scene.describe(crowd)
    scene.story.stage.ledger.idle[crowd.name] = crowd.idle
    await scene.sleep(2 * WARM)


@_told(
    "crowded-pool",
    "I77",
    "More idle Pods of one pool wait than a match gives out; then a job of another pool comes.",
)
async def _crowded_pool(scene: Scene) -> None:
    with _small_batches():
        await _crowd(scene)
        for _ in range(6):
            await scene.executed(scene.queue(1.0, repository="umbrella/core", labels=MACOS))
            await scene.sleep(11.0)


@_told(
    "spends-its-mints",
    "I26",
    "One account uses up the mints that GitHub allows an installation in a minute; then a job of"
    " another account comes.",
)
async def _spends_its_mints(scene: Scene) -> None:
    await scene.sleep(WARM)
    await scene.session.execute("UPDATE apps SET mints_per_minute = 2")
    jobs = [scene.queue(120.0) for _ in range(2)]
    for job in jobs:
        await scene.started(job)
    await scene.executed(scene.queue(20.0, repository="umbrella/core"))
    for job in jobs:
        await scene.executed(job)


@_told(
    "told-to-slow-down",
    "I26",
    "GitHub refuses one account's mint for asking too often; then a job of another account comes.",
)
async def _told_to_slow_down(scene: Scene) -> None:
    await scene.sleep(WARM)
    scene.github.inject(FaultKind.SECONDARY_LIMIT, owner="acme", path="generate-jitconfig")
    slow = scene.queue(20.0)
    await scene.sleep(3.0)
    await scene.executed(scene.queue(20.0, repository="umbrella/core"))
    await scene.executed(slow)


@_told(
    "quota-used-up",
    "I26",
    "GitHub refuses several mints of an account at once: its quota is used up for ten minutes.",
)
async def _quota_used_up(scene: Scene) -> None:
    await scene.sleep(WARM)
    scene.github.inject(FaultKind.RATE_LIMIT, owner="acme", path="generate-jitconfig", times=3)
    jobs = [scene.queue(20.0) for _ in range(3)]
    for job in jobs:
        await scene.executed(job)


#: A runner that gets no job is retired after 15 minutes; its job then waits for 15, 30 and 60 more.
_UNASSIGNED_WITHIN: Final = 7200.0


@_told(
    "job-never-assigned",
    "I17",
    "GitHub assigns a job of one repository to no runner; jobs of another repository share its key.",
)
async def _job_never_assigned(scene: Scene) -> None:
    """Three runners wait for the job in vain. Then jobs come that GitHub assigns; the first takes the
    runner that was given out when the last one ended."""
    await scene.sleep(WARM)
    site, api = (
        next(each for each in scene.story.repositories if each.full_name == name)
        for name in ("acme/site", "acme/api")
    )
    group = scene.github.world.groups[site.owner.id][0]
    scene.github.accounts.set_group_repositories(group, [site])
    unassigned = scene.queue(20.0, repository="acme/api")
    for _ in range(3):
        await scene.until(lambda: _with_jit(scene), within=_UNASSIGNED_WITHIN)
        [pod] = _with_jit(scene)
        await scene.until(partial(_is_over, pod), within=_UNASSIGNED_WITHIN)
    await scene.sleep(3.0)
    for job in [scene.queue(20.0), scene.queue(20.0)]:
        await scene.executed(job)
    await scene.until(lambda: not _with_jit(scene))
    await scene.until(lambda: _with_jit(scene), within=_UNASSIGNED_WITHIN)
    scene.github.accounts.set_group_repositories(group, [site, api])
    await scene.executed(unassigned)


def _is_over(pod: SimPod) -> bool:
    return not pod.alive


def _with_jit(scene: Scene) -> list[SimPod]:
    return [pod for pod in scene.living if pod.jit]


# Races with a retirement.


async def _online_without_a_job(scene: Scene) -> None:
    """A runner that is online and whose job was cancelled: paddock will retire it as surplus."""
    scene.at_github(assign_delay=(20.0, 20.0))
    job = scene.queue(30.0)
    await scene.until(lambda: any(pod.jit for pod in scene.living))
    scene.github.jobs.cancel(job)
    scene.at_github(assign_delay=(0.0, 0.0))


#: While a runner that ended counts as supply, recovery looks every seven seconds and asks GitHub once.
ASKED_WITHIN: Final = 12.0


@_told(
    "job-after-an-end",
    "I68",
    "A runner ends without a job. Then, while all others wait, a job comes.",
)
async def _job_after_an_end(scene: Scene) -> None:
    await scene.sleep(WARM)
    await _online_without_a_job(scene)
    await scene.sleep(20.0)
    ended = next((pod for pod in scene.living if pod.jit), None)
    if ended is None:
        return
    scene.story.stage.pods.kill(ended, "killed", {Ending.GUEST_OOM_OR_KILL})
    await scene.sleep(_ALL_WAIT)
    job = scene.queue(30.0)
    if not await scene.until(lambda: any(pod.jit for pod in scene.living), within=ASKED_WITHIN):
        scene.broken(
            Promise.PROMPT, f"job {job.id} was not served within {ASKED_WITHIN:.0f} s of idle Pods"
        )
    await scene.executed(job)


#: After this an ended runner is replaced, and recovery finds nothing to do.
_ALL_WAIT: Final = 25.0


def _job_at(scene: Scene, turn: str, *, lasts: float = 50.0) -> list[Job]:
    """A job that reaches the waiting runner at that moment. From then on webhooks come minutes late:
    a runner of which GitHub says that its job has begun is busy, and no longer retired."""
    jobs: list[Job] = []

    def act(_turn: Turn) -> None:
        scene.at_github(hook_delay=(200.0, 200.0))
        jobs.append(scene.queue(lasts))

    scene.at_turn(lambda each: each.what.startswith(turn), act)
    return jobs


async def _last_moment(scene: Scene, *, log_lag: float | None = None) -> None:
    """Without `log_lag` the sidecars report nothing; with it, only they report in time."""
    await scene.sleep(WARM)
    if log_lag is None:
        scene.mute_sidecars()
    scene.at_github(hook_delay=(0.05, 0.5))
    await _online_without_a_job(scene)
    if log_lag is not None:
        for pod in scene.living:
            pod.log_lag = log_lag
    await scene.sleep(60.0)
    scene.at_github(hook_delay=(200.0, 200.0))
    # The job outlasts both proofs that the runner has none.
    jobs = _job_at(scene, "store.fence_runner", lasts=50.0 if log_lag is None else 150.0)
    await scene.until(lambda: jobs, within=900.0)
    for job in jobs:
        await scene.executed(job)
    scene.at_github(hook_delay=(0.05, 0.5))


@_told(
    "job-at-the-last-moment",
    "I35",
    "A runner gets a job between the decision to retire it and the next step, and webhooks are late.",
)
async def _job_at_the_last_moment(scene: Scene) -> None:
    await _last_moment(scene)


@_told(
    "deleted-while-busy",
    "I65",
    "The same, and GitHub deletes the busy runner's record with a 204.",
)
async def _deleted_while_busy(scene: Scene) -> None:
    scene.github.inject(FaultKind.BUSY_DELETED, times=None, seconds=7200.0)
    await _last_moment(scene)


@_told(
    "late-log",
    "I65",
    "The same, and its node is late to show what the runner says.",
)
async def _late_log(scene: Scene) -> None:
    scene.force(Fault.LOG_LATE, lambda: True)
    scene.github.inject(FaultKind.BUSY_DELETED, times=None, seconds=7200.0)
    await _last_moment(scene)


@_told(
    "only-its-sidecar-tells",
    "I65",
    "The same, the log is later still, and GitHub does not list jobs: the sidecar alone tells.",
)
async def _only_its_sidecar_tells(scene: Scene) -> None:
    scene.github.inject(FaultKind.BUSY_DELETED, times=None, seconds=7200.0)
    scene.github.inject(
        FaultKind.UNAVAILABLE, path="/repos/acme/site/actions/", times=None, seconds=600.0
    )
    await _last_moment(scene, log_lag=600.0)


async def _only_its_log_tells(scene: Scene, speech: Speech) -> None:
    """An operator retires a runner that gets a job at that moment. GitHub deletes the busy runner's
    record with a 204 and does not list jobs; webhooks are late, and sidecars report nothing."""
    scene.story.stage.fleet.speech_of = lambda _name: speech
    scene.github.inject(FaultKind.BUSY_DELETED, times=None, seconds=7200.0)
    scene.github.inject(
        FaultKind.UNAVAILABLE, path="/repos/acme/site/actions/", times=None, seconds=600.0
    )
    await scene.sleep(WARM)
    scene.mute_sidecars()
    scene.at_github(hook_delay=(0.05, 0.5))
    await _online_without_a_job(scene)
    await scene.until(lambda: any(pod.process for pod in scene.living))
    await scene.sleep(10.0)
    scene.at_github(hook_delay=(400.0, 400.0))
    # The job outlasts both proofs that the runner has none.
    job = scene.queue(300.0)
    pod = await scene.started(job)
    if pod is not None:
        await retire_by_hand(scene.operator, pod.name, why="it looks idle")
    await scene.executed(job)
    scene.at_github(hook_delay=(0.05, 0.5))


@_told(
    "third-party-runner",
    "I89",
    "An operator retires a busy runner whose record GitHub has deleted by mistake. Only its own log"
    " tells of the job: a github-act-runner's, which has other words for it.",
)
async def _third_party_runner(scene: Scene) -> None:
    await _only_its_log_tells(scene, ACT_RUNNER)


@_told(
    "unknown-runner-program",
    "I89",
    "The same with a runner program that paddock does not know: nothing in its log tells of the job.",
)
async def _unknown_runner_program(scene: Scene) -> None:
    await _only_its_log_tells(scene, STRANGE)


@_told(
    "same-name",
    "I36",
    "Just before our deletion arrives, another hand replaces the Pod by one of the same name, at work.",
)
async def _same_name(scene: Scene) -> None:
    await scene.sleep(WARM)
    account = scene.story.installations[0].account
    runner = scene.github.runners.add_foreign(
        account,
        name="foreign-runner",
        group=scene.github.world.groups[account.id][0],
        labels=("self-hosted", "bench"),
        ephemeral=True,
    )
    job = scene.queue(300.0, labels=("self-hosted", "bench"))
    await scene.until(lambda: scene.github.truth.executing(runner.id))
    old = scene.living[0]
    new: list[SimPod] = []

    def put_another(_turn: Turn) -> None:
        stage = scene.story.stage
        stage.pods.vanish(old, "replaced by another hand")
        stage.fleet.create(
            PodOrder(runner=None, name=old.name, pool=old.pool, spec="{}", cost=None)  # type: ignore[arg-type]
        )
        pod = stage.fleet.pods[-1]
        assert pod.life is not None
        pod.life.cancel()
        pod.node, pod.phase, pod.started, pod.process = old.node, Phase.RUNNING, True, True
        pod.runner = ContainerState(running=Running(stage.clock.now()))
        pod.jit = Jit("another's", runner.id, runner.name, runner.client_id, "")
        stage.fleet.say(pod, "Running job: bench")
        pod.endings |= OURS  # the class that its predecessor's row may get
        stage.fleet.tell(pod, "is another's, and executes a job")
        new.append(pod)

    scene.at_turn(
        lambda turn: turn.what.startswith(f"fleet.delete_live_pod {old.name} "), put_another
    )
    node = scene.story.stage.fleet.nodes[old.node or ""]
    assert old.life is not None
    old.life.cancel()  # it does not learn that it should leave: paddock asks for its deletion
    node.cordoned = True
    await scene.until(lambda: new, within=600.0)
    node.cordoned = False
    await scene.executed(job)
    for pod in new:
        scene.story.stage.pods.vanish(pod, "taken away by the hand that put it there")


@_told(
    "namesake-asks",
    "I36",
    "A Pod that holds its JIT is replaced by one of the same name before it acknowledged; that one asks"
    " for work.",
)
async def _namesake_asks(scene: Scene) -> None:
    await scene.sleep(WARM)
    scene.lose_acknowledgements()
    job = scene.queue(60.0)
    await scene.until(lambda: [pod for pod in scene.living if pod.jit])
    [old] = [pod for pod in scene.living if pod.jit]
    stage = scene.story.stage
    stage.pods.vanish(old, "replaced by another hand")
    spec = msgspec.json.encode({"shape": old.shape}).decode()
    stage.fleet.create(
        PodOrder(runner=None, name=old.name, pool=old.pool, spec=spec, cost=old.cost)  # type: ignore[arg-type]
    )
    new = stage.fleet.pods[-1]
    new.by_hand = True
    new.endings.add(Ending.HARD_DELETED)  # the class that its predecessor's row gets
    await scene.executed(job, within=1800.0)


@_told(
    "pool-deleted",
    "I42",
    "An operator deletes a pool while its Pods execute jobs.",
)
async def _pool_deleted(scene: Scene) -> None:
    await scene.sleep(WARM)
    jobs = [scene.queue(200.0), scene.queue(150.0, repository="umbrella/core")]
    for job in jobs:
        await scene.started(job)
    pool = await scene.operator.find_pool("linux")
    assert pool is not None
    ledger = scene.story.stage.ledger
    ledger.idle["linux"] = 0
    del ledger.labels["linux"]
    await scene.operator.delete_pool(pool, why="simulated")
    scene.note("pool linux is deleted")
    for job in jobs:
        await scene.executed(job)


# Dispatch.


@_told("two-jobs", "I20", "Two jobs of one account, one after the other.")
async def _two_jobs(scene: Scene) -> None:
    await scene.sleep(WARM)
    for job in (scene.queue(10.0), scene.queue(20.0)):
        await scene.executed(job)
    await scene.executed(scene.queue(5.0))


@_told("one-job", "I73", "GitHub takes its time to assign the only job there is.")
async def _one_job(scene: Scene) -> None:
    await scene.sleep(WARM)
    scene.at_github(assign_delay=(10.0, 15.0))
    await scene.executed(scene.queue(20.0))


@_told(
    "slow-mint", "S5", "GitHub takes seconds to mint, and the idle-only egress policy is in force."
)
async def _slow_mint(scene: Scene) -> None:
    await scene.sleep(WARM)
    scene.at_github(latency=(5.0, 8.0))
    for job in (scene.queue(20.0), scene.queue(20.0, labels=MACOS)):
        await scene.executed(job)


@_told("no-stamps", "S5", "The apiserver takes no labels, now or ever.")
async def _no_stamps(scene: Scene) -> None:
    fleet = scene.story.stage.fleet

    def refuse(name: str, *, uid: str, owner: str) -> None:
        raise FleetUnavailable(f"The simulated apiserver refuses the label of {name}.")

    fleet.stamp = refuse  # type: ignore[method-assign]
    await scene.sleep(WARM)
    for job in (scene.queue(20.0), scene.queue(60.0, repository="umbrella/core")):
        await scene.executed(job)


@_told("lost-reply", "I20", "The reply that carries a JIT does not arrive.")
async def _lost_reply(scene: Scene) -> None:
    await scene.sleep(WARM)
    scene.lose_next_jit()
    await scene.sleep(35.0)  # the requests that are already open
    await scene.executed(scene.queue(20.0))


#: A Pod's request ends after 30 s. The match is written less than a second after its job came.
_JUST_BEFORE_ITS_END: Final = 29.0
#: A replica writes who has asked every ten seconds, and then reads whether they are idle. So one Pod
#: may be lucky.
_UNLUCKY: Final = 6


@_told(
    "request-ends-in-match",
    "I20",
    "Six times: a Pod's request ends after a match has claimed it, and before the replica gets the"
    " match's answer. Then the Pod asks again.",
)
async def _request_ends_in_match(scene: Scene) -> None:
    scene.serve_with_one_replica()
    scene.delay_polls(0.5)  # the answer to the match comes first
    await scene.sleep(WARM)
    await scene.until(lambda: len(scene.living) >= _WARM_PODS)

    async def its_request_ends(pod: SimPod) -> None:
        asks = pod.asks
        await scene.until(lambda: pod.asks is not asks, within=2.0)

    def a_request_ends_soon() -> bool:
        now = scene.story.stage.clock.monotonic()
        asks = [pod.asks for pod in scene.living if pod.pool == "linux"]
        return any(each is not None and now - each.since > _JUST_BEFORE_ITS_END for each in asks)

    scene.hold_matches(its_request_ends)
    for _ in range(_UNLUCKY):
        await scene.until(a_request_ends_soon)
        await scene.executed(scene.queue(5.0))


@_told("lost-mints", "I19", "GitHub makes two records, and its replies are lost.")
async def _lost_mints(scene: Scene) -> None:
    await scene.sleep(WARM)
    for route in ("mint_organization", "mint_repository"):
        scene.github.inject(FaultKind.REPLY_LOST, route=route, times=2)
    await scene.executed(scene.queue(20.0), within=1800.0)


@_told("mint-fails-once", "I17", "GitHub answers one mint with an error of its own.")
async def _mint_fails_once(scene: Scene) -> None:
    await scene.sleep(WARM)
    scene.github.inject(FaultKind.SERVER_ERROR, path="generate-jitconfig", times=1)
    await scene.executed(scene.queue(20.0), within=1800.0)


@_told(
    "late-mint",
    "I41",
    "A mint's request gets no answer, and GitHub makes its record after the claim was given up.",
)
async def _late_mint(scene: Scene) -> None:
    await scene.sleep(WARM)
    answer, late = scene.github.request, list[Request]()

    def held_up(request: Request) -> Reply:
        if late or not request.path.endswith("/generate-jitconfig"):
            return answer(request)
        late.append(request)
        scene.note("a mint is on its way for a while")
        asyncio.get_running_loop().call_later(MINT_ARRIVES_AFTER, answer, request)
        return Reply(0, lost=True)

    scene.github.request = held_up  # type: ignore[method-assign]
    await scene.executed(scene.queue(20.0), within=1800.0)


@_told(
    "match-unanswered",
    "I16",
    "A match is committed and its answer lost: the Pod still waits where it was, and other jobs come.",
)
async def _match_unanswered(scene: Scene) -> None:
    await scene.sleep(WARM)
    await scene.limit("umbrella", 1)
    asked: list[str] = []
    scene.simulation.watchers.append(lambda turn: asked.append(turn.what))
    losing = [True]
    scene.force(Fault.STORE_OUTCOME_UNKNOWN, lambda: bool(losing) and asked[-1] == "store.match")
    jobs = [scene.queue(60.0)]
    while not await scene.session.fetch("SELECT FROM runners WHERE state = 'claimed'"):
        await scene.sleep(0.1)
    losing.clear()
    scene.note("a match was committed, and no replica knows")
    first = jobs[0]
    jobs += [scene.queue(60.0, repository="umbrella/core") for _ in range(3)]
    if not await scene.until(lambda: _begun(first), within=SERVED_AFTER_FAILOVER):
        scene.broken(
            Promise.SERVED, f"job {first.id} was not served within {SERVED_AFTER_FAILOVER:.0f} s"
        )
    for job in jobs:
        await scene.executed(job, within=1800.0)


@_told(
    "late-release",
    "I16",
    "A replica whose mint failed stalls before it gives the claim up; another takes it over meanwhile.",
)
async def _late_release(scene: Scene) -> None:
    await scene.sleep(WARM)
    await scene.limit("umbrella", 1)
    stalled: list[str] = []

    def stall(turn: Turn) -> None:
        scene.github.inject(FaultKind.SERVER_ERROR, path="generate-jitconfig", times=1)
        replica = scene.replica_of(turn)
        assert replica is not None
        stalled.append(replica.name)
        machine = replica.machine
        machine.stalled = True
        scene.note(f"{replica.name} stalls over its mint")
        scene.simulation._loop.call_later(240.0, lambda: setattr(machine, "stalled", False))  # noqa: SLF001

    scene.at_turn(lambda turn: turn.what.endswith("/generate-jitconfig"), stall)
    first = scene.queue(420.0, repository="umbrella/core")
    await scene.until(lambda: stalled)
    await scene.started(first, within=400.0)
    second = scene.queue(20.0, repository="umbrella/core")
    await scene.executed(first)
    await scene.executed(second)


# Limits of repositories.


async def _api_is_known(scene: Scene) -> None:
    """paddock knows a repository from its first job on."""
    await scene.sleep(WARM)
    await scene.executed(scene.queue(1.0, repository="acme/api"))
    await scene.sleep(30.0)


@_told(
    "repository-limit-by-sibling",
    "I78",
    "A repository may have one runner; its organisation's other repository gets many at the same time.",
)
async def _repository_limit_by_sibling(scene: Scene) -> None:
    await _api_is_known(scene)
    await scene.limit_repository("acme/api", 1)
    jobs = [scene.queue(40.0, repository=f"acme/{name}") for name in ("site", "api") * 4]
    for job in jobs:
        await scene.executed(job, within=1800.0)


@_told(
    "repository-limit-set-late",
    "I78",
    "A repository is limited to one runner while runners of its organisation wait for jobs.",
)
async def _repository_limit_set_late(scene: Scene) -> None:
    await _api_is_known(scene)
    scene.at_github(assign_delay=(15.0, 15.0))
    jobs = [scene.queue(60.0, repository="acme/site") for _ in range(2)]
    await scene.until(lambda: sum(pod.jit is not None for pod in scene.living) == len(jobs))
    scene.at_github(assign_delay=(0.0, 0.0))
    await scene.limit_repository("acme/api", 1)
    jobs += [scene.queue(60.0, repository="acme/api") for _ in range(4)]
    for job in jobs:
        await scene.executed(job, within=3000.0)


@_told(
    "repository-limit-removed",
    "I78",
    "The only limit of a repository is removed while its jobs wait.",
)
async def _repository_limit_removed(scene: Scene) -> None:
    await _api_is_known(scene)
    await scene.limit_repository("acme/api", 0)
    jobs = [scene.queue(30.0, repository="acme/api") for _ in range(3)]
    await scene.sleep(60.0)
    await scene.limit_repository("acme/api", UNLIMITED)
    for job in jobs:
        await scene.executed(job, within=1800.0)


@_told(
    "repository-limit-restored",
    "I78",
    "A backup from before a repository's limit is restored, with jobs that wait under the key of then.",
)
async def _repository_limit_restored(scene: Scene) -> None:
    await scene.sleep(WARM)
    account = scene.story.installations[0].account.login
    await scene.limit(account, 0)
    jobs = [scene.queue(40.0, repository=f"acme/{name}") for name in ("site", "api") * 3]
    await scene.sleep(10.0)
    backup = Backup(scene.session)
    await backup.take()
    await scene.limit_repository("acme/api", 1)
    scene.note("a backup from before the repository's limit is restored")
    await backup.restore()
    for replica in scene.story.stage.replicas:
        replica.crash("it is started over the restored database")
    await scene.sleep(30.0)
    await scene.limit(account, UNLIMITED)
    for job in jobs:
        await scene.executed(job, within=1800.0)


# Jobs and webhooks.


@_told("short-job", "I68", "A job is done before any webhook tells that it began.")
async def _short_job(scene: Scene) -> None:
    await scene.sleep(WARM + 8.0)  # just after GitHub's list was compared
    scene.mute_sidecars()
    job = scene.queue(0.5)
    await scene.sleep(0.6)
    scene.at_github(hook_delay=(100.0, 100.0))
    await scene.executed(job)
    await scene.sleep(150.0)


@_told("late-queued", "I2", "A job's first webhook is overtaken by its last.")
async def _late_queued(scene: Scene) -> None:
    await scene.sleep(WARM)
    await _online_without_a_job(scene)
    await scene.sleep(10.0)
    scene.at_github(hook_delay=(120.0, 120.0))
    job = scene.queue(5.0)
    scene.at_github(hook_delay=(0.05, 0.5))
    await scene.executed(job)
    await scene.sleep(150.0)


@_told("failed-webhook", "I7", "A webhook fails once and is repeated with success.")
async def _failed_webhook(scene: Scene) -> None:
    await scene.sleep(WARM)
    job = scene.queue(20.0)
    scene.at_github(hook_failed=1.0)
    await scene.started(job)
    await scene.sleep(2.0)
    scene.at_github(hook_failed=0.0)
    await scene.sleep(1200.0)


@_told(
    "slow-installations",
    "I83",
    "GitHub takes seconds to show two new installations, and a known account's job comes meanwhile.",
)
async def _slow_installations(scene: Scene) -> None:
    await scene.sleep(WARM)
    accounts = scene.github.accounts
    scene.at_github(latency=(12.0, 12.0))
    for login in ("bob", "carol"):
        account = accounts.add_user(login)
        accounts.add_repository(account, "notes")
        accounts.install(scene.story.stage.app, account)
        await scene.sleep(1.0)  # one for each replica
    await scene.executed(scene.queue(20.0))
    scene.at_github(latency=(0.02, 0.3))


@_told("scope-404", "I66", "A suspended account answers 404 to everything while its job waits.")
async def _scope_404(scene: Scene) -> None:
    await scene.sleep(WARM)
    scene.at_github(assign_delay=(420.0, 420.0))
    job = scene.queue(20.0)
    await scene.until(lambda: any(pod.jit for pod in scene.living))
    await scene.sleep(10.0)
    scene.github.inject(FaultKind.NOT_FOUND, owner="acme", times=None, seconds=400.0)
    await scene.sleep(420.0)
    scene.at_github(assign_delay=(0.1, 1.5))
    await scene.executed(job)


@_told(
    "repository-deleted",
    "I66",
    "A runner dies over its job, and the repository is deleted while another of its jobs waits.",
)
async def _repository_deleted(scene: Scene) -> None:
    await scene.sleep(WARM)
    await scene.limit("acme", 1)
    begun = scene.queue(600.0)
    pod = await scene.started(begun)
    if pod is None:
        return
    waiting = scene.queue(20.0)
    await scene.sleep(10.0)
    scene.story.stage.pods.kill(pod, "killed", {Ending.GUEST_OOM_OR_KILL})
    await scene.sleep(5.0)
    ledger = scene.story.stage.ledger
    jobs = {job.id for job in scene.github.accounts.delete_repository(begun.repository)}
    scene.note(f"acme/site is deleted with jobs {sorted(jobs)}")
    ledger.deleted_jobs |= jobs | {waiting.id}
    ledger.jobs_of_deleted_repositories |= jobs | {waiting.id}
    await scene.sleep(400.0)


@_told(
    "repository-404",
    "I17",
    "GitHub answers 404 for one repository for minutes, whose job lost its runner. A runner for another"
    " repository of the account never comes online.",
)
async def _repository_404(scene: Scene) -> None:
    await scene.sleep(WARM)
    first = scene.queue(600.0, repository="acme/site")
    pod = await scene.started(first)
    if pod is None:
        return
    scene.github.inject(FaultKind.NOT_FOUND, path="/repos/acme/site/", times=None, seconds=700.0)
    scene.story.stage.pods.kill(pod, "killed", {Ending.GUEST_OOM_OR_KILL})
    await scene.sleep(120.0)
    scene.force_once(Fault.NEVER_REGISTERS)
    second = scene.queue(20.0, repository="acme/api")
    await scene.until(lambda: any(pod.jit for pod in scene.living))
    if not await scene.until(lambda: _begun(second), within=REPLACED_WITHIN):
        scene.broken(
            Promise.SERVED,
            f"job {second.id} was not served again within {REPLACED_WITHIN:.0f} s",
        )
    await scene.executed(second)


@_told(
    "repository-404-given-back",
    "I66",
    "A runner dies over its job, and GitHub takes the job back. For minutes it answers 404 for the"
    " repository, which it lists all the same.",
)
async def _repository_404_given_back(scene: Scene) -> None:
    await scene.sleep(WARM)
    job = scene.queue(30.0, repository="acme/site")
    pod = await scene.started(job)
    if pod is None or pod.jit is None:
        return
    await scene.sleep(2.0)
    scene.github.inject(FaultKind.NOT_FOUND, path="/repos/acme/site/", times=None, seconds=400.0)
    scene.story.stage.pods.kill(pod, "killed", {Ending.GUEST_OOM_OR_KILL})
    scene.github.runners.died(pod.jit.runner_id)
    scene.github.jobs.give_back(job, pod.jit.runner_id)
    await scene.executed(job, within=1800.0)


# Runners and Pods.


@_told("long-job", "I27", "A job takes long.")
async def _long_job(scene: Scene) -> None:
    await scene.sleep(WARM)
    await scene.executed(scene.queue(400.0))


@_told("finished-lingers", "I46", "A runner stays after its job, and its account may have one.")
async def _finished_lingers(scene: Scene) -> None:
    await scene.sleep(WARM)
    await scene.limit("umbrella", 1)
    scene.force_once(Fault.LINGERS)
    first = scene.queue(20.0, repository="umbrella/core")
    await scene.executed(first)
    await scene.executed(scene.queue(20.0, repository="umbrella/core"), within=1800.0)


@_told("gated-job", "I12", "A job waits for its approval.")
async def _gated_job(scene: Scene) -> None:
    await scene.sleep(WARM)
    job = scene.queue(20.0, gated=True)
    await scene.sleep(60.0)
    scene.github.jobs.approve(job)
    await scene.executed(job)


@_told(
    "approved-after-days",
    "I76",
    "A job is approved 60 hours after its creation, and its account has no place for it yet.",
)
async def _approved_after_days(scene: Scene) -> None:
    await scene.sleep(WARM)
    await scene.limit("umbrella", 1)
    first = scene.queue(240.0, repository="umbrella/core")
    await scene.started(first)
    job = scene.queue(20.0, repository="umbrella/core", gated=True)
    job.created_at -= timedelta(hours=60)
    await scene.sleep(10.0)
    scene.github.jobs.approve(job)
    await scene.executed(first)
    await scene.executed(job)


@_told(
    "cancelled-unapproved",
    "I12",
    "A job is cancelled before its approval, and the webhook is lost.",
)
async def _cancelled_unapproved(scene: Scene) -> None:
    await scene.sleep(WARM)
    job = scene.queue(20.0, gated=True)
    await scene.sleep(60.0)
    scene.at_github(hook_lost=1.0)
    scene.github.jobs.cancel(job)
    await scene.sleep(5.0)
    scene.at_github(hook_lost=0.0)


@_told("given-back", "I37", "GitHub takes a job back from a foreign runner, and sends no webhook.")
async def _given_back(scene: Scene) -> None:
    await scene.sleep(WARM)
    account = scene.story.installations[0].account
    runner = scene.github.runners.add_foreign(
        account,
        name="foreign-runner",
        group=scene.github.world.groups[account.id][0],
        labels=LINUX,
        ephemeral=True,
    )
    job = scene.queue(600.0)
    await scene.until(lambda: scene.github.truth.executing(runner.id))
    await scene.sleep(420.0)  # what was claimed for it has long been retired
    scene.github.runners.died(runner.id)
    scene.github.jobs.give_back(job, runner.id)
    await scene.executed(job, within=3000.0)


@_told(
    "described-cheaper",
    "I48",
    "A pool is described anew at half its cost while its old Pods wait for work.",
)
async def _described_cheaper(scene: Scene) -> None:
    await scene.sleep(WARM)
    await scene.limit("umbrella", Limits(vcpu_milli=3_000))
    scene.at_github(assign_delay=(20.0, 20.0))
    jobs = [scene.queue(60.0, repository="umbrella/core") for _ in range(3)]
    await scene.describe(replace(SMALL.pools[0], vcpu=1))
    for job in jobs:
        await scene.executed(job, within=1800.0)


@_told(
    "host-unfit",
    "I51",
    "All nodes but one say that they are not fit for runners; jobs that run there go on.",
)
async def _host_unfit(scene: Scene) -> None:
    await scene.sleep(WARM)
    first = scene.queue(200.0)
    await scene.started(first)
    nodes = list(scene.story.stage.fleet.nodes.values())
    for node in nodes[1:]:
        scene.story.stage.fleet.call_unfit(node, "its packet filter is off")
    await scene.sleep(2 * FIT_WITHIN)
    jobs = [scene.queue(30.0, repository="umbrella/core") for _ in range(6)]
    for job in (first, *jobs):
        await scene.executed(job, within=1800.0)


@_told(
    "host-starts-none",
    "I51",
    "A node is Ready and starts no Pod any more; Pods from before go on polling there.",
)
async def _host_starts_none(scene: Scene) -> None:
    await scene.sleep(WARM)
    fleet, clock = scene.story.stage.fleet, scene.story.stage.clock
    node = next(iter(fleet.nodes.values()))
    node.bad = True
    scene.note(f"{node.name} starts no Pod any more")
    stuck: list[SimPod] = []
    place = fleet.on_place

    def placed(pod: SimPod, on: Node) -> None:
        place(pod, on)
        if on is not node:
            return
        ended = [clock.monotonic() - each.removed_at for each in stuck if each.removed_at]
        known = [ago for ago in ended if AVOIDED_WITHIN < ago < REMEMBERED.total_seconds()]
        if len(known) >= REPEATED:
            scene.broken(
                Promise.FIT, f"{pod.name} is put on {on.name}, where {len(known)} never started"
            )
        stuck.append(pod)

    fleet.on_place = placed
    for _ in range(40):
        await scene.executed(scene.queue(5.0))
        await scene.sleep(20.0)


@_told("blackout", "I29", "GitHub and the cluster's API are away at once, for four minutes.")
async def _blackout(scene: Scene) -> None:
    await scene.sleep(WARM)
    jobs = [scene.queue(200.0), scene.queue(90.0, labels=MACOS)]
    for job in jobs:
        await scene.started(job)
    scene.simulation.faults.dark = True
    scene.story.stage.fleet.break_watches()
    await scene.sleep(30.0)
    jobs.append(scene.queue(20.0, repository="umbrella/core"))
    await scene.sleep(210.0)
    scene.simulation.faults.dark = False
    for job in jobs:
        await scene.executed(job)


@_told("leaves", "I39", "A runner exits with 0 before it got its job.")
async def _leaves(scene: Scene) -> None:
    await scene.sleep(WARM)
    scene.at_github(assign_delay=(5.0, 5.0))
    scene.force_once(Fault.LEAVES)
    await scene.executed(scene.queue(20.0))


#: Three without a wait, and then one after each of 30, 60, 120, 240 and 480 s.
_LEFT_RUNNERS: Final = 12


@_told("all-leave", "I69", "For twenty minutes every runner of a key exits before it got its job.")
async def _all_leave(scene: Scene) -> None:
    await scene.sleep(WARM)
    scene.at_github(assign_delay=(5.0, 5.0))
    leaving = [True]
    scene.force(Fault.LEAVES, lambda: bool(leaving))
    job = scene.queue(20.0)
    await scene.sleep(1200.0)
    leaving.clear()
    if (minted := len(scene.github.truth.mints)) > _LEFT_RUNNERS:
        scene.broken(Promise.ENOUGH, f"{minted} runners were given out for job {job.id}")
    await scene.executed(job, within=1800.0)


@_told("macos-never-registers", "S1", "A runner of one container never comes online.")
async def _macos_never_registers(scene: Scene) -> None:
    await scene.sleep(WARM)
    scene.force_once(Fault.NEVER_REGISTERS)
    await scene.executed(scene.queue(20.0, labels=MACOS))


@_told("empty-list", "I29", "The fleet's list is empty, once, while jobs execute.")
async def _empty_list(scene: Scene) -> None:
    await scene.sleep(WARM)
    jobs = [scene.queue(90.0), scene.queue(90.0, repository="umbrella/core")]
    for job in jobs:
        await scene.started(job)
    scene.force_once(Fault.LIST_EMPTY)
    for job in jobs:
        await scene.executed(job)


@_told("crash-after-delete", "I30", "The leader dies with the reaping of an ended Pod.")
async def _crash_after_delete(scene: Scene) -> None:
    await scene.sleep(WARM)
    job = scene.queue(20.0)

    def crash(turn: Turn) -> None:
        machine = turn.actor
        scene.at_turn(
            lambda later: later.actor is machine,
            lambda later: _crash(scene, later),
        )

    await scene.started(job)
    scene.at_turn(lambda turn: turn.what.startswith("fleet.reap "), crash)
    await scene.executed(job)
    await scene.sleep(30.0)


def _crash(scene: Scene, turn: Turn) -> None:
    replica = scene.replica_of(turn)
    if replica is not None:
        replica.crash("right after a deletion")


# Ends and their logs.

#: An account may have one runner: its next job begins within this much of the last one's end.
_BEGINS_WITHIN: Final = 20.0


def _keep_log_away(scene: Scene, pod: SimPod, seconds: float) -> None:
    pod.log_away_until = scene.story.stage.clock.monotonic() + seconds
    scene.note(f"the log of {pod.name} cannot be read for {seconds:.0f} s")


@_told(
    "log-away",
    "I79",
    "A runner crashes, and its node does not answer for a minute; its account may have one runner.",
)
async def _log_away(scene: Scene) -> None:
    await scene.sleep(WARM)
    await scene.limit("umbrella", 1)
    first = scene.queue(20.0, repository="umbrella/core")
    pod = await scene.started(first)
    if pod is None:
        return
    _keep_log_away(scene, pod, 80.0)
    second = scene.queue(20.0, repository="umbrella/core")
    await scene.sleep(10.0)
    scene.story.stage.pods.kill(pod, "crash", {Ending.CRASH}, code=134)
    if not await scene.until(lambda: _begun(second), within=_BEGINS_WITHIN):
        scene.broken(
            Promise.PROMPT,
            f"job {second.id} waits though {pod.name}, the only runner of its account, has ended",
        )
    await scene.executed(second)
    await scene.sleep(150.0)


#: The steps from an end to its Pod's deletion: a leader may die before each.
_STEPS: Final = (
    "store.conclude_runners",
    "store.record_actions",
    "store.logs_wanted",
    "fleet.log ",
    "store.keep_log",
    "store.end_post_mortem",
    "fleet.reap ",
)


@_told(
    "crash-around-a-log",
    "I79",
    "Runners crash one after the other; each time the leader dies a step later on the way to the log.",
)
async def _crash_around_a_log(scene: Scene) -> None:
    await scene.sleep(WARM)
    for step in _STEPS:
        pod = await scene.started(scene.queue(60.0))
        if pod is None:
            return
        await scene.sleep(5.0)  # GitHub's webhook says that its job has begun
        _keep_log_away(scene, pod, 8.0)
        died: list[str] = []

        def crash(turn: Turn, died: list[str] = died) -> None:
            if (replica := scene.replica_of(turn)) is not None:
                replica.crash(f"before {turn.what}")
                died.append(replica.name)

        scene.story.stage.pods.kill(pod, "crash", {Ending.CRASH}, code=134)
        scene.at_turn(lambda turn, step=step: turn.what.startswith(step), crash)  # type: ignore[misc]
        await scene.until(lambda died=died: died, within=60.0)  # type: ignore[misc]
        await scene.until(lambda pod=pod: pod.removed, within=200.0)  # type: ignore[misc]


@_told(
    "two-leaders-one-log",
    "S4",
    "Two replicas lead at once, and one stalls over the log that the other reads meanwhile.",
)
async def _two_leaders_one_log(scene: Scene) -> None:
    await scene.sleep(WARM)
    scene.story.stage.leases.doubled = True
    await scene.sleep(30.0)
    pod = await scene.started(scene.queue(60.0))
    if pod is None:
        return
    await scene.sleep(5.0)
    _keep_log_away(scene, pod, 12.0)
    scene.story.stage.pods.kill(pod, "crash", {Ending.CRASH}, code=134)

    def stall(turn: Turn) -> None:
        replica = scene.replica_of(turn)
        assert replica is not None
        machine = replica.machine
        machine.stalled = True
        scene.note(f"{replica.name} stalls over the log of {pod.name}")
        scene.simulation._loop.call_later(20.0, lambda: setattr(machine, "stalled", False))  # noqa: SLF001

    def reads(turn: Turn) -> bool:
        away = scene.story.stage.clock.monotonic() < pod.log_away_until
        return turn.what == f"fleet.log {pod.name}" and not away

    scene.at_turn(reads, stall)
    await scene.sleep(60.0)
    scene.story.stage.leases.doubled = False


@_told(
    "node-of-many",
    "I80",
    "The node of all runners of an account dies; the account may have no more than these.",
)
async def _node_of_many(scene: Scene) -> None:
    await scene.sleep(WARM)
    fleet = scene.story.stage.fleet
    for node in list(fleet.nodes.values())[1:]:
        node.cordoned = True
    await scene.limit("umbrella", 4)
    jobs = [scene.queue(300.0, repository="umbrella/core") for _ in range(4)]
    pods = [await scene.started(job) for job in jobs]
    for node in fleet.nodes.values():
        node.cordoned = False
    dead = [pod for pod in pods if pod is not None and pod.node == pods[0].node]  # type: ignore[union-attr]
    more = [scene.queue(20.0, repository="umbrella/core") for _ in dead]
    await scene.sleep(60.0)  # for Pods elsewhere to be warm
    if not dead or dead[0].node is None:
        return
    scene.note(f"{dead[0].node} dies with {len(dead)} runners")
    fleet.nodes.pop(dead[0].node)
    for pod in [each for each in fleet.there() if each.node == dead[0].node]:
        scene.story.stage.pods.kill(
            pod,
            "node lost",
            {Ending.NODE_LOST},
            reason="ContainerStatusUnknown",
            pod_reason="NodeLost",
        )
    if not await scene.until(lambda: all(map(_begun, more)), within=3 * _BEGINS_WITHIN):
        scene.broken(Promise.PROMPT, "dead runners hold the places of those that could begin")
    for job in more:
        await scene.executed(job)
    await scene.sleep(150.0)


@_told("none-registers", "I74", "For eight minutes no runner comes online.")
async def _none_registers(scene: Scene) -> None:
    await scene.sleep(WARM)
    until = scene.story.stage.clock.now() + timedelta(minutes=8)
    scene.force(Fault.NEVER_REGISTERS, lambda: scene.story.stage.clock.now() < until)
    jobs = [scene.queue(20.0), scene.queue(20.0)]
    await scene.sleep(480.0)
    for job in jobs:
        await scene.executed(job, within=1800.0)


# Clocks.

#: As many as all pools together keep idle.
_WARM_PODS: Final = sum(pool.min_idle for pool in SMALL.pools)


async def _none_is_retired(scene: Scene, during: Callable[[], Awaitable[None]]) -> None:
    """Breaks a promise if a Pod that asks for work is retired meanwhile."""
    await scene.sleep(WARM)
    await scene.until(lambda: len(scene.living) >= _WARM_PODS)
    await scene.sleep(150.0)
    warm = [pod for pod in scene.living if pod.jit is None]
    await during()
    if retired := [pod.name for pod in warm if not pod.alive]:
        scene.broken(Promise.SERVED, f"{', '.join(retired)} asked for work and were retired")
    await scene.executed(scene.queue(20.0))


@_told(
    "replica-clock-ahead",
    "I82",
    "The leader's clock is 100 s ahead of the other replica's; Pods ask both for work, and there is"
    " none.",
)
async def _replica_clock_ahead(scene: Scene) -> None:
    leader, other = scene.story.stage.replicas
    leader.own_clock.ahead = 100.0
    await scene.sleep(2.0)
    other.crash("so that the first leads")
    await _none_is_retired(scene, lambda: scene.sleep(300.0))


@_told(
    "database-clock-jumps",
    "I82",
    "The database fails over, eight times, to a server whose clock is 100 s ahead; Pods ask for work,"
    " and there is none.",
)
async def _database_clock_jumps(scene: Scene) -> None:
    async def fail_over() -> None:
        for _ in range(8):
            scene.story.stage.database_clock.ahead += 100.0
            await scene.sleep(200.0)

    await _none_is_retired(scene, fail_over)


@_told(
    "database-failover",
    "I72",
    "The database fails over and is away for 40 s; then jobs come for Pods that have waited all the"
    " while.",
)
async def _database_failover(scene: Scene) -> None:
    await scene.sleep(WARM)
    await scene.until(lambda: len(scene.living) >= _WARM_PODS)
    await scene.sleep(30.0)
    await scene.story.disasters.fail_over(40.0)
    jobs = [scene.queue(20.0), scene.queue(20.0, repository="umbrella/core")]
    for job in jobs:
        await scene.executed(job)


@_told(
    "deliveries-taken-unapplied",
    "I72",
    "The database fails for a moment when a replica has taken the webhook of a queued job.",
)
async def _deliveries_taken_unapplied(scene: Scene) -> None:
    await scene.sleep(WARM)
    await scene.until(lambda: len(scene.living) >= _WARM_PODS)
    await scene.sleep(30.0)
    asked: list[str] = []
    scene.simulation.watchers.append(lambda turn: asked.append(turn.what))
    left = [True]
    scene.force(
        Fault.STORE_AWAY,
        lambda: asked[-1] == "store.intake_context" and bool(left) and left.pop(),
    )
    await scene.executed(scene.queue(20.0))


@_told(
    "failover-during-mint",
    "I72",
    "The database fails over while GitHub answers a mint; the only warm Pod has it.",
)
async def _failover_during_mint(scene: Scene) -> None:
    await scene.sleep(WARM)
    await scene.until(lambda: len(scene.living) >= _WARM_PODS)
    await scene.sleep(30.0)
    scene.at_github(latency=(3.0, 3.0))
    job = scene.queue(20.0)
    while not await scene.session.fetch("SELECT FROM runners WHERE state = 'claimed'"):
        await scene.sleep(0.1)
    await scene.story.disasters.fail_over(10.0)
    if not await scene.until(lambda: _begun(job), within=SERVED_AFTER_FAILOVER):
        scene.broken(
            Promise.SERVED, f"job {job.id} was not served within {SERVED_AFTER_FAILOVER:.0f} s"
        )
    await scene.executed(job)


@_told(
    "repository-deleted-under-a-runner",
    "I66",
    "A repository is deleted while a runner that is registered there hangs before its first word.",
)
async def _repository_deleted_under_a_runner(scene: Scene) -> None:
    await scene.sleep(WARM)
    scene.force_once(Fault.NEVER_REGISTERS)
    job = scene.queue(20.0, repository="ana/dotfiles", labels=MACOS)
    await scene.until(lambda: any(pod.jit for pod in scene.living))
    await scene.sleep(5.0)
    _delete_repository_of(job, scene)
    await scene.sleep(400.0)


@_told(
    "repository-deleted-in-the-queue",
    "I66",
    "A repository is deleted while its only job waits for a place.",
)
async def _repository_deleted_in_the_queue(scene: Scene) -> None:
    await scene.sleep(WARM)
    await scene.limit("ana", 0)
    job = scene.queue(20.0, repository="ana/dotfiles", labels=MACOS)
    await scene.sleep(30.0)
    _delete_repository_of(job, scene)
    await scene.sleep(600.0)


@_told(
    "repository-deleted-stopped",
    "I66",
    "A runner that is registered at a repository is stopped in the middle of its job, and the"
    " repository is deleted.",
)
async def _repository_deleted_stopped(scene: Scene) -> None:
    await scene.sleep(WARM)
    scene.force_once(Fault.HANG)
    job = scene.queue(60.0, repository="ana/dotfiles", labels=MACOS)
    pod = await scene.started(job)
    await scene.until(lambda: pod is None or scene.executes(pod) is None)
    _delete_repository_of(job, scene)
    await scene.until(lambda: pod is None or pod.removed, within=4000.0)


def _delete_repository_of(job: Job, scene: Scene) -> None:
    ledger = scene.story.stage.ledger
    deleted = ledger.delete(scene.github.accounts.delete_repository(job.repository))
    ledger.jobs_of_deleted_repositories |= deleted
    scene.note(f"{job.repository.full_name} is deleted")


# Webhooks and wake-ups that are lost.


@_told("queued-webhook-lost", "I8", "The webhook that queues a job is never sent.")
async def _queued_webhook_lost(scene: Scene) -> None:
    await scene.sleep(WARM)
    await scene.executed(scene.queue(5.0))
    scene.at_github(hook_lost=1.0)
    job = scene.queue(20.0)
    await scene.sleep(5.0)
    scene.at_github(hook_lost=0.0)
    await scene.executed(job, within=1800.0)


@_told("completion-webhook-lost", "I6", "The webhook that completes a job is never sent.")
async def _completion_webhook_lost(scene: Scene) -> None:
    await scene.sleep(WARM)
    job = scene.queue(30.0)
    await scene.started(job)
    await scene.sleep(5.0)
    scene.at_github(hook_lost=1.0)
    await scene.executed(job)
    await scene.sleep(5.0)
    scene.at_github(hook_lost=0.0)


@_told("wakeups-lost", "I28", "No wake-up arrives; the loops look by themselves.")
async def _wakeups_lost(scene: Scene) -> None:
    scene.force(Fault.WAKEUP_LOST, lambda: True)
    await scene.sleep(WARM)
    for repository in ("acme/site", "umbrella/core", "acme/site"):
        await scene.executed(scene.queue(10.0, repository=repository))


@_told("cancelled-before-it-began", "I40", "A job is cancelled when its runner is online.")
async def _cancelled_before_it_began(scene: Scene) -> None:
    await scene.sleep(WARM)
    await _online_without_a_job(scene)
    await scene.sleep(60.0)


@_told("vanished-pods", "I29", "Another hand forces a Pod at work and a waiting one away.")
async def _vanished_pods(scene: Scene) -> None:
    await scene.sleep(WARM)
    job = scene.queue(200.0)
    pod = await scene.started(job)
    waiting = next(each for each in scene.living if each.jit is None)
    for each in (pod, waiting):
        if each is not None:
            scene.story.stage.pods.vanish(each, "forced away by another hand")
    await scene.executed(job, within=1800.0)


# Accounts that remove the App.

#: The round after a forced retirement deletes its Pod.
_FORCED_WITHIN: Final = 60.0


async def _stopped_and_uninstalled(scene: Scene) -> SimPod | None:
    """umbrella's runner is stopped in the middle of its job (`kill -STOP`), and the App removed."""
    await scene.sleep(WARM)
    scene.force_once(Fault.HANG)
    job = scene.queue(60.0, repository="umbrella/core")
    pod = await scene.started(job)
    await scene.until(lambda: pod is None or scene.executes(pod) is None)
    scene.note("umbrella removes the App")
    scene.story.stage.ledger.uninstalled.add("umbrella")
    [installation] = [i for i in scene.story.installations if i.account.login == "umbrella"]
    scene.github.accounts.uninstall(installation)
    await scene.sleep(30.0)
    return pod


@_told(
    "uninstalled-stopped",
    "I81",
    "A runner is stopped in the middle of its job, and its account removes the App.",
)
async def _uninstalled_stopped(scene: Scene) -> None:
    pod = await _stopped_and_uninstalled(scene)
    await scene.until(lambda: pod is None or pod.removed, within=4000.0)


@_told(
    "ended-by-force",
    "I36",
    "The same, and an operator ends the runner by force.",
)
async def _ended_by_force(scene: Scene) -> None:
    pod = await _stopped_and_uninstalled(scene)
    if pod is None:
        return
    await retire_by_hand(scene.operator, pod.name, why="it hangs", force=True)
    if not await scene.until(lambda: pod.removed, within=_FORCED_WITHIN):
        scene.broken(
            Promise.NO_LEAK, f"{pod.name} was ended by force and lives {_FORCED_WITHIN:.0f} s later"
        )


@_told("suspended-long-job", "I66", "An account is suspended while its long job executes.")
async def _suspended_long_job(scene: Scene) -> None:
    await scene.sleep(WARM)
    job = scene.queue(2400.0, repository="umbrella/core")
    await scene.started(job)
    [installation] = [i for i in scene.story.installations if i.account.login == "umbrella"]
    scene.github.accounts.suspend(installation)
    await scene.sleep(2000.0)
    scene.github.accounts.unsuspend(installation)
    await scene.executed(job)


@_told(
    "removed-for-a-moment",
    "I29",
    "For a minute GitHub does not know the installation of an account whose long job executes.",
)
async def _removed_for_a_moment(scene: Scene) -> None:
    await scene.sleep(WARM)
    job = scene.queue(2400.0, repository="umbrella/core")
    await scene.started(job)
    await scene.sleep(960.0)  # just after all installations were read
    [installation] = [i for i in scene.story.installations if i.account.login == "umbrella"]
    until = scene.story.stage.clock.monotonic() + 60.0

    def forget(request: Request, reply: Reply) -> Reply:
        if scene.story.stage.clock.monotonic() > until:
            return reply
        if isinstance(reply.body, list):
            kept = [each for each in reply.body if each["id"] != installation.id]
            return Reply(200, kept, reply.headers)
        return Reply(404, {"message": "Not Found"}, reply.headers)

    def asked(request: Request) -> bool:
        return request.path in ("/app/installations", f"/app/installations/{installation.id}")

    scene.answer(asked, forget)
    scene.note("GitHub forgets umbrella's installation")
    scene.github.accounts.accept_permissions(installation, dict(installation.permissions))
    await scene.executed(job, within=2400.0)


#: The runner's next version, in an image that no pool uses yet.
_NEXT_VERSION: Final = "2.337.0"
#: GitHub is asked about a version that was just seen, or just became due, within a minute.
_ASKED_WITHIN: Final = 90.0
#: A job is served within this after new Pods are there.
_SERVED_AFTER_UPGRADE: Final = 120.0


async def _served_by(scene: Scene, jobs: list[Job]) -> None:
    """The pool gets an image with the next version, and its jobs run."""
    scene.story.stage.fleet.version = _NEXT_VERSION
    await scene.describe(replace(SMALL.pools[0], vcpu=1))
    begun = await scene.until(lambda: all(map(_begun, jobs)), within=_SERVED_AFTER_UPGRADE)
    if not begun:
        scene.broken(
            Promise.SERVED,
            f"jobs wait {_SERVED_AFTER_UPGRADE:.0f} s after their pool was given another version",
        )
    for job in jobs:
        await scene.executed(job)


@_told(
    "version-refused",
    "runner#4305",
    "GitHub announces the end of the Pods' runner version; jobs that come after it wait for new Pods.",
)
async def _version_refused(scene: Scene) -> None:
    world = scene.github.world
    version = scene.story.stage.fleet.version
    ends_at = world.later(300.0)
    world.version_dates[version] = VersionDates(runtime_deprecates_at=ends_at)
    await scene.sleep(WARM)
    first = scene.queue(10.0)
    await scene.executed(first)
    known = await scene.until(lambda: scene.github.world.version_answers, within=_ASKED_WITHIN)
    if not known:
        scene.broken(Promise.ACCEPTED, "GitHub was not asked about the version of the Pods")
    await scene.until(lambda: scene.github.world.time > ends_at + timedelta(seconds=90))
    scene.note(f"GitHub refuses runners of version {version}")
    jobs = [scene.queue(20.0) for _ in range(3)]
    await scene.sleep(120.0)
    await _served_by(scene, jobs)


#: One burst is minted before its first runner is refused.
_REFUSED_RUNNERS: Final = 3


@_told(
    "version-refused-unannounced",
    "runner#3366",
    "GitHub refuses the Pods' runner version without having announced it; its runners exit with 7.",
)
async def _version_refused_unannounced(scene: Scene) -> None:
    await scene.sleep(WARM)
    await scene.executed(scene.queue(10.0))
    version = scene.story.stage.fleet.version
    scene.github.world.deprecated_versions.add(version)
    scene.note(f"GitHub refuses runners of version {version}")
    minted = len(scene.github.truth.mints)
    jobs = [scene.queue(20.0) for _ in range(_REFUSED_RUNNERS)]
    await scene.sleep(600.0)
    wasted = len(scene.github.truth.mints) - minted
    if wasted > _REFUSED_RUNNERS:
        scene.broken(
            Promise.ACCEPTED,
            f"{wasted} JITs were minted within ten minutes of the first refusal of {version}",
        )
    await _served_by(scene, jobs)


SCENARIOS: Final[dict[str, Scenario]] = {each.name: each for each in _TOLD}
