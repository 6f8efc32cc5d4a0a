"""The time from a webhook's arrival to the JIT at a Pod, and the cost of idle Pods.

The server is complete: receiver, deliveries, matcher, and mints at a GitHub that answers at once,
durable at every step. It is compared with the usual design: the same server, polled every two seconds.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random

from rich.console import RenderableType

from bench.common import Report, Unusable, environment, median, percentile, postgres, say, table
from bench.dispatch_site import Cpu, Handed, Http, Pod, Site, site

#: GitHub's hourly bucket lets one App mint 10,000 JITs.
MINTS_PER_S = 10_000 / 3600
IDLE_PODS = 1_000
JOBS_PER_S = 50
#: How often the usual design polls.
EVERY = 2.0
#: Jobs that wait in an account whose mints all fail.
REFUSED = 20
#: As the agent polls: held for up to 40 s, never all at the same moment.
LONG_WAIT = (20.0, 40.0)
#: A poll that finds work is held until the mint; one that finds none is answered at once. A job that
#: comes between two polls waits for the second.
ENOUGH_TO_MINT = 5.0
GOALS = {"p50_ms": 15.0, "p99_ms": 75.0, "idle_cpu_fraction": 0.10, "poll_2s_p50": 50.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    #: Jobs for a single Pod, one after the other.
    singles: int
    #: The number of jobs at full rate, per round.
    seconds: float
    rounds: int
    #: How long processor time is measured with all Pods idle.
    idle: float


FULL = Effort(singles=30, seconds=5.0, rounds=3, idle=30.0)
QUICK = Effort(singles=8, seconds=4.0, rounds=1, idle=10.0)


@dataclass(frozen=True, slots=True)
class Way:
    """One job's, in seconds. The n-th JIT is the n-th job's: GitHub gives its oldest job to the first
    runner of the key that comes online."""

    #: Webhook received, stored, and applied.
    applied: float
    claimed: float
    #: Minted, and the JIT stored.
    armed: float
    handed: float

    @property
    def whole(self) -> float:
        return self.applied + self.claimed + self.armed + self.handed


def _medians(ways: Sequence[Way]) -> dict[str, float]:
    return {
        name: round(median([getattr(way, name) for way in ways]) * 1e3, 2)
        for name in Way.__dataclass_fields__
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    single_ways: list[Way]
    single_polled: list[float]
    #: The same while another account's mints all fail.
    single_beside: list[float]
    ways: list[list[Way]]
    #: Fractions of a core: the server's, PostgreSQL's.
    idle: tuple[float, float]
    idle_polled: tuple[float, float]
    at_work: tuple[float, float]
    reviews: int
    tokens: int
    late: float

    @property
    def single(self) -> list[float]:
        return [way.whole for way in self.single_ways]

    @property
    def loaded(self) -> list[list[float]]:
        return [[way.whole for way in ways] for ways in self.ways]

    @property
    def p50_ms(self) -> float:
        return median([percentile(each, 50) for each in self.loaded]) * 1e3

    @property
    def p99_ms(self) -> float:
        return median([percentile(each, 99) for each in self.loaded]) * 1e3

    @property
    def single_ratio(self) -> float:
        return median(self.single_polled) / median(self.single)

    @property
    def cpu_ratio(self) -> float:
        return self.idle_polled[0] / max(self.idle[0], 1e-3)


async def run(*, quick: bool, commit_ms: float = 0.0) -> Report:
    effort, dice = QUICK if quick else FULL, Random(1)
    async with postgres(commit_ms=commit_ms) as server:
        about = await environment(server.url)
        async with site(server) as place:
            say("one idle Pod")
            await _singles(place, 3, dice)  # tokens are fetched and statements prepared meanwhile
            single = await _singles(place, effort.singles, dice)
            say("one idle Pod beside an account whose mints all fail")
            beside = await _singles(place, effort.singles, dice, refused=REFUSED)
            say(f"one Pod that asks every {EVERY:g} s")
            single_polled = await _singles_polled(place, effort.singles, dice)
            say(f"{IDLE_PODS:,} idle Pods")
            async with _crowd(place, dice):
                before = await place.reviews()
                idle = await _idle(place, effort.idle)
                reviews = await place.reviews() - before
            await place.tidy()
            loads = []
            for number in range(effort.rounds):
                say(f"{JOBS_PER_S} jobs per second, round {number + 1} of {effort.rounds}")
                async with _crowd(place, dice) as crowd:
                    loads.append(await _load(place, crowd, effort.seconds))
                await place.tidy()
            say(f"{IDLE_PODS:,} Pods that ask every {EVERY:g} s")
            idle_polled = await _idle_polled(place, effort.idle, dice)
    results = Results(
        single_ways=single,
        single_polled=[way.whole for way in single_polled],
        single_beside=[way.whole for way in beside],
        ways=[load.ways for load in loads],
        idle=idle,
        idle_polled=idle_polled,
        at_work=(
            median([load.used[0] for load in loads]),
            median([load.used[1] for load in loads]),
        ),
        reviews=reviews,
        tokens=IDLE_PODS,
        late=max(load.late for load in loads),
    )
    return Report(environment=about, data=_data(results), show=lambda: _tables(results))


async def _singles(place: Site, count: int, dice: Random, *, refused: int = 0) -> list[Way]:
    return [
        await _one(place, _ask_once, dice.uniform(0.1, 0.5), refused=refused) for _ in range(count)
    ]


async def _singles_polled(place: Site, count: int, dice: Random) -> list[Way]:
    return [await _one(place, _ask_every, 0.1 + dice.uniform(0.0, EVERY)) for _ in range(count)]


async def _one(
    place: Site,
    ask: Callable[[Pod, asyncio.Event], Coroutine[None, None, Handed | None]],
    after: float,
    *,
    refused: int = 0,
) -> Way:
    """`refused`: this many jobs wait in another account, whose mints all fail."""
    queued = asyncio.Event()
    hook = await Http.open(place.port)
    for _, request in place.webhooks(refused, of=place.refused):
        await _told(hook, request)
    [pod], [(job, request)] = await place.pods(1), place.webhooks(1)
    asked = asyncio.create_task(ask(pod, queued))
    await asyncio.sleep(after)
    sent = time.perf_counter()
    queued.set()
    await _told(hook, request)
    handed = await asked
    if handed is None:
        raise Unusable("a Pod waited in vain for half a minute.")
    [way] = await _ways(place, [handed], {job: sent})
    hook.close()
    pod.leave()
    await place.tidy()
    return way


async def _told(hook: Http, request: bytes) -> None:
    status, body = await hook.send(request)
    if status // 100 != 2:
        raise Unusable(f"a webhook was answered {status}: {body.decode()}")


async def _ask_once(pod: Pod, _queued: asyncio.Event) -> Handed | None:
    return await pod.ask(30.0)


async def _ask_every(pod: Pod, queued: asyncio.Event) -> Handed:
    """The interval from one poll to the next, independent of the answer's time."""
    while True:
        began = time.perf_counter()
        if (handed := await pod.ask(ENOUGH_TO_MINT if queued.is_set() else 0.0)) is not None:
            return handed
        await asyncio.sleep(max(0.0, began + EVERY - time.perf_counter()))


class Crowd:
    """Pods that have waited for some time: no two poll at the same moment."""

    def __init__(self, pods: Sequence[Pod], dice: Random) -> None:
        self._pods = pods
        self.handed: list[Handed] = []
        self.news = asyncio.Event()
        self._tasks = [asyncio.create_task(self._wait(pod, dice)) for pod in pods]

    async def _wait(self, pod: Pod, dice: Random) -> None:
        wait = dice.uniform(1.0, LONG_WAIT[1])
        while (handed := await pod.ask(wait)) is None:
            wait = dice.uniform(*LONG_WAIT)
        self.handed.append(handed)
        self.news.set()

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for pod in self._pods:
            pod.leave()


@asynccontextmanager
async def _crowd(place: Site, dice: Random) -> AsyncIterator[Crowd]:
    crowd = Crowd(await place.pods(IDLE_PODS), dice)
    try:
        await place.all_idle(IDLE_PODS)
        yield crowd
    finally:
        await crowd.end()


async def _idle(place: Site, seconds: float) -> tuple[float, float]:
    before = place.cpu()
    await asyncio.sleep(seconds)
    return place.cpu().since(before)


async def _idle_polled(place: Site, seconds: float, dice: Random) -> tuple[float, float]:
    async def ask(pod: Pod) -> None:
        await asyncio.sleep(dice.uniform(0.0, EVERY))
        while True:
            began = time.perf_counter()
            await pod.ask(0.0)
            await asyncio.sleep(max(0.0, began + EVERY - time.perf_counter()))

    pods = await place.pods(IDLE_PODS)
    tasks = [asyncio.create_task(ask(pod)) for pod in pods]
    await asyncio.sleep(2 * EVERY)
    used = await _idle(place, seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for pod in pods:
        pod.leave()
    return used


@dataclass(frozen=True, slots=True)
class Load:
    ways: list[Way]
    used: tuple[float, float]
    #: The longest delay of sending a webhook: if large, the client was the bottleneck.
    late: float


async def _load(place: Site, crowd: Crowd, seconds: float) -> Load:
    webhooks = place.webhooks(round(seconds * JOBS_PER_S))
    hooks = [await Http.open(place.port) for _ in range(8)]
    free: asyncio.Queue[Http] = asyncio.Queue()
    for hook in hooks:
        free.put_nowait(hook)
    sent: dict[int, float] = {}
    late = 0.0

    async def send(request: bytes, hook: Http) -> None:
        await _told(hook, request)
        free.put_nowait(hook)

    cpu: Cpu = place.cpu()
    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number, (job, request) in enumerate(webhooks):
            due = began + number / JOBS_PER_S
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            hook = await free.get()
            sent[job] = time.perf_counter()
            late = max(late, sent[job] - due)
            group.create_task(send(request, hook))
    async with asyncio.timeout(30):
        while len(crowd.handed) < len(webhooks):
            crowd.news.clear()
            await crowd.news.wait()
    used = place.cpu().since(cpu)
    for hook in hooks:
        hook.close()
    return Load(await _ways(place, crowd.handed, sent), used, late)


async def _ways(place: Site, handed: Sequence[Handed], sent: dict[int, float]) -> list[Way]:
    marks = await place.marks(list(sent), [each.runner_name for each in handed])
    times = [sorted(sent.values()), *marks, sorted(each.at for each in handed)]
    if {len(each) for each in times} != {len(sent)}:
        raise Unusable(f"{len(sent)} jobs were sent, and {len(handed)} JITs were handed out.")
    return [
        Way(*(later - before for before, later in itertools.pairwise(way)))
        for way in zip(*times, strict=True)
    ]


def _data(results: Results) -> dict[str, object]:
    return {
        "ours": {
            "p50_ms": round(results.p50_ms, 2),
            "p99_ms": round(results.p99_ms, 2),
            "p50_ms_by_round": [round(percentile(each, 50) * 1e3, 2) for each in results.loaded],
            "p99_ms_by_round": [round(percentile(each, 99) * 1e3, 2) for each in results.loaded],
            "idle_cpu_fraction": round(results.idle[0], 4),
            "idle_postgres_cpu_fraction": round(results.idle[1], 4),
            "loaded_cpu_fraction": round(results.at_work[0], 4),
            "loaded_postgres_cpu_fraction": round(results.at_work[1], 4),
            "one_pod_p50_ms": round(median(results.single) * 1e3, 2),
            "one_pod_beside_broken_account_p50_ms": round(median(results.single_beside) * 1e3, 2),
            "one_pod_stages_ms": _medians(results.single_ways),
            "stages_ms": _medians([way for ways in results.ways for way in ways]),
            "reviews": results.reviews,
            "tokens": results.tokens,
        },
        "poll_2s": {
            "one_pod_p50_ms": round(median(results.single_polled) * 1e3, 2),
            "idle_cpu_fraction": round(results.idle_polled[0], 4),
            "idle_postgres_cpu_fraction": round(results.idle_polled[1], 4),
        },
        "ratio": {
            "poll_2s_p50": round(results.single_ratio, 1),
            "poll_2s_cpu": round(results.cpu_ratio, 1),
        },
        "load": {
            "idle_pods": IDLE_PODS,
            "jobs_per_s": JOBS_PER_S,
            "sent_late_at_most_ms": round(results.late * 1e3, 2),
            "one_app_mints_per_s": round(MINTS_PER_S, 2),
        },
        "goals": GOALS,
    }


def _tables(results: Results) -> Sequence[RenderableType]:
    def cores(used: tuple[float, float]) -> list[str]:
        return [f"{each * 100:.1f} %" for each in used]

    one = table(
        "One idle Pod, jobs at random moments: webhook to JIT, median",
        *("", "design", "ms", "times ours"),
        rows=[
            ["ours", "held until there is work", f"{median(results.single) * 1e3:.1f}", "1"],
            [
                "",
                f"beside {REFUSED} jobs of an account whose mints all fail",
                f"{median(results.single_beside) * 1e3:.1f}",
                f"{median(results.single_beside) / median(results.single):.2f}",
            ],
            [
                "polling",
                f"the same server, asked every {EVERY:g} s",
                f"{median(results.single_polled) * 1e3:.0f}",
                f"{results.single_ratio:.0f} (goal {GOALS['poll_2s_p50']:.0f})",
            ],
        ],
    )
    binds = f"one App's mint budget binds at {MINTS_PER_S:.1f} per second"
    many = table(
        f"{IDLE_PODS:,} idle Pods, {JOBS_PER_S} jobs per second ({binds})",
        *("", "", "measured", "goal"),
        rows=[
            ["webhook to JIT", "p50", f"{results.p50_ms:.1f} ms", f"{GOALS['p50_ms']:.0f} ms"],
            ["", "p99", f"{results.p99_ms:.1f} ms", f"{GOALS['p99_ms']:.0f} ms"],
            ["tokens reviewed while idle", f"of {results.tokens}", f"{results.reviews}", "0"],
        ],
    )
    used = table(
        "Of one core",
        *("", "", "server", "PostgreSQL"),
        rows=[
            ["all idle", "ours", *cores(results.idle)],
            ["", f"asked every {EVERY:g} s", *cores(results.idle_polled)],
            [f"{JOBS_PER_S} jobs per second", "ours", *cores(results.at_work)],
        ],
    )
    stages = table(
        "Where the time goes, medians in ms",
        *("", "", "to the job's row", "to the claim", "to the stored JIT", "to the Pod"),
        rows=[
            [what, "", *(f"{each:.1f}" for each in _medians(ways).values())]
            for what, ways in (
                ("one idle Pod", results.single_ways),
                (f"{JOBS_PER_S} jobs per second", [way for ways in results.ways for way in ways]),
            )
        ],
    )
    return one, many, used, stages
