"""The fleet of one machine: runners as supervised processes, for `paddock up` and trusted machines.

The state is in the Pods' directories and in the processes, never in this object: a server that replaces
a killed one finds everything there. A supervisor of its own runs each Pod (`supervisor`). This module
creates Pods, lists them, and removes them when their end is recorded.

It gives no isolation. Jobs run as paddock's user, and can read what that user can read.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal, ParamSpec, TypeVar

import msgspec
import structlog

from paddock.domain.names import PodName
from paddock.domain.pods.pod import Audience, Host, Phase, Pod, PodList, PodOrder
from paddock.domain.runners.dialects import RunnerProgram
from paddock.fleet.local import layout
from paddock.fleet.local.installation import Installation
from paddock.fleet.local.pod_directory import (
    PodDirectory,
    PodPlan,
    PodUnreadable,
    Record,
    make,
    pod_names,
    sweep,
    token_hash,
)
from paddock.fleet.local.pod_scan import PodScan, PodScanner
from paddock.ports import Clock, FleetUnavailable, Ids

_log = structlog.get_logger()
_P = ParamSpec("_P")
_T = TypeVar("_T")

#: A runner needs up to 30 s to cancel its job and sign off.
GRACE: Final = 35.0
#: Seconds between looks for changes. Two hundred Pods cost a hundredth of a core.
WATCH_EVERY: Final = 0.25
#: Seconds between checks for killed supervisors. A check takes three system calls for each Pod.
LIVENESS_EVERY: Final = 2.0
#: On SIGINT a supervisor gives its runner 3 s.
STOP_PATIENCE: Final = 8.0
#: Longer than the creation or removal of a Pod takes.
_ABANDONED: Final = timedelta(minutes=10)

SHUT_DOWN: Final = "Terminated"

#: The variables that Pods inherit from the server. The others include the App's keys and the database's
#: password.
_INHERITED: Final = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "PYTHONPATH", "DOTNET_ROOT"),
)

#: The runner for the fake GitHub; started like the real `bin/Runner.Listener run`.
FAKE_RUNNER: Final = (sys.executable, "-m", "paddock.fakes.runner", "run")


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """What a Pod runs. Poller and sidecar work in the Pod's directory, the runner in its `work`. The
    poller must leave the `staged` files."""

    poller: Sequence[str]
    vitals: Sequence[str] | None
    #: The start script; the runner's own command follows as arguments.
    start: Sequence[str] = ("/bin/sh", f"../{layout.STAGE}/run")
    staged: Sequence[str] = (f"{layout.STAGE}/run", f"{layout.STAGE}/jit")

    @staticmethod
    def of_agent() -> Programs:
        """paddock's own agent; it asks the server that was last announced (`LocalFleet.announce`)."""
        agent = (sys.executable, "-I", "-S", str(Path(__file__).parents[2] / "agent"))
        server = f"@../{layout.SERVER}"
        options = ("--server", server, "--stage", layout.STAGE, "--token-file")
        return Programs(
            poller=(*agent, "poll", *options, layout.TOKEN),
            vitals=(*agent, "vitals", *options, layout.VITALS_TOKEN),
        )


class _PoolSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The parts of a pool's description that the local fleet uses."""

    shape: Literal["gated", "single"] = "gated"
    runner_command: list[str] | None = None
    runner: Literal["actions", "act-runner"] | None = None


class LocalFleet:
    def __init__(
        self,
        root: Path,
        programs: Programs,
        *,
        clock: Clock,
        ids: Ids,
        runner: Sequence[str] | Installation = FAKE_RUNNER,
        environment: Mapping[str, str] | None = None,
        cgroup_parent: Path | None = None,
        grace: float = GRACE,
    ) -> None:
        """`runner`: for pools without a command of their own; an installation is linked into each Pod's
        directory. `environment`: further variables for Pods. `cgroup_parent`: a cgroup that paddock may
        divide (`cgroup`)."""
        self.root = root.absolute()
        self._programs = programs
        self._clock = clock
        self._ids = ids
        self._installed = runner if isinstance(runner, Installation) else None
        self._runner = runner.command if isinstance(runner, Installation) else runner
        self._program = _program_of(runner)
        self._environment = environment or {}
        self._cgroup_parent = cgroup_parent
        self._grace = grace
        #: Supervisors that are children of this process; it must wait for them when they end.
        self._supervisors: dict[str, int] = {}
        self._scanner = PodScanner(self.root, clock, starting=self._supervisors.keys())
        self._looking = asyncio.Lock()
        self._host = os.uname().nodename
        self._looked_closely = -LIVENESS_EVERY

    async def open(self) -> None:
        """Create the directory, or take over its Pods."""
        await self._ask(f"use {self.root}", self._open)

    async def announce(self, server: str) -> None:
        """Write down the server's address, which may have another port than before. Pods that outlived
        the last server find the new one by it."""
        await self._ask(
            "tell Pods where the server is",
            layout.write,
            self.root / layout.SERVER,
            f"{server}\n".encode(),
        )

    async def create(self, order: PodOrder) -> Pod:
        return await self._ask(f"create the Pod {order.name}", self._create, order)

    async def list(self) -> PodList:
        look = await self._look(closely=True)
        return PodList(pods=tuple(look.pods.values()), complete=not look.unreadable)

    async def hosts(self) -> Sequence[Host]:
        return [Host(name=self._host)]

    async def watch(self) -> AsyncIterator[Pod]:
        """Yields all Pods, then each change."""
        shown: dict[str, Pod] = {}
        while True:
            closely = self._clock.monotonic() - self._looked_closely >= LIVENESS_EVERY
            look = await self._look(closely=closely)
            for name, pod in list(shown.items()):
                now = look.pods.get(name)
                if now is None and name in look.unreadable:
                    continue
                if now is None or now.uid != pod.uid:
                    del shown[name]
                    yield replace(pod, phase=Phase.UNKNOWN, reason="deleted")
            for name, pod in look.pods.items():
                before = shown.get(name)
                if before is not pod and before != pod:
                    shown[name] = pod
                    yield pod
            await self._clock.sleep(WATCH_EVERY)

    async def delete_live_pod(self, name: PodName, *, uid: str) -> None:
        await self._ask(f"ask the Pod {name} to go", self._request_deletion, name, uid)

    async def reap(self, name: PodName, *, uid: str) -> None:
        await self._ask(f"reap the Pod {name}", self._reap, name, uid)

    async def stamp(self, name: PodName, *, uid: str, owner: str) -> None:
        await self._ask(f"stamp the Pod {name}", self._stamp, name, uid, owner)

    async def log_tail(self, name: PodName, *, uid: str, lines: int, most_bytes: int) -> str | None:
        return await self._ask(
            f"read the log of the Pod {name}", self._log_tail, name, uid, lines, most_bytes
        )

    async def stop_all(self) -> None:
        """End every Pod within seconds. Their ends stay on disk for the next start."""
        for number in (signal.SIGINT, signal.SIGKILL):
            deadline = self._clock.monotonic() + STOP_PATIENCE
            while await self._ask("stop the runners", self._speedup, number):
                if self._clock.monotonic() > deadline:
                    break  # a supervisor hangs; `_conclude_all` ends what it ran
                await self._clock.sleep(0.05)
        await self._ask("close the books", self._conclude_all)

    async def _look(self, *, closely: bool) -> PodScan:
        async with self._looking:
            if closely:
                self._looked_closely = self._clock.monotonic()
            return await self._ask("list the Pods", self._look_at_all, closely)

    def _look_at_all(self, closely: bool) -> PodScan:
        self._wait_for_supervisors()
        return self._scanner.look(closely=closely)

    async def _ask(
        self, what: str, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Call the function in a thread, since a disk can be slow. A cancelled caller still waits for
        it: a Pod under creation must not start after everything was stopped."""
        asked = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
        try:
            return await asyncio.shield(asked)
        except asyncio.CancelledError:
            await asyncio.wait({asked})
            raise
        except (OSError, PodUnreadable) as error:
            raise FleetUnavailable(f"The local fleet could not {what}: {error}.") from error

    def _open(self) -> None:
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        sweep(self.root, self._clock.now() - _ABANDONED)

    def _create(self, order: PodOrder) -> Pod:
        directory = PodDirectory.at(self.root, order.name)
        if not directory.path.exists():
            tokens = {audience: self._ids.secret() for audience in Audience}
            prepare_work = self._installed.prepare_work if self._installed else None
            if make(self.root, self._record(order, tokens), tokens, prepare_work=prepare_work):
                self._start_supervisor(directory)
        pod = directory.pod()
        if pod is None:
            raise PodUnreadable(f"{directory.path} was removed at the same moment")
        return pod

    def _record(self, order: PodOrder, tokens: Mapping[Audience, str]) -> Record:
        try:
            spec = msgspec.json.decode(order.spec, type=_PoolSpec)
        except msgspec.MsgspecError as error:
            raise PodUnreadable(
                f"the description of the pool {order.pool} is no use: {error}"
            ) from error
        return Record(
            name=order.name,
            uid=str(self._ids.uuid()),
            pool=order.pool,
            runner=str(order.runner),
            labels=order.labels,
            created_at=self._clock.now(),
            spec=order.spec,
            tokens={audience: token_hash(token) for audience, token in tokens.items()},
            runner_version=(
                self._installed.version()
                if self._installed is not None and not spec.runner_command
                else None
            ),
            plan=PodPlan(
                shape=spec.shape,
                poller=self._programs.poller,
                runner=(*self._programs.start, *(spec.runner_command or self._runner)),
                vitals=self._programs.vitals,
                staged=self._programs.staged,
                environment=_inherited() | self._named(spec) | dict(self._environment),
                grace_seconds=self._grace,
                memory_mib=order.cost.memory_mib,
                cpu_milli=order.cost.vcpu_milli,
                cgroup_parent=str(self._cgroup_parent) if self._cgroup_parent else None,
            ),
        )

    def _named(self, spec: _PoolSpec) -> dict[str, str]:
        """The program that the start script is told of. It recognises others by their files' names."""
        program = spec.runner or (self._program if spec.runner_command is None else None)
        return {"PADDOCK_RUNNER": program} if program else {}

    def _start_supervisor(self, directory: PodDirectory) -> None:
        """Start it in a session of its own: neither Ctrl-C nor the end of a terminal reaches it."""
        log = directory.path / "supervisor.log"
        try:
            self._supervisors[directory.path.name] = os.posix_spawn(
                sys.executable,
                [sys.executable, "-m", "paddock.fleet.local.supervisor", str(directory.path)],
                _inherited(),
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT, 0o600),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
                setsid=True,
            )
        except OSError:
            directory.remove()  # no process ever ran there
            raise

    def _request_deletion(self, name: PodName, uid: str) -> None:
        directory = self._of_uid(name, uid)
        if directory is not None:
            directory.request_deletion(self._clock.now())

    def _reap(self, name: PodName, uid: str) -> None:
        directory = self._of_uid(name, uid)
        if directory is not None:
            directory.let_go()

    def _stamp(self, name: PodName, uid: str, owner: str) -> None:
        directory = self._of_uid(name, uid)
        if directory is not None:
            directory.stamp(owner)

    def _log_tail(self, name: PodName, uid: str, lines: int, most_bytes: int) -> str | None:
        directory = self._of_uid(name, uid)
        return directory.log_tail(lines=lines, most_bytes=most_bytes) if directory else None

    def _of_uid(self, name: PodName, uid: str) -> PodDirectory | None:
        """The Pod with this UID; `None` for another Pod of the same name (I36)."""
        directory = PodDirectory.at(self.root, name)
        record = directory.record()
        return directory if record is not None and record.uid == uid else None

    def _wait_for_supervisors(self) -> None:
        for name, pid in list(self._supervisors.items()):
            try:
                ended = os.waitpid(pid, os.WNOHANG)[0] != 0
            except ChildProcessError:
                ended = True
            if ended:
                del self._supervisors[name]

    def _speedup(self, number: signal.Signals) -> bool:
        """Signal all supervisors; returns whether any still lives."""
        self._wait_for_supervisors()
        left = False
        for name in pod_names(self.root):
            with _tolerating(name):
                directory = PodDirectory(self.root / name)
                if name in self._supervisors or directory.supervised():
                    left = True
                    directory.tell_supervisor(number)
        return left

    def _conclude_all(self) -> None:
        for name in pod_names(self.root):
            with _tolerating(name):
                directory = PodDirectory(self.root / name)
                directory.conclude(self._clock.now(), reason=SHUT_DOWN)
                if directory.is_reaped():
                    directory.remove()


def _program_of(runner: Sequence[str] | Installation) -> RunnerProgram | None:
    if isinstance(runner, Installation):
        return runner.program
    # Ours speaks as actions/runner does, and its file is a Python.
    return RunnerProgram.ACTIONS if runner is FAKE_RUNNER else None


@contextmanager
def _tolerating(name: str) -> Iterator[None]:
    """An unreadable directory must not hold up the others (I57)."""
    try:
        yield
    except (OSError, PodUnreadable) as error:
        _log.warning("local.directory_unusable", pod=name, error=str(error))


def _inherited() -> dict[str, str]:
    return {name: os.environ[name] for name in _INHERITED if name in os.environ}
