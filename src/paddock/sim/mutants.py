"""The bugs that others had, put back one at a time.

A simulator that finds nothing proves nothing: perhaps there is nothing, perhaps it does not look. Each
mutant here is a small change to the product's own code, taken from an incident or an invariant, and
the checkers must find the promise it breaks. Where a constraint of the database makes the old bug
impossible, the mutant takes the constraint away too: it is the promise that is on trial, not the
schema.

All of it is undone when the block ends; nothing outside of this process is changed, and of the database
only what the same block puts back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import msgspec

from paddock.dispatch import dispatcher as dispatching
from paddock.dispatch.debts import DebtCollector
from paddock.dispatch.dispatcher import Dispatcher
from paddock.dispatch.minting import Minter
from paddock.domain import endings, redelivery, rules
from paddock.domain.endings import Ending
from paddock.domain.evidence import Container, Subject
from paddock.domain.github import Absent, MintedJit, Removal
from paddock.domain.handover import Heard, Leave, NothingYet
from paddock.domain.limits import NOTHING
from paddock.domain.names import runner_name
from paddock.domain.pods import Pod, PodIdentity, PodList
from paddock.domain.readings import alive
from paddock.domain.rule import Action, Rule
from paddock.domain.runners import Claim, Runner, WaitingPod
from paddock.domain.states import RunnerState
from paddock.domain.thresholds import Thresholds
from paddock.forensics.concluding import Conclusion
from paddock.github.client import GitHubClient
from paddock.pools.hosts import Hosts
from paddock.pools.reconciler import Reconciler
from paddock.recovery.adopt import Adoption
from paddock.recovery.gather import Look
from paddock.recovery.jobs import JobRecovery
from paddock.recovery.loop import Recovery
from paddock.recovery.observe import PodView
from paddock.recovery.retire import Retirement
from paddock.recovery.runners import RunnerRecovery
from paddock.sim.engine.database import Session
from paddock.store import matching
from paddock.store.sql import queries

Patch = Callable[[ExitStack, Session], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    name: str
    #: The incident, or the invariant, that it comes from.
    source: str
    does: str
    #: Scenarios made to expose it. It is tried on them first, then on all others, then on seeds.
    exposed_by: tuple[str, ...]
    patch: Patch

    @contextmanager
    def applied(self, session: Session) -> Iterator[None]:
        with ExitStack() as undo:
            self.patch(undo, session)
            yield


_MADE: list[Mutant] = []


def _mutant(name: str, source: str, does: str, *exposed_by: str) -> Callable[[Patch], Patch]:
    def make(patch: Patch) -> Patch:
        _MADE.append(
            Mutant(name=name, source=source, does=does, exposed_by=exposed_by, patch=patch)
        )
        return patch

    return make


# How code is changed, and changed back.


@contextmanager
def _swapped(owner: Any, name: str, value: object) -> Iterator[None]:
    was = vars(owner)[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, was)


@contextmanager
def _item(table: dict[Any, Any], name: Any, value: object) -> Iterator[None]:
    was = table[name]
    table[name] = value
    try:
        yield
    finally:
        table[name] = was


def _statement(noun: str, name: str, *changes: tuple[str, str]) -> AbstractContextManager[None]:
    """A named statement with parts of its text changed."""
    loaded = queries(noun)
    text = loaded[name]
    for old, new in changes:
        if old not in text:
            raise LookupError(f"{noun}.sql: {name} has no {old!r} to change; see its mutant")
        text = text.replace(old, new)
    return _item(loaded, name, text)


def _table(
    subject: Subject, change: Callable[[tuple[Rule[Any], ...]], Sequence[Rule[Any]]]
) -> AbstractContextManager[None]:
    """The rules for one subject, changed."""
    of = rules._OF  # noqa: SLF001 - what `decide` reads
    return _item(of, subject, tuple(change(of[subject])))


def _without(name: str) -> Callable[[tuple[Rule[Any], ...]], Sequence[Rule[Any]]]:
    def change(table: tuple[Rule[Any], ...]) -> Sequence[Rule[Any]]:
        left = [rule for rule in table if rule.name != name]
        if len(left) == len(table):
            raise LookupError(f"there is no rule {name} to leave out; see its mutant")
        return left

    return change


def _before(name: str, rule: Rule[Any]) -> Callable[[tuple[Rule[Any], ...]], Sequence[Rule[Any]]]:
    def change(table: tuple[Rule[Any], ...]) -> Sequence[Rule[Any]]:
        at = [each.name for each in table].index(name)
        return (*table[:at], rule, *table[at:])

    return change


@contextmanager
def _changed_schema(session: Session, do: Sequence[str], undo: Sequence[str]) -> Iterator[None]:
    _execute(session, do)
    try:
        yield
    finally:
        _execute(session, undo)


def _execute(session: Session, statements: Sequence[str]) -> None:
    async def each() -> None:
        for statement in statements:
            await session.execute(statement)

    session.run(each())


#: A release takes back whatever claim it finds.
_ANY_CLAIM: Final = (
    (
        "AND state = 'claimed'",
        "AND state IN ('claimed', 'armed', 'running', 'busy')",
    ),
    (
        "mint_deadline = NULL",
        "mint_deadline = NULL, github_id = NULL, job_id = NULL, jit = NULL, jit_key = NULL",
    ),
)


def _claims_may_be_released(session: Session) -> AbstractContextManager[None]:
    steps = "('armed', 'idle'), ('running', 'idle'), ('busy', 'idle')"
    return _changed_schema(
        session,
        [f"INSERT INTO runner_transitions VALUES {steps}"],  # noqa: S608
        [f"DELETE FROM runner_transitions WHERE (before, after) IN ({steps})"],  # noqa: S608
    )


# Sweeps.

_SWEPT_AFTER: Final = timedelta(seconds=60)


def _sweeping(undo: ExitStack) -> None:
    """Once a round: stamped, without a claim, and old enough is taken for leaked."""
    slow_round = Recovery._slow_round  # noqa: SLF001

    async def swept(self: Any, look: Look) -> None:
        claimed = {runner.pod_name for runner in look.runners if runner.key is not None}
        for name, pod in sorted(look.pods.items()):
            old = look.now - pod.created_at >= _SWEPT_AFTER
            if pod.owner is not None and name not in claimed and old and not pod.phase.terminal:
                await self._conclusion.reap(pod)
        await slow_round(self, look)

    undo.enter_context(_swapped(Recovery, "_slow_round", swept))


@_mutant(
    "sweep-without-started-guard",
    "S1",
    "Stamped Pods without a claim are deleted, whether their runner started or not.",
    "claim-released",
    "restored-backup",
)
def _sweep_without_guard(undo: ExitStack, _session: Session) -> None:
    _sweeping(undo)


@_mutant(
    "started-guard-on-single",
    "S1",
    "A started container protects its Pod also where one container polls and runs.",
    "macos-never-registers",
)
def _guard_on_single(undo: ExitStack, _session: Session) -> None:
    guard: Rule[Any] = Rule(
        name="started-guard",
        subject=Subject.RUNNER,
        seen="Its container has started",
        done="Leave it alone",
        action=Action.PROTECT,
        holds=lambda e, _: (
            e.shape == "single" and alive(e.pod) and e.pod.runner is Container.STARTED
        ),
    )
    undo.enter_context(_table(Subject.RUNNER, _before("unrecognised", guard)))


@_mutant(
    "claim-released-mid-job",
    "S1",
    "46 s after the acknowledgement a late error releases the claim; then a sweep finds its Pod.",
    "long-job",
)
def _released_mid_job(undo: ExitStack, session: Session) -> None:
    _sweeping(undo)
    undo.enter_context(_claims_may_be_released(session))
    undo.enter_context(_statement("runners", "release", *_ANY_CLAIM))
    acknowledge = Dispatcher.acknowledge
    later: set[asyncio.Task[None]] = set()

    async def release(self: Any, runner: Runner) -> None:
        await self._clock.sleep(46.0)
        await self._store.release_runner(
            runner.id,
            generation=runner.generation,
            why="something failed after the JIT was delivered",
            no_record_because=None,
        )

    async def acknowledged(self: Any, pod: PodIdentity, delivery: UUID) -> bool | Leave:
        answer = await acknowledge(self, pod, delivery)
        heard = await self._store.hear_pod(pod.pod_name, pod_uid=pod.pod_uid)
        if answer is True and heard is not None:
            task = asyncio.create_task(release(self, heard.runner))
            later.add(task)
            task.add_done_callback(later.discard)
        return answer

    undo.enter_context(_swapped(Dispatcher, "acknowledge", acknowledged))


# Serving.


@_mutant(
    "serve-again-without-asking",
    "S2",
    "A runner that ended without a reported job is replaced at once; GitHub is not asked for its job.",
    "short-job",
)
def _serve_without_asking(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(_swapped(Conclusion, "_echoes_until", lambda *_: None))


@_mutant(
    "age-ends-running",
    "I27",
    "A runner that has been running or busy for two minutes is taken for dead.",
    "long-job",
)
def _age_ends_running(undo: ExitStack, _session: Session) -> None:
    too_old: Rule[Any] = Rule(
        name="too-old",
        subject=Subject.RUNNER,
        seen="It has been running for two minutes",
        done="Conclude it",
        action=Action.CONCLUDE,
        holds=lambda e, _: e.state in (RunnerState.RUNNING, RunnerState.BUSY) and e.since >= 120,
    )
    undo.enter_context(_table(Subject.RUNNER, _before("pod-ended", too_old)))


@_mutant(
    "capacity-freed-job-unserved",
    "I31",
    "A runner that ended frees its place, and counts as supply for its job for ever.",
    "leaves",
)
def _job_unserved(undo: ExitStack, _session: Session) -> None:
    def for_ever(self: Any, *_: object) -> datetime:
        now: datetime = self._clock.now()
        return now + timedelta(days=30)

    async def nothing(self: Any, _echoes: object) -> None: ...

    undo.enter_context(_swapped(Conclusion, "_echoes_until", for_ever))
    undo.enter_context(_swapped(JobRecovery, "_end", nothing))


@_mutant(
    "dispatched-counted-again",
    "I73",
    "Jobs that a runner is on its way to count as demand until they have begun.",
    "one-job",
)
def _counted_again(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(
        _statement(
            "matching",
            "demand",
            ("OFFSET coalesce(h.supply, 0) + coalesce(e.supply, 0)", "OFFSET 0"),
        )
    )


@_mutant(
    "suspects-without-bound",
    "I74",
    "Every late runner is replaced, however many are late.",
    "nobody-registers",
)
def _suspects_without_bound(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(_table(Subject.RUNNER, _without("too-many-suspects")))


@_mutant(
    "stale-claim-on-single",
    "I70",
    "A stale claim is released also where one container polls and runs, whatever it is at.",
    "restored-claim",
)
def _stale_claim_on_single(undo: ExitStack, _session: Session) -> None:
    def change(table: tuple[Rule[Any], ...]) -> Sequence[Rule[Any]]:
        return [
            replace(rule, holds=_stale) if rule.name == "stale-claim" else rule
            for rule in _without("claim-in-doubt")(table)
        ]

    def _stale(e: Any, t: Thresholds) -> bool:
        claimed: bool = e.state is RunnerState.CLAIMED and e.mint_overdue
        return claimed and e.since >= t.stale_claim

    undo.enter_context(_table(Subject.RUNNER, change))


@_mutant(
    "unapproved-never-asked",
    "I12",
    "A job that waits for its approval is left to webhooks.",
    "cancelled-unapproved",
)
def _unapproved_never_asked(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(_table(Subject.JOB, _without("still-waiting")))


@_mutant(
    "old-pods-at-new-cost",
    "I48",
    "Pods of a pool that was described anew count for what a new one would cost.",
    "described-cheaper",
)
def _old_pods_at_new_cost(undo: ExitStack, _session: Session) -> None:
    decide = matching._decide  # noqa: SLF001

    def cheaply(pods: Sequence[WaitingPod], *rest: Any) -> Any:
        return decide([msgspec.structs.replace(pod, cost=NOTHING) for pod in pods], *rest)

    undo.enter_context(_swapped(matching, "_decide", cheaply))


@_mutant(
    "unfit-hosts-taken",
    "I51",
    "New Pods are put on hosts that are unfit by their own word.",
    "host-unfit",
)
def _unfit_hosts_taken(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(_swapped(Hosts, "shunned", lambda _self: ()))


# Stamps.


@_mutant(
    "stamp-before-jit",
    "S5",
    "The owner's label is put on as soon as a Pod is claimed.",
    "slow-mint",
)
def _stamp_before_jit(undo: ExitStack, _session: Session) -> None:
    def at_once(self: Any, runner: Runner, pod: Pod) -> bool:
        if pod.owner is not None or runner.account is None or pod.uid in self._stamped:
            return False
        self._stamped[pod.uid] = None
        return True

    undo.enter_context(_swapped(Recovery, "_to_be_stamped", at_once))


@_mutant(
    "stamp-failure-is-fatal",
    "S5",
    "A Pod whose label could not be put on is given up.",
    "no-stamps",
)
def _stamp_is_fatal(undo: ExitStack, _session: Session) -> None:
    ends = Recovery.ends

    async def giving_up(self: Any) -> None:
        tried = dict(self._stamped)
        await ends(self)
        look = await self._gatherer.glance()
        for runner in look.runners:
            pod = look.pod_of(runner)
            if pod is None or pod.uid not in self._stamped or pod.uid in tried:
                continue
            shown = [each for each in (await self._view._fleet.list()).pods if each.uid == pod.uid]  # noqa: SLF001
            if shown and shown[0].owner is None:
                await self._store.fence_runner(
                    runner.id,
                    generation=runner.generation,
                    state=runner.state,
                    why="its label could not be put on",
                )

    undo.enter_context(_swapped(Recovery, "ends", giving_up))


# What is not there.


@_mutant(
    "empty-list-is-all-gone",
    "I29",
    "A list without Pods is believed, and one read is enough to be absent.",
    "empty-list",
)
def _empty_is_gone(undo: ExitStack, _session: Session) -> None:
    async def believed(self: Any, _found: PodList) -> bool:
        return False

    thresholds = RunnerRecovery._thresholds  # noqa: SLF001

    def hasty(self: Any, runner: Runner, look: Look) -> Thresholds:
        return replace(thresholds(self, runner, look), absent_reads=1)

    undo.enter_context(_swapped(PodView, "_suspicious", believed))
    undo.enter_context(_swapped(RunnerRecovery, "_thresholds", hasty))


@_mutant(
    "scope-404-is-absence",
    "I66",
    "A 404 is believed without a control read of its scope.",
    "scope-404",
)
def _404_is_absence(undo: ExitStack, _session: Session) -> None:
    async def believed(self: Any, who: Any, request: Any, _control: Any) -> Any:
        received = await self._caller.ask(who, request, answers={404})
        return received if received.answer.ok else Absent(proof="404")

    undo.enter_context(_swapped(GitHubClient, "_answered", believed))


# Deleting.


class _AnyUid(str):
    """What a deletion without a precondition asks for."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return 0


@_mutant(
    "delete-without-uid",
    "I36",
    "A Pod is deleted by its name alone.",
    "same-name",
)
def _without_uid(undo: ExitStack, _session: Session) -> None:
    for owner, name in ((Retirement, "_ask_fleet"), (Conclusion, "reap")):
        undo.enter_context(_swapped(owner, name, _deleting_any(vars(owner)[name])))


def _deleting_any(delete: Callable[[Any, Pod], Awaitable[Any]]) -> Any:
    async def any_of_its_name(self: Any, pod: Pod) -> Any:
        return await delete(self, replace(pod, uid=_AnyUid(pod.uid)))

    return any_of_its_name


@_mutant(
    "delete-before-deregister",
    "I35",
    "A fenced runner's Pod is deleted without deleting its record first.",
    "job-at-the-last-moment",
)
def _before_deregister(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(_swapped(Retirement, "_may_have_a_record", lambda *_: False))


@_mutant(
    "422-ignored",
    "I35",
    "That GitHub refuses to delete a busy runner is taken for a record that is gone.",
    "job-at-the-last-moment",
)
def _422_ignored(undo: ExitStack, _session: Session) -> None:
    remove, needs_proof = vars(Retirement)["_remove"], vars(Retirement)["_needs_proof"]

    async def ignoring(self: Any, runner: Runner, *rest: Any) -> Removal:
        removal: Removal = await remove(self, runner, *rest)
        if removal is not Removal.BUSY:
            return removal
        self.refused = {*getattr(self, "refused", ()), runner.id}
        return Removal.ABSENT

    def unless_refused(self: Any, runner: Runner, pod: Pod) -> bool:
        return runner.id not in getattr(self, "refused", ()) and needs_proof(self, runner, pod)

    undo.enter_context(_swapped(Retirement, "_remove", ignoring))
    undo.enter_context(_swapped(Retirement, "_needs_proof", unless_refused))


@_mutant(
    "204-trusted-alone",
    "I65",
    "What GitHub has deleted is deleted here too; nobody asks the runner itself.",
    "deleted-while-busy",
)
def _204_alone(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(_swapped(Retirement, "_needs_proof", lambda *_: False))


@_mutant(
    "pool-deletion-kills",
    "I42",
    "With a pool all its Pods are deleted.",
    "pool-deleted",
)
def _pool_deletion_kills(undo: ExitStack, _session: Session) -> None:
    carry_out = Reconciler._carry_out  # noqa: SLF001

    async def cascading(self: Any, pool: Any, made: Any) -> Any:
        if pool.state != "active":
            for pod in self._pods().pods:
                if pod.pool == pool.name and not pod.phase.terminal:
                    await self._orders._fleet.ask_to_go(pod.name, uid=pod.uid)  # noqa: SLF001
        return await carry_out(self, pool, made)

    undo.enter_context(_swapped(Reconciler, "_carry_out", cascading))


# JITs and names.


@_mutant(
    "no-replay",
    "I20",
    "A JIT is handed out once; whoever did not get it is told to wait.",
    "lost-reply",
)
def _no_replay(undo: ExitStack, _session: Session) -> None:
    async def waits(self: Any, _heard: Heard) -> NothingYet:
        await self._clock.sleep(10.0)
        return NothingYet()

    undo.enter_context(_swapped(Dispatcher, "_replay", waits))


@_mutant(
    "used-jit-for-new-pod",
    "I20",
    "The JIT of a key's last runner is given to its next one.",
    "two-jobs",
)
def _used_jit(undo: ExitStack, session: Session) -> None:
    ask = Minter._ask  # noqa: SLF001

    async def saving(self: Any, claim: Claim) -> MintedJit:
        used: dict[int, MintedJit] = self.__dict__.setdefault("used", {})
        if claim.key not in used:
            used[claim.key] = await ask(self, claim)
        return used[claim.key]

    undo.enter_context(
        _changed_schema(
            session,
            ["DROP INDEX mints_github_id"],
            [
                "TRUNCATE mints",
                """CREATE UNIQUE INDEX mints_github_id ON mints (key_id, github_id)
                    WHERE github_id IS NOT NULL""",
            ],
        )
    )
    undo.enter_context(_swapped(Minter, "_ask", saving))


@_mutant(
    "late-release-without-generation",
    "I16",
    "A failed mint releases its runner's claim, whichever claim that is by now.",
    "late-release",
)
def _late_release(undo: ExitStack, session: Session) -> None:
    undo.enter_context(_claims_may_be_released(session))
    undo.enter_context(
        _statement(
            "runners",
            "release",
            *_ANY_CLAIM,
            ("AND generation = $2 AND", "AND $2::int IS NOT NULL AND"),
        )
    )


@_mutant(
    "name-reused-after-lost-mint",
    "I19",
    "A runner's name is its Pod's: it is used again after a lost mint, and owed only when the Pod is"
    " gone.",
    "lost-mints",
)
def _name_reused(undo: ExitStack, _session: Session) -> None:
    again = (
        " ON CONFLICT (name) DO UPDATE SET generation = excluded.generation, state = 'chosen',"
        " github_id = NULL, outcome = NULL, settled_at = NULL, chosen_at = excluded.chosen_at"
    )
    undo.enter_context(
        _statement(
            "matching",
            "claim",
            ("app_id, $8 FROM claimed\n", f"app_id, $8 FROM claimed {again}\n"),
        )
    )
    undo.enter_context(
        _statement("runners", "take_over", ("RETURNING app_id", f"{again} RETURNING app_id"))
    )
    owed = "(r.state = 'gone' OR r.name IS DISTINCT FROM m.name)"
    undo.enter_context(_statement("dispatch", "debts", (owed, "r.state = 'gone'")))
    for module in (matching, dispatching):
        undo.enter_context(_swapped(module, "runner_name", lambda pod, _: runner_name(pod, 1)))


# Jobs and webhooks.


@_mutant(
    "completed-not-final",
    "I2",
    "The last webhook to arrive decides what a job is.",
    "late-queued",
)
def _not_final(undo: ExitStack, session: Session) -> None:
    undo.enter_context(
        _changed_schema(
            session,
            ["ALTER TABLE jobs DISABLE TRIGGER jobs_demoted"],
            ["ALTER TABLE jobs ENABLE TRIGGER jobs_demoted"],
        )
    )
    undo.enter_context(
        _statement(
            "jobs",
            "merge",
            ("state = greatest(j.state, excluded.state)", "state = excluded.state"),
            (
                "completed_at = least(j.completed_at, excluded.completed_at)",
                "completed_at = excluded.completed_at",
            ),
            (
                "ELSE coalesce(j.conclusion, excluded.conclusion) END",
                "ELSE excluded.conclusion END",
            ),
        )
    )


@_mutant(
    "redelivery-of-failed-attempts",
    "I7",
    "A webhook is asked for again as long as there is an attempt of it that failed.",
    "failed-webhook",
)
def _failed_attempts(undo: ExitStack, _session: Session) -> None:
    fate = redelivery._fate  # noqa: SLF001

    def of_failures(group: list[Any], **known: Any) -> Any:
        failed = [attempt for attempt in group if not attempt.succeeded]
        if not failed:
            return redelivery.Fate.SETTLED
        return fate(failed, **(known | {"arrived": False}))

    undo.enter_context(_swapped(redelivery, "_fate", of_failures))


# Ends.


@_mutant(
    "exit-0-is-success",
    "I39",
    "A runner that exits with 0 has completed, whether it had a job or not.",
    "leaves",
)
def _exit_0(undo: ExitStack, _session: Session) -> None:
    kept = tuple(rule for rule in endings.RULES if rule.name != "exit-without-job")
    undo.enter_context(_swapped(endings, "RULES", kept))
    undo.enter_context(_table(Subject.ENDED, _without("exit-without-job")))


@_mutant(
    "verdict-after-delete",
    "I30",
    "An ended Pod is deleted first, and its end recorded then.",
    "crash-after-delete",
)
def _verdict_after_delete(undo: ExitStack, _session: Session) -> None:
    conclude = Conclusion.conclude

    async def reaping(self: Any, runner: Runner, pod: Pod) -> Ending | None:
        await self.reap(pod)
        return await conclude(self, runner, pod)

    undo.enter_context(_swapped(Conclusion, "conclude", reaping))


# Written when the simulator was believed done. Their scenarios came later.


@_mutant(
    "capacity-freed-with-the-job",
    "I46",
    "A runner whose job is over holds no place any more, though its Pod is still there.",
    "finished-lingers",
)
def _freed_with_the_job(undo: ExitStack, _session: Session) -> None:
    held = "WHERE key_id IS NOT NULL AND gone_at IS NULL\n"
    undo.enter_context(
        _statement("matching", "demand", (held, f"{held.rstrip()} AND state <> 'done'\n"))
    )


@_mutant(
    "proof-once",
    "I65",
    "A runner that shows no job once is deleted; nobody looks again.",
    "late-log",
)
def _proof_once(undo: ExitStack, _session: Session) -> None:
    prove = vars(Retirement)["_prove"]

    async def once(self: Any, runner: Runner, pod: Pod, seen_at: datetime, now: datetime) -> Any:
        proved = replace(runner, proved_at=runner.proved_at or now - timedelta(hours=1))
        return await prove(self, proved, pod, seen_at, now)

    undo.enter_context(_swapped(Retirement, "_prove", once))


@_mutant(
    "debts-unpaid",
    "I41",
    "What is left at GitHub of runners that are gone is left there.",
    "lost-mints",
)
def _debts_unpaid(undo: ExitStack, _session: Session) -> None:
    async def nothing(_self: Any) -> int:
        return 0

    undo.enter_context(_swapped(DebtCollector, "round", nothing))


@_mutant(
    "waiting-is-demand",
    "I12",
    "A job that waits for somebody's approval is given a runner.",
    "gated-job",
)
def _waiting_is_demand(undo: ExitStack, _session: Session) -> None:
    undo.enter_context(
        _statement("matching", "demand", ("state = 'queued'", "state IN ('queued', 'waiting')"))
    )


@_mutant(
    "strangers-end-untold",
    "I58",
    "A Pod that no row knows and that has ended is deleted; nobody writes down how it ended.",
    "restored-backup",
)
def _untold(undo: ExitStack, _session: Session) -> None:
    adopt = vars(Adoption)["_adopt"]

    async def deleted(self: Any, verdict: Any, pod: Pod, *rest: Any) -> bool:
        if pod.phase.terminal:
            await self._conclusion.reap(pod)
            return True
        return bool(await adopt(self, verdict, pod, *rest))

    undo.enter_context(_swapped(Adoption, "_adopt", deleted))


MUTANTS: Final[dict[str, Mutant]] = {mutant.name: mutant for mutant in _MADE}
