"""Recovery: one loop that looks at everything there is, again and again (I28).

Four rhythms. Ends are concluded, and labels set, as soon as the fleet reports them. That frees
capacity, so it waits for the store alone, never for GitHub or for a node. The logs of abnormal ends are
read afterwards (`forensics.post_mortem`). Runners and jobs are examined in rounds, which may ask GitHub
about suspects. Pods that no row knows are searched for and adopted beside the rounds, within a budget
of their own (I81). Changes only make the loops look sooner; all are safe with two leaders at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from prometheus_client import Histogram

from paddock.concurrent_tasks import ConcurrentTasks
from paddock.dispatch.installations import RegisteredApp
from paddock.domain.pods.pod import Pod, may_stamp
from paddock.domain.recovery.thresholds import RecoveryTerms
from paddock.domain.runners.runner import Runner
from paddock.domain.states import RunnerState
from paddock.forensics.conclusion import Concluded, Conclusion
from paddock.forensics.post_mortem import PostMortem
from paddock.ports import Clock, EndRecords, Fleet, GitHub, Ids, Topic, Wakeups
from paddock.ports.recovery import RecoveryStore
from paddock.recovery.act import Acting
from paddock.recovery.adopt import Adoption
from paddock.recovery.gather import Gatherer, RoundView
from paddock.recovery.github_lookups import GitHubLookups
from paddock.recovery.jobs import JobRecovery
from paddock.recovery.observe import PodView
from paddock.recovery.retire import Retirement
from paddock.recovery.runners import RunnerRecovery
from paddock.recovery.search import RunnerSearch
from paddock.recovery.stamping import Stamper
from paddock.services import tolerating_outages

#: Thresholds are tens of seconds and more; a round with nothing wrong costs five short reads.
_LOOK_AGAIN: Final = 5.0
#: The interval while only time can change what a look finds: that takes minutes.
_QUIET: Final = 30.0
#: Between two looks for ends, however often the fleet tells of changes. One in `_LOOK_AGAIN` reads
#: every runner, the others only those whose Pods changed. It does not grow with a look's duration: on a
#: busy machine a look mostly waits, and each Pod that ends meanwhile would wait for four times as long.
_BREATH: Final = 0.1
#: Between two rounds: each claim wakes them, and a round with a thousand runners takes a tenth of a
#: second. Thresholds are ten times as long.
_ROUND_BREATH: Final = 2.0
#: Jobs, Pods without rows and verdicts are looked at this often; no event announces them.
_SLOWLY: Final = 5.0
#: Ends recorded in one statement: some 50 ms, so that others reach the rows in between.
_ENDS_AT_ONCE: Final = 250
#: Pods deleted at the same time, and absences concluded.
_REAPS_AT_ONCE: Final = 16
_STAMPS_AT_ONCE: Final = 8
#: After deregistrations the fleet is read anew, but not more often than this.
_REFRESH: Final = 2.0
#: Runners examined, or looked at for ends, in one go, some 1 ms: Pods are answered in between.
_EXAMINED_AT_ONCE: Final = 32
_LOOKED_AT_AT_ONCE: Final = 512

ROUND_SECONDS = Histogram(
    "paddock_recovery_round_seconds",
    "How long the leader took to examine all runners and what is due of the jobs.",
)


class Recovery:
    def __init__(
        self,
        *,
        store: RecoveryStore,
        fleet: Fleet,
        github: GitHub,
        clock: Clock,
        ids: Ids,
        wakeups: Wakeups,
        view: PodView,
        apps: Sequence[RegisteredApp],
        terms: RecoveryTerms,
        ended: Callable[[str], None] = lambda _uid: None,
        end_records: EndRecords | None = None,
    ) -> None:
        """`ended` is told the UID of every Pod whose end was recorded."""
        self._store = store
        self._clock = clock
        self._view = view
        self._told = ended
        self._changed = view.changes()
        self._changed_for_rounds = view.changes()
        self._changed_for_adoption = view.changes()
        self._woken = wakeups.subscribe(Topic.RUNNERS)
        self._conclusion = Conclusion(
            store=store, fleet=fleet, clock=clock, supply_grace=terms.thresholds.supply_grace
        )
        self._post_mortem = PostMortem(
            store=store,
            fleet=fleet,
            clock=clock,
            readable_since=lambda: view.readable_since,
            end_records=end_records,
        )
        self._stamper = Stamper(fleet=fleet, clock=clock)
        self._asker = GitHubLookups(github=github, clock=clock, apps=apps, most=terms.questions)
        self._gatherer = Gatherer(
            store=store,
            fleet=fleet,
            clock=clock,
            view=view,
            asker=self._asker,
            thresholds=terms.thresholds,
        )
        acting = Acting(store=store, clock=clock, terms=terms)
        self._search = RunnerSearch(store=store, github=github, clock=clock, apps=apps)
        retirement = Retirement(
            store=store, fleet=fleet, github=github, clock=clock, ids=ids, search=self._search
        )
        self._runners = RunnerRecovery(
            store=store,
            clock=clock,
            gatherer=self._gatherer,
            acting=acting,
            conclusion=self._conclusion,
            retirement=retirement,
            asker=self._asker,
            terms=terms,
        )
        self._adoption = Adoption(
            store=store,
            fleet=fleet,
            clock=clock,
            ids=ids,
            view=view,
            search=self._search,
            acting=acting,
            conclusion=self._conclusion,
            retirement=retirement,
            terms=terms,
        )
        self._jobs = JobRecovery(
            store=store,
            clock=clock,
            gatherer=self._gatherer,
            asker=self._asker,
            acting=acting,
            terms=terms,
        )
        self._ending = ConcurrentTasks(_REAPS_AT_ONCE)
        self._reaping = ConcurrentTasks(_REAPS_AT_ONCE)
        self._stamping = ConcurrentTasks(_STAMPS_AT_ONCE)
        self._stamped: dict[str, None] = {}
        #: When all runners were last looked at for ends.
        self._looked_at: float | None = None
        #: The last look for ends found that nothing ends or is stamped before a Pod changes.
        self._ends_rest = False
        self._slowly_at: float | None = None
        self._refreshed_at: float | None = None

    async def run(self) -> None:
        self._search.forget()
        self._looked_at = None
        async with asyncio.TaskGroup() as group:
            group.create_task(self._conclude_for_ever())
            group.create_task(self._post_mortem.run())
            group.create_task(self._examine_for_ever())
            group.create_task(self._adopt_for_ever())
            group.create_task(self._search_for_ever())

    async def _conclude_for_ever(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                self._changed.clear()
                self._ends_rest = False
                began = self._clock.monotonic()
                whole = self._looked_at is None or began - self._looked_at >= _LOOK_AGAIN
                if whole:
                    self._looked_at = began
                self._ends_rest = await _rests_after(partial(self._begin_ends, group, whole=whole))
                await self._clock.sleep(_BREATH)
                await _until(self._changed, _QUIET if self._ends_rest else _LOOK_AGAIN)

    async def _examine_for_ever(self) -> None:
        while True:
            began = self._clock.monotonic()
            self._changed_for_rounds.clear()
            rests = await _rests_after(self.round)
            self._view.rest(rests)
            ROUND_SECONDS.observe(self._clock.monotonic() - began)
            await self._clock.sleep(_ROUND_BREATH)
            left = _QUIET if rests else _LOOK_AGAIN
            while left > 0 and not await self._woken.wait(_LOOK_AGAIN):
                left = 0 if self._changed_for_rounds.is_set() else left - _LOOK_AGAIN

    async def _adopt_for_ever(self) -> None:
        while True:
            self._changed_for_adoption.clear()
            rests = await _rests_after(self.adopt)
            await self._clock.sleep(_SLOWLY)
            if rests:
                await _until(self._changed_for_adoption, _QUIET)

    async def _search_for_ever(self) -> None:
        while True:
            await _tolerating(self.search)
            await self._clock.sleep(_SLOWLY)

    async def adopt(self) -> bool:
        """Examine the Pods that no row knows. Returns whether this loop may rest."""
        look = await self._gatherer.glance()
        if look.read_at is not None:
            await self._adoption.round(look)
        return look.quiet

    async def search(self) -> None:
        """Read at GitHub what the search for unknown Pods needs, within its own budget."""
        await self._search.round()

    async def ends(self, *, whole: bool = True) -> None:
        """Conclude what has ended, stamp what holds its JIT; then read what can be read of the ends.
        Unless the look is `whole`, it is at the Pods that changed since the last one."""
        async with asyncio.TaskGroup() as group:
            await self._begin_ends(group, whole=whole)
        await self._post_mortem.look()

    async def _begin_ends(self, group: asyncio.TaskGroup, *, whole: bool) -> bool:
        """Returns whether this loop may rest."""
        before = self._ending.under_way()
        changed = self._view.take_changed()
        look = await (self._gatherer.glance() if whole else self._gatherer.glance_at(changed))
        ended: list[tuple[Runner, Pod]] = []
        for number, runner in enumerate(look.runners, 1):
            if number % _LOOKED_AT_AT_ONCE == 0:
                await asyncio.sleep(0)
            pod = look.pod_of(runner)
            if pod is not None and pod.phase.terminal:
                ended.append((runner, pod))
            elif pod is None and runner.absent_reads > 0:
                if runner.id not in before:
                    self._ending.begin(group, runner.id, partial(self._vanished, runner, look))
            elif pod is not None and self._to_be_stamped(runner, pod):
                self._stamping.begin(group, pod.uid, partial(self._stamp, pod, str(runner.account)))
        for first in range(0, len(ended), _ENDS_AT_ONCE):
            some = ended[first : first + _ENDS_AT_ONCE]
            concluded, moved_on = await self._runners.conclude_ended(some, look)
            for each in concluded:
                self._after(each, group)
            self._view.show_again(moved_on)
        return look.quiet

    def _after(self, concluded: Concluded, group: asyncio.TaskGroup) -> None:
        pod = concluded.pod
        self._told(pod.uid)
        self._stamped.pop(pod.uid, None)
        if concluded.wants_log:
            self._post_mortem.wake()
        else:
            self._reaping.begin(group, pod.uid, partial(self._conclusion.reap, pod))

    async def _vanished(self, runner: Runner, look: RoundView) -> None:
        async def conclude() -> None:
            if await self._runners.at_a_glance(runner, look):
                self._post_mortem.wake()

        await _tolerating(conclude)

    async def _stamp(self, pod: Pod, owner: str) -> None:
        """Unless it has ended while others were stamped: an ended Pod needs no label."""
        if not self._view.has_ended(pod):
            await self._stamper.stamp(pod, owner=owner)

    def _looks_ended(self, runner: Runner, look: RoundView) -> bool:
        """Only a first filter: the table decides."""
        pod = look.pod_of(runner)
        return pod.phase.terminal if pod is not None else runner.absent_reads > 0

    def _to_be_stamped(self, runner: Runner, pod: Pod) -> bool:
        """Only once for each Pod: the stamper gives up after some tries, and is not asked again."""
        if pod.owner is not None or runner.account is None or pod.uid in self._stamped:
            return False
        if not may_stamp(shape=runner.shape, state=runner.state, poller=pod.poller):
            return False
        self._stamped[pod.uid] = None
        return True

    async def round(self) -> bool:
        """Examine everything, within the budget for questions. Returns whether this loop may rest: if
        nothing is to be examined, and nothing of the jobs is left for the next round."""
        self._asker.begin_round()
        glance = await self._gatherer.glance()
        if self._ends_rest and not glance.quiet:
            # A changed row wakes only the rounds.
            self._changed.set()
        look = glance if glance.quiet else await self._gatherer.look_closely(glance)
        if self._stale(look):
            await self._view.refresh()
            look = await self._gatherer.look()
        examined = () if look.quiet else await self._gatherer.to_examine(look)
        look = await self._gatherer.to_ask_about(look, examined)
        for number, runner in enumerate(examined, 1):
            if not self._looks_ended(runner, look):
                await self._runners.examine(runner, look)
            if number % _EXAMINED_AT_ONCE == 0:
                await asyncio.sleep(0)
        now = self._clock.monotonic()
        if self._slowly_at is not None and now - self._slowly_at < _SLOWLY:
            return False
        self._slowly_at = now
        return await self._slow_round(look) and look.quiet

    async def _slow_round(self, look: RoundView) -> bool:
        rests = await self._jobs.round(look)
        await self._conclusion.refine()
        return rests

    def _stale(self, look: RoundView) -> bool:
        """A retirement waits for a look at the fleet that is newer than its deregistration."""
        now = self._clock.monotonic()
        if self._refreshed_at is not None and now - self._refreshed_at < _REFRESH:
            return False
        read_at = look.read_at
        stale = any(
            runner.state is RunnerState.RETIRING
            and runner.deletion_asked_at is None
            and runner.deregistered_at is not None
            and (read_at is None or read_at <= runner.deregistered_at)
            for runner in look.runners
        )
        if stale:
            self._refreshed_at = now
        return stale


async def _until(changed: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await changed.wait()


async def _rests_after(look: Callable[[], Awaitable[bool]]) -> bool:
    """Whether a loop may rest after this look. After one that failed it may not: its wake-up is used
    up. Nor after another loop's look, which may have read older rows."""
    rests = False

    async def work() -> None:
        nonlocal rests
        rests = await look()

    await _tolerating(work)
    return rests


_tolerating = partial(tolerating_outages, loop="recovery")
