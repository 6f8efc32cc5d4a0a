"""The fleet benchmark's environment: replicas, their GitHub, Pods that live and end, and jobs.

The benchmark plays the kubelets, the Pods and GitHub's webhooks. A Pod waits for work, gets its JIT, is
busy for a while and ends; the pool orders another, which the benchmark starts.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import sys
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import msgspec

from bench.common import Unusable, say, session
from bench.dispatch import LONG_WAIT
from bench.dispatch_github import Scene, scene
from bench.dispatch_site import (
    Handed,
    Http,
    Pod,
    Unavailable,
    config,
    metrics,
    port_of,
    process,
    rendered,
)
from bench.fleet_history import write_history
from bench.fleet_server import Stage
from bench.processors import used
from paddock.domain.limits import Resources
from paddock.domain.pools.pool import PoolFacts
from paddock.fakes.github import JobSpec
from paddock.fakes.github.records import Job, JobStatus, Runner
from paddock.store.database import Database
from paddock.store.embedded import EmbeddedPostgres
from paddock.store.migrate import migrate
from paddock.store.store import PgStore
from paddock.system import SystemClock, SystemIds

JOBS_PER_S = 20
#: From the JIT to GitHub's webhook that the job runs, and from there to its end. Pods that stay busy
#: stand for long jobs.
STARTS_AFTER = 1.0
JOB_SECONDS = 8.0
#: A busy Pod takes a sample every five seconds, and reports it at once.
VITALS_EVERY = 5.0
#: As often as Prometheus scrapes every replica.
SCRAPE_EVERY = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    name: str
    replicas: int
    pools: int
    accounts: int
    idle: int
    busy: int
    history: int


@dataclass(slots=True)
class _Process:
    pid: int
    port: int
    writer: asyncio.StreamWriter
    reader: asyncio.StreamReader


class Settings(msgspec.Struct):
    """The part of a JIT that names its runner."""

    AgentId: str
    GitHubUrl: str


@dataclass
class Site:
    world: World
    made: Scene
    replicas: Sequence[_Process]
    #: For `processors.used`.
    parts: dict[int, str]
    database: Database
    dice: Random = field(default_factory=lambda: Random(1))
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    #: Jobs without a runner, oldest first, by organisation and pool. The next runner of the same
    #: organisation and pool gets the oldest.
    queued: dict[tuple[str, str], deque[tuple[Job, float]]] = field(
        default_factory=lambda: defaultdict(deque)
    )
    #: When each job was sent, and how long it waited for its JIT.
    waits: list[tuple[float, float]] = field(default_factory=list)
    #: The longest delay of a webhook: if large, the benchmark itself was the bottleneck.
    late: float = 0.0
    #: Requests that were answered 503.
    refused: int = 0
    failure: BaseException | None = None

    def __post_init__(self) -> None:
        self._turn = itertools.cycle(self.replicas)
        self._logins = {each.owner.login: each for each in self.made.repositories}
        self._hooks: list[Http] = []
        self._addresses = itertools.count()

    def begin(self, coroutine: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failure = self.failure or error

    def check(self) -> None:
        if self.failure is not None:
            raise Unusable(f"a part of the load failed: {self.failure!r}")

    def tell(self, pods: Iterable[tuple[str, str]], stage: Stage) -> None:
        lines = "".join(f"{name} {pool} {stage}\n" for name, pool in pods).encode()
        for replica in self.replicas:
            replica.writer.write(lines)

    async def start_ordered(self, replica: _Process) -> None:
        """From now on every Pod that paddock orders polls for work."""
        while line := (await replica.reader.readline()).decode():
            name, pool = line.split()
            self.begin(self.live(name, pool))

    async def live(self, name: str, pool: str) -> None:
        http = await self._connect()
        pod = Pod(name, http)
        wait = self.dice.uniform(1.0, LONG_WAIT[1])
        while (handed := await self._ask(pod, wait)) is None:
            wait = self.dice.uniform(*LONG_WAIT)
        pod.leave()
        self.tell([(name, pool)], Stage.RUNNING)
        job, runner = self._given(handed, pool)
        await asyncio.sleep(STARTS_AFTER)
        job.runner, job.status, job.started_at = runner, JobStatus.IN_PROGRESS, SystemClock().now()
        await self._hook(job, "in_progress")
        await asyncio.sleep(JOB_SECONDS)
        job.status, job.conclusion = JobStatus.COMPLETED, "success"
        job.completed_at = SystemClock().now()
        await self._hook(job, "completed")
        self.tell([(name, pool)], Stage.ENDED)

    async def _connect(self) -> Http:
        """A Pod's connection. Pods have addresses of their own, and the server limits how many
        connections of one address it waits for."""
        number = next(self._addresses)
        address = f"127.1.{number // 250 % 250}.{number % 250 + 1}"
        return await Http.open(
            next(self._turn).port, address=address if sys.platform == "linux" else None
        )

    async def _ask(self, pod: Pod, wait: float) -> Handed | None:
        try:
            return await pod.ask(wait)
        except Unavailable:
            await self._refused()
            return None

    async def _refused(self) -> None:
        """Polls again after a while, as the agent does."""
        self.refused += 1
        await asyncio.sleep(self.dice.uniform(1.0, 5.0))

    def _given(self, handed: Handed, pool: str) -> tuple[Job, Runner]:
        """The oldest job of the runner's organisation and labels, as GitHub chooses it."""
        files = msgspec.json.decode(base64.b64decode(handed.jit))
        settings = msgspec.json.decode(base64.b64decode(files[".runner"]), type=Settings)
        login = settings.GitHubUrl.rpartition("/")[2]
        job, sent = self.queued[login, pool].popleft()
        self.waits.append((sent, handed.at - sent))
        return job, Runner(
            id=int(settings.AgentId),
            name=handed.runner_name,
            owner=job.repository.owner,
            repository=None,
            group=self.made.github.world.groups[job.repository.owner.id][0],
            labels=job.spec.labels,
            created_at=SystemClock().now(),
            client_id="",
            secret="",
        )

    async def _hook(self, job: Job, action: str) -> None:
        self.made.github.hooks.job(job, action)
        await self._send()

    async def _send(self) -> None:
        for outgoing in self.made.github.hooks.take():
            request = rendered(outgoing)
            http = self._hooks.pop() if self._hooks else await Http.open(next(self._turn).port)
            while (answer := await http.send(request))[0] == 503:
                await self._refused()
            if answer[0] // 100 != 2:
                raise Unusable(f"a webhook was answered {answer[0]}: {answer[1].decode()}")
            self._hooks.append(http)

    async def queue_jobs(self) -> None:
        """Most come from few accounts: the n-th has 1/n of the jobs that the first has."""
        weights = [1 / n for n in range(1, len(self.made.repositories) + 1)]
        cumulated = list(itertools.accumulate(weights))
        began = time.perf_counter()
        for number in itertools.count():
            due = began + number / JOBS_PER_S
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            [repository] = self.dice.choices(self.made.repositories, cum_weights=cumulated)
            pool = _pool_name(self.dice.randrange(self.world.pools))
            run = self.made.github.jobs.queue_run(repository, [JobSpec(labels=_labels(pool))])
            sent = time.perf_counter()
            self.late = max(self.late, sent - due)
            self.queued[repository.owner.login, pool].append((run.jobs[0], sent))
            self.begin(self._send())

    def unserved(self) -> list[tuple[float, float]]:
        """When each job without a runner was sent, and how long it has waited."""
        now = time.perf_counter()
        return [(sent, now - sent) for jobs in self.queued.values() for _, sent in jobs]

    async def stay_busy(self, name: str) -> None:
        http = await self._connect()
        await asyncio.sleep(self.dice.uniform(0.0, VITALS_EVERY))
        while True:
            began = time.perf_counter()
            sample = [time.time(), 4e9, 8e9, 0, 0.1, 1.5, 0.2, 300.0, 2e10, 1.2]
            status, body = await http.post(
                "/v1/vitals",
                {"Authorization": f"Bearer {name}"},
                msgspec.json.encode({"samples": [sample], "job_started_at": 1e9}),
            )
            if status == 503:
                await self._refused()
            elif status != 204:
                raise Unusable(f"a report of vitals was answered {status}: {body.decode()}")
            await asyncio.sleep(max(0.0, began + VITALS_EVERY - time.perf_counter()))

    async def scrape(self) -> None:
        while True:
            for replica in self.replicas:
                await metrics(replica.port)
            await asyncio.sleep(SCRAPE_EVERY)

    async def fill(self) -> None:
        """Orders the idle Pods, and waits until the server has heard all of them."""
        store = PgStore(self.database, clock=SystemClock(), ids=SystemIds(), actor="bench")
        for number in range(self.world.pools):
            await store.apply_pool(pool_facts(number, self.world.idle // self.world.pools))
        async with asyncio.timeout(300):
            while await self._idle() < self.world.idle:
                self.check()
                await asyncio.sleep(0.5)
        await asyncio.sleep(3.0)

    async def _idle(self) -> int:
        async with self.database.transaction() as connection:
            return int(
                await connection.fetchval("SELECT count(*) FROM runners WHERE state = 'idle'")
            )

    def processors(self) -> dict[str, float]:
        return used({**self.parts, os.getpid(): "load"})

    async def rounds(self) -> tuple[float, float]:
        """How many rounds of recovery there were, and how many seconds they took."""
        found = [await metrics(replica.port) for replica in self.replicas]
        return (
            sum(each["paddock_recovery_round_seconds_count"] for each in found),
            sum(each["paddock_recovery_round_seconds_sum"] for each in found),
        )

    def rss_mib(self) -> float:
        """The memory of the largest replica."""
        return max(
            int(line.split()[1]) / 1024
            for replica in self.replicas
            for line in Path(f"/proc/{replica.pid}/status").read_text().splitlines()
            if line.startswith("VmRSS:")
        )

    async def stop(self) -> None:
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


def _pool_name(number: int) -> str:
    return f"pool-{number}"


def _labels(pool: str) -> tuple[str, ...]:
    return ("self-hosted", pool)


def pool_facts(number: int, idle: int) -> PoolFacts:
    name = _pool_name(number)
    spec = {
        "labels": _labels(name),
        "minIdle": idle,
        "stabilisationWindow": 0,
        "provisioning": {"maxStarting": 50},
    }
    return PoolFacts(
        name=name,
        labels=_labels(name),
        shape="gated",
        cost=Resources(),
        max_runners=None,
        spec=msgspec.json.encode(spec).decode(),
        spec_hash="v1",
    )


@asynccontextmanager
async def site(postgres: EmbeddedPostgres, world: World) -> AsyncIterator[Site]:
    async with session(postgres.url_of("postgres")) as connection:
        await connection.execute(f"CREATE DATABASE {world.name}")
    url = postgres.url_of(world.name)
    async with AsyncExitStack() as stack:
        database = await Database.connect(url)
        stack.push_async_callback(database.close)
        await migrate(database)
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        key_file = directory / "app.pem"
        made = scene(key_file, world.accounts)
        made.github.hooks.take()
        github, github_url = await stack.enter_async_context(
            process("bench.dispatch_github", str(key_file), str(world.accounts))
        )
        environment = {
            "PADDOCK_CONFIG": config(directory, made.app.id, key_file, github_url),
            "PADDOCK_DATABASE_URL": url,
        }
        say(f"{world.name}: paddock reads {world.accounts:,} accounts")
        async with process("bench.fleet_server", **environment):
            await _all_known(database, world)
        store = PgStore(database, clock=SystemClock(), ids=SystemIds(), actor="bench")
        for number in range(world.pools):
            await store.apply_pool(pool_facts(number, 0))
        say(f"{world.name}: {world.history:,} jobs of history, {world.busy:,} busy Pods")
        async with session(url) as connection:
            busy = await write_history(
                connection,
                [(each.id, each.full_name) for each in made.repositories],
                jobs=world.history,
                busy=world.busy,
            )
            await connection.execute("CHECKPOINT")
        replicas = []
        for _ in range(world.replicas):
            started, server_url = await stack.enter_async_context(
                process("bench.fleet_server", **environment)
            )
            assert started.stdin is not None
            assert started.stdout is not None
            replicas.append(
                _Process(started.pid, port_of(server_url), started.stdin, started.stdout)
            )
        place = Site(
            world=world,
            made=made,
            replicas=replicas,
            parts={
                **{each.pid: "server" for each in replicas},
                postgres.pid: "postgres",
                github.pid: "github",
            },
            database=database,
        )
        stack.push_async_callback(place.stop)
        place.tell(busy, Stage.RUNNING)
        for name, _ in busy:
            place.begin(place.stay_busy(name))
        for replica in replicas:
            place.begin(place.start_ordered(replica))
        place.begin(place.scrape())
        say(f"{world.name}: {world.idle:,} idle Pods")
        await place.fill()
        yield place


async def _all_known(database: Database, world: World) -> None:
    async with asyncio.timeout(300):
        while True:
            async with database.transaction() as connection:
                known = await connection.fetchval("SELECT count(*) FROM installations")
            if known >= world.accounts:
                return
            await asyncio.sleep(0.2)
