"""The local fleet with real processes. Where the agent's own behaviour does not matter, a few lines of
shell replace it."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from paddock.domain.ids import RunnerId
from paddock.domain.limits import Resources
from paddock.domain.names import PodName
from paddock.domain.pods.fingerprints import Certainty, ever_started, fingerprint
from paddock.domain.pods.pod import Audience, Phase, Pod, PodOrder
from paddock.domain.runners.endings import Ending, EndingEvidence, classify
from paddock.fakes.github import FakeGitHub, JobSpec
from paddock.fakes.github.records import Step
from paddock.fakes.github.server import serving, wall_clock
from paddock.fleet.local import fleet as fleet_module
from paddock.fleet.local import processes
from paddock.fleet.local.fleet import LocalFleet, Programs
from paddock.fleet.local.pod_scan import START_PATIENCE
from paddock.fleet.local.reviewer import LocalReviewer
from paddock.fleet.local.shares import NoCgroup, cgroup_for_runners, give_back
from paddock.ports import Fleet, FleetUnavailable, Reviewer
from paddock.system import SystemClock, SystemIds
from tests.support.processes import processes_in

pytestmark = pytest.mark.slow

_PATIENCE = 30.0

STAGE = """echo 'exec "$@"' > stage/run; echo jit > stage/jit"""
#: Polls until it finds a file, as if it were work.
UNTIL_WORK = f"while ! [ -e work/go ]; do sleep 0.02; done; {STAGE}"


class ShiftedClock(SystemClock):
    """The real time, moved on."""

    def __init__(self) -> None:
        self.by = timedelta()

    def now(self) -> datetime:
        return super().now() + self.by


def shell(script: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", script)


def programs(poller: str = STAGE) -> Programs:
    return Programs(poller=shell(poller), vitals=None)


@dataclass
class Machine:
    root: Path
    clock: ShiftedClock

    async def fleet(
        self,
        runner: str = "true",
        *,
        poller: str = STAGE,
        grace: float = 20.0,
        cgroup_parent: Path | None = None,
    ) -> LocalFleet:
        fleet = LocalFleet(
            self.root,
            programs(poller),
            clock=self.clock,
            ids=SystemIds(),
            runner=shell(runner),
            grace=grace,
            cgroup_parent=cgroup_parent,
        )
        await fleet.open()
        return fleet

    def directory(self, pod: Pod) -> Path:
        return self.root / pod.name

    def go(self, pod: Pod) -> None:
        (self.directory(pod) / "work" / "go").touch()

    def leader(self, pod: Pod) -> int:
        return int(json.loads((self.directory(pod) / "status.json").read_text())["leaders"][-1][0])

    def supervisor(self, pod: Pod) -> int:
        return int(json.loads((self.directory(pod) / "status.json").read_text())["supervisor"][0])


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    machine = Machine(tmp_path / "runners", ShiftedClock())
    try:
        yield machine
    finally:
        with suppress(FleetUnavailable):
            await (await machine.fleet()).stop_all()


def order(name: str = "linux-1", **spec: Any) -> PodOrder:
    return PodOrder(
        runner=RunnerId(SystemIds().uuid()),
        name=PodName(name),
        pool="linux",
        spec=json.dumps({"labels": ["linux"], "resources": {}, **spec}),
    )


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(_PATIENCE):
        while not condition():  # noqa: ASYNC110 - it looks at other processes
            await asyncio.sleep(0.02)


async def seen(fleet: LocalFleet, name: str, condition: Callable[[Pod], bool]) -> Pod:
    """The Pod, as soon as it looks like that in a list."""
    async with asyncio.timeout(_PATIENCE):
        while True:
            pods = {pod.name: pod for pod in (await fleet.list()).pods}
            if name in pods and condition(pods[PodName(name)]):
                return pods[PodName(name)]
            await asyncio.sleep(0.02)


async def ended(fleet: LocalFleet, name: str = "linux-1") -> Pod:
    return await seen(fleet, name, lambda pod: pod.phase.terminal)


async def gone(fleet: LocalFleet, name: str) -> None:
    async with asyncio.timeout(_PATIENCE):
        while name in [pod.name for pod in (await fleet.list()).pods]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def running(fleet: LocalFleet, name: str = "linux-1") -> Pod:
    return await seen(fleet, name, lambda pod: pod.phase is Phase.RUNNING)


async def polling(fleet: LocalFleet, name: str = "linux-1") -> Pod:
    def is_polling(pod: Pod) -> bool:
        return pod.poller is not None and pod.poller.state.running is not None

    return await seen(fleet, name, is_polling)


def alive(pid: int) -> bool:
    return processes.start_mark(pid) is not None


async def test_it_is_a_fleet_and_a_reviewer(machine: Machine) -> None:
    fleet: Fleet = await machine.fleet()
    reviewer: Reviewer = LocalReviewer(machine.root, machine.clock)
    assert (await fleet.list()).pods == ()
    assert await reviewer.review("unknown", peer="127.0.0.1") is None


async def test_a_life_from_polling_to_the_end(machine: Machine) -> None:
    """I55: a healthy idle Pod is Pending."""
    fleet = await machine.fleet("while ! [ -e finish ]; do sleep 0.02; done", poller=UNTIL_WORK)
    created = await fleet.create(order())
    assert (created.phase, created.pool, created.name) == (Phase.PENDING, "linux", "linux-1")

    idle = await polling(fleet)
    assert idle.phase is Phase.PENDING
    assert ever_started(idle.containers) is Certainty.NO

    machine.go(idle)
    busy = await running(fleet)
    assert busy.poller is not None
    assert busy.poller.state.terminated is not None
    assert busy.poller.state.terminated.exit_code == 0
    assert ever_started(busy.containers) is Certainty.YES
    assert fingerprint(busy.containers) is None

    (machine.directory(busy) / "work" / "finish").touch()
    done = await ended(fleet)
    assert (done.phase, done.uid, done.reason) == (Phase.SUCCEEDED, created.uid, None)
    end = fingerprint(done.containers)
    assert end is not None
    assert (end.exit_code, end.signal, end.reason) == (0, None, "Completed")
    assert end.finished_at is not None
    await until(lambda: not processes_in(machine.root))


@pytest.mark.parametrize(
    ("script", "code", "number", "ending"),
    [
        ("exit 3", 3, None, Ending.CRASH),
        ("exit 102", 102, None, Ending.COMPLETED),
        ("exit 7", 7, None, Ending.RUNNER_OUTDATED),
        ("kill -KILL $$", 137, signal.SIGKILL, Ending.GUEST_OOM_OR_KILL),
        ("kill -TERM $$", 143, signal.SIGTERM, Ending.TERMINATED),
        ("kill -SEGV $$", 139, signal.SIGSEGV, Ending.CRASH),
        ("no-such-program", 127, None, Ending.CRASH),
    ],
)
async def test_an_end_is_recorded_as_it_was(
    machine: Machine, script: str, code: int, number: int | None, ending: Ending
) -> None:
    """S3, I58"""
    fleet = await machine.fleet(script)
    await fleet.create(order())
    pod = await ended(fleet)
    end = fingerprint(pod.containers)
    assert end is not None
    assert (pod.phase, end.exit_code, end.signal, end.reason) == (
        Phase.FAILED,
        code,
        number,
        "Error",
    )
    evidence = EndingEvidence(fingerprint=end, job=Certainty.YES, lost_communication=Certainty.NO)
    assert classify(evidence).ending is ending


async def test_a_runner_is_on_record_before_it_runs(machine: Machine) -> None:
    """I34: one that is taken for never started may be deleted."""
    fleet = await machine.fleet("cat ../status.json")
    pod = await fleet.create(order())
    await ended(fleet)
    said = await fleet.log_tail(pod.name, uid=pod.uid, lines=9, most_bytes=65536)
    assert said is not None
    found = json.loads(said)
    assert found["phase"] == "Running"
    assert "running" in found["runner"]["state"]


async def test_a_poller_that_leaves_starts_no_runner(machine: Machine) -> None:
    """I24"""
    fleet = await machine.fleet("touch ../ran", poller=f"{STAGE}; exit 79")
    await fleet.create(order())
    pod = await ended(fleet)
    assert pod.phase is Phase.FAILED
    assert ever_started(pod.containers) is Certainty.NO
    assert pod.poller is not None
    assert pod.poller.state.terminated is not None
    assert pod.poller.state.terminated.exit_code == 79
    assert not (machine.directory(pod) / "ran").exists()


async def test_a_poller_that_stages_nothing_starts_no_runner(machine: Machine) -> None:
    fleet = await machine.fleet("touch ../ran", poller="true")
    await fleet.create(order())
    pod = await ended(fleet)
    end = fingerprint(pod.containers)
    assert end is not None
    assert classify(EndingEvidence(fingerprint=end)).ending is Ending.NEVER_STARTED
    assert not (machine.directory(pod) / "ran").exists()


async def test_a_program_that_cannot_be_executed_is_a_start_error(machine: Machine) -> None:
    fleet = LocalFleet(
        machine.root,
        replace(programs(), start=("/no/such/shell",)),
        clock=machine.clock,
        ids=SystemIds(),
    )
    await fleet.open()
    await fleet.create(order())
    end = fingerprint((await ended(fleet)).containers)
    assert end is not None
    assert (end.exit_code, end.reason) == (128, "StartError")


async def test_a_single_container_runs_from_its_first_second(machine: Machine) -> None:
    fleet = await machine.fleet("exit 4", poller=f"echo asking; {UNTIL_WORK}")
    await fleet.create(order(shape="single"))
    idle = await running(fleet)
    assert idle.containers == (idle.poller,)
    assert ever_started(idle.containers) is Certainty.YES
    machine.go(idle)
    done = await ended(fleet)
    end = fingerprint(done.containers)
    assert end is not None
    assert (end.exit_code, done.containers[0].name) == (4, "runner")
    assert await fleet.log_tail(done.name, uid=done.uid, lines=9, most_bytes=99) == "asking\n"


async def test_a_log_that_cannot_be_read_is_not_a_log_that_is_not_there(machine: Machine) -> None:
    """I79: the first is asked for again, the second is not."""
    fleet = await machine.fleet("echo hello; exit 139")
    pod = await fleet.create(order())
    await ended(fleet)
    log = machine.directory(pod) / "runner.log"
    log.rename(machine.directory(pod) / "kept")
    assert await fleet.log_tail(pod.name, uid=pod.uid, lines=9, most_bytes=99) is None
    log.mkdir()
    with pytest.raises(FleetUnavailable):
        await fleet.log_tail(pod.name, uid=pod.uid, lines=9, most_bytes=99)


async def test_a_pool_may_name_its_own_runner(machine: Machine) -> None:
    fleet = await machine.fleet("exit 1")
    await fleet.create(order(runnerCommand=["/bin/sh", "-c", "exit 5"]))
    end = fingerprint((await ended(fleet)).containers)
    assert end is not None
    assert end.exit_code == 5


async def test_creating_twice_makes_one_pod(machine: Machine) -> None:
    fleet = await machine.fleet("echo run >> ../runs")
    first = await fleet.create(order())
    again = await asyncio.gather(*(fleet.create(order()) for _ in range(5)))
    done = await ended(fleet)
    assert {pod.uid for pod in again} == {first.uid} == {done.uid}
    assert (await fleet.create(order())).phase is Phase.SUCCEEDED
    assert (machine.directory(done) / "runs").read_text() == "run\n"
    assert [entry.name for entry in machine.root.iterdir()] == ["linux-1"]


_CREATE_AND_DIE = """
    import asyncio, os, signal, sys
    from pathlib import Path
    from uuid import UUID
    from paddock.domain.pods.pod import PodOrder
    from paddock.fleet.local.fleet import LocalFleet, Programs
    from paddock.system import SystemClock, SystemIds

    async def main():
        fleet = LocalFleet(
            Path(sys.argv[1]),
            Programs(poller=("/bin/sh", "-c", sys.argv[2]), vitals=None),
            clock=SystemClock(),
            ids=SystemIds(),
            runner=("/bin/sh", "-c", sys.argv[3]),
        )
        await fleet.open()
        pod = await fleet.create(
            PodOrder(runner=UUID(int=1), name="linux-1", pool="linux", spec='{"labels": ["linux"]}')
        )
        print(pod.uid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(main())
"""


async def test_a_runner_outlives_a_killed_server_and_is_adopted(machine: Machine) -> None:
    """I64: its exit code is kept although no server waited for it."""
    command = [sys.executable, "-c", textwrap.dedent(_CREATE_AND_DIE), str(machine.root)]
    server = subprocess.run(
        [*command, UNTIL_WORK, "exit 102"],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        start_new_session=True,
    )
    assert server.returncode == -signal.SIGKILL
    fleet = await machine.fleet()
    idle = await polling(fleet)
    assert idle.uid == server.stdout.strip()
    # Neither Ctrl-C nor the end of the server's terminal would have reached it.
    assert os.getsid(machine.supervisor(idle)) == machine.supervisor(idle)
    machine.go(idle)
    end = fingerprint((await ended(fleet)).containers)
    assert end is not None
    assert end.exit_code == 102


async def test_a_pod_of_another_uid_is_not_deleted(machine: Machine) -> None:
    """I36"""
    fleet = await machine.fleet("sleep 1000")
    pod = await fleet.create(order())
    await running(fleet)
    await fleet.delete_live_pod(pod.name, uid="another")
    await fleet.delete_live_pod(PodName("linux-2"), uid=pod.uid)
    await asyncio.sleep(0.3)
    [left] = (await fleet.list()).pods
    assert (left.phase, left.deletion_requested_at) == (Phase.RUNNING, None)


async def test_a_busy_pod_that_is_deleted_ends_in_good_order_and_is_seen_to(
    machine: Machine,
) -> None:
    """I59, and I30: its end can be read before it is gone."""
    script = "trap 'sleep 0.2; echo bye; exit 143' TERM; echo hello; while :; do sleep 0.05; done"
    fleet = await machine.fleet(script)
    pod = await fleet.create(order())
    await running(fleet)
    await until(lambda: "hello" in (machine.directory(pod) / "runner.log").read_text())
    await fleet.delete_live_pod(pod.name, uid=pod.uid)
    [going] = (await fleet.list()).pods
    assert going.deletion_requested_at is not None
    assert going.phase is Phase.RUNNING

    done = await ended(fleet)
    assert done.deletion_requested_at == going.deletion_requested_at
    end = fingerprint(done.containers)
    assert end is not None
    assert (end.exit_code, end.signal) == (143, None)
    tail = await fleet.log_tail(pod.name, uid=pod.uid, lines=10, most_bytes=1000)
    assert tail == "hello\nbye\n"

    await until(lambda: not processes_in(machine.root))
    await fleet.reap(pod.name, uid="another")
    assert len((await fleet.list()).pods) == 1
    await fleet.reap(pod.name, uid=pod.uid)
    assert (await fleet.list()).pods == ()
    assert list(machine.root.iterdir()) == []
    await fleet.reap(pod.name, uid=pod.uid)


async def test_only_the_first_process_is_told_to_stop(machine: Machine) -> None:
    """A step that got the signal too would fail where its job should be cancelled."""
    step = "trap 'echo step was told' TERM; while [ -e ../token-of-life ]; do sleep 0.02; done"
    script = f"trap 'rm ../token-of-life; wait; exit 143' TERM; ({step}) & echo hello; wait"
    fleet = await machine.fleet(f"touch ../token-of-life; {script}")
    pod = await fleet.create(order())
    await until(lambda: b"hello" in _read(machine.directory(pod) / "runner.log"))
    await fleet.delete_live_pod(pod.name, uid=pod.uid)
    end = fingerprint((await ended(fleet)).containers)
    assert end is not None
    assert end.exit_code == 143
    assert _read(machine.directory(pod) / "runner.log") == b"hello\n"


async def test_an_idle_pod_that_is_deleted_starts_no_runner(machine: Machine) -> None:
    fleet = await machine.fleet("touch ../ran", poller=f"trap 'exit 0' TERM; {UNTIL_WORK}")
    pod = await fleet.create(order())
    await polling(fleet)
    await fleet.delete_live_pod(pod.name, uid=pod.uid)
    done = await ended(fleet)
    assert done.phase is Phase.FAILED
    assert ever_started(done.containers) is Certainty.NO
    assert not (machine.directory(pod) / "ran").exists()


async def test_a_deletion_asked_for_before_the_supervisor_is_up_is_not_lost(
    machine: Machine,
) -> None:
    fleet = await machine.fleet("touch ../ran", poller=UNTIL_WORK)
    pod = await fleet.create(order())
    await fleet.delete_live_pod(pod.name, uid=pod.uid)
    # Without a look of the fleet's, which would tell it once more.
    status = machine.directory(pod) / "status.json"
    await until(lambda: b'"phase": "Failed"' in _read(status))


async def test_a_runner_that_will_not_stop_is_killed_after_the_grace_period(
    machine: Machine,
) -> None:
    fleet = await machine.fleet("trap '' TERM; while :; do sleep 0.05; done", grace=0.4)
    pod = await fleet.create(order())
    await running(fleet)
    await asyncio.sleep(0.2)
    await fleet.delete_live_pod(pod.name, uid=pod.uid)
    end = fingerprint((await ended(fleet)).containers)
    assert end is not None
    assert (end.exit_code, end.signal) == (137, signal.SIGKILL)
    await until(lambda: not processes_in(machine.root))


async def test_a_killed_runner_takes_its_processes_along(machine: Machine) -> None:
    """Also a daemon that left its process group, and whose parent is gone."""
    daemon = "setsid sh -c 'echo $$ > ../daemon; sleep 1000' &"
    fleet = await machine.fleet(f"({daemon}); sleep 1000 & echo $! > ../child; wait")
    pod = await fleet.create(order())
    files = [machine.directory(pod) / name for name in ("daemon", "child")]
    await until(lambda: all(_read(file).endswith(b"\n") for file in files))
    pids = [int(_read(file)) for file in files]
    assert all(map(alive, pids))
    os.kill(machine.leader(pod), signal.SIGKILL)
    done = await ended(fleet)
    end = fingerprint(done.containers)
    assert end is not None
    assert (end.exit_code, end.signal, end.reason) == (137, signal.SIGKILL, "Error")
    assert not any(map(alive, pids))
    assert not processes.marked_with(pod.uid)


async def test_a_killed_supervisor_is_a_lost_node(machine: Machine) -> None:
    """There is no record of the runner's end, and it does not go on unseen (I58)."""
    fleet = await machine.fleet("(setsid sleep 1000 &); sleep 1000")
    pod = await fleet.create(order())
    await running(fleet)
    await until(lambda: len(processes.marked_with(pod.uid)) == 3)
    os.kill(machine.supervisor(pod), signal.SIGKILL)
    done = await ended(fleet)
    assert not processes.marked_with(pod.uid)
    assert (done.phase, done.reason) == (Phase.FAILED, "NodeLost")
    end = fingerprint(done.containers)
    assert end is not None
    assert end.reason == "ContainerStatusUnknown"
    assert ever_started(done.containers) is Certainty.YES
    evidence = EndingEvidence(fingerprint=end, pod_reason=done.reason or "")
    assert classify(evidence).ending is Ending.NODE_LOST


async def test_a_supervisor_killed_while_polling_leaves_a_runner_that_never_started(
    machine: Machine,
) -> None:
    fleet = await machine.fleet(poller=UNTIL_WORK)
    pod = await fleet.create(order())
    await polling(fleet)
    os.kill(machine.supervisor(pod), signal.SIGKILL)
    done = await ended(fleet)
    assert ever_started(done.containers) is Certainty.NO
    await until(lambda: not processes_in(machine.root))


async def test_a_pid_that_is_anothers_by_now_is_left_alone(machine: Machine) -> None:
    stranger = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        mark = processes.start_mark(stranger.pid)
        assert mark is not None
        processes.send(stranger.pid, "another boot/1", signal.SIGKILL)
        assert processes.end_all("no-such-uid", [(stranger.pid, "another boot/1")])
        with pytest.raises(subprocess.TimeoutExpired):
            stranger.wait(0.3)
        processes.send(stranger.pid, mark, signal.SIGKILL)
        assert stranger.wait() == -signal.SIGKILL
        assert processes.start_mark(stranger.pid) is None
    finally:
        stranger.kill()
        stranger.wait()


async def test_a_pod_without_a_supervisor_fails_and_never_runs(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server killed between making the directory and starting its supervisor."""
    fleet = await machine.fleet("touch ../ran")
    with monkeypatch.context() as patch:
        patch.setattr(fleet, "_start_supervisor", lambda _: None)
        pod = await fleet.create(order())
    assert [pod.phase for pod in (await fleet.list()).pods] == [Phase.PENDING]
    machine.clock.by = START_PATIENCE
    [failed] = (await fleet.list()).pods
    assert (failed.phase, failed.reason) == (Phase.FAILED, "SupervisorFailed")
    assert ever_started(failed.containers) is Certainty.NO
    late = [sys.executable, "-m", "paddock.fleet.local.supervisor", str(machine.directory(pod))]
    subprocess.run(late, check=True)
    assert (await fleet.list()).pods == (failed,)
    assert not (machine.directory(pod) / "ran").exists()


async def test_processes_whose_directory_was_removed_end(machine: Machine) -> None:
    """I28: no server could find them any more."""
    fleet = await machine.fleet("touch ../started; sleep 1000")
    pod = await fleet.create(order())
    await until((machine.directory(pod) / "started").exists)
    supervisor = machine.supervisor(pod)
    shutil.rmtree(machine.directory(pod))
    with suppress(ProcessLookupError):
        os.kill(supervisor, signal.SIGCHLD)  # look now, not in a few seconds
    await until(lambda: not alive(supervisor) and not processes.marked_with(pod.uid))


async def test_a_directory_that_is_moved_takes_no_job_along(machine: Machine) -> None:
    fleet = await machine.fleet("while ! [ -e ../finish ]; do sleep 0.02; done; exit 100")
    pod = await fleet.create(order())
    await running(fleet)
    supervisor = machine.supervisor(pod)
    machine.root = machine.root.rename(machine.root.with_name("elsewhere"))
    os.kill(supervisor, signal.SIGCHLD)
    await asyncio.sleep(0.3)
    moved = await machine.fleet()
    assert [each.phase for each in (await moved.list()).pods] == [Phase.RUNNING]
    (machine.directory(pod) / "finish").touch()
    end = fingerprint((await ended(moved)).containers)
    assert end is not None
    assert end.exit_code == 100


async def test_the_servers_secrets_are_not_in_a_jobs_environment(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I21; and what asks for work is gone before a job could read it."""
    monkeypatch.setenv("PADDOCK_GITHUB_WEBHOOK_SECRET", "sesame")
    monkeypatch.setenv("PGPASSWORD", "sesame")
    fleet = await machine.fleet("env; ls ..; cat ../token")
    pod = await fleet.create(order())
    await ended(fleet)
    await until(lambda: not processes_in(machine.root))
    said = await fleet.log_tail(pod.name, uid=pod.uid, lines=100, most_bytes=65536)
    assert said is not None
    assert "PATH=" in said
    assert "sesame" not in said
    assert "token" not in [line for line in said.splitlines() if "=" not in line]
    left = {entry.name for entry in machine.directory(pod).iterdir()}
    assert left == {
        *("pod.json", "status.json", "lock"),
        *("poller.log", "runner.log", "supervisor.log"),
    }


async def test_a_token_is_its_pods_for_as_long_as_that_lives(machine: Machine) -> None:
    fleet = await machine.fleet(poller=UNTIL_WORK)
    pods = [await fleet.create(order(f"linux-{n}")) for n in range(3)]
    reviewer = LocalReviewer(machine.root, machine.clock)
    for pod in pods:
        for file, audience in {
            "token": Audience.DISPATCH,
            "vitals-token": Audience.VITALS,
        }.items():
            path = machine.directory(pod) / file
            assert path.stat().st_mode & 0o777 == 0o600
            identity = await reviewer.review(path.read_text(), peer="127.0.0.1")
            assert identity is not None
            assert (identity.pod_name, identity.pod_uid) == (pod.name, pod.uid)
            assert identity.audience is audience
            assert identity.expires_at > machine.clock.now() + timedelta(minutes=10)
    token = (machine.directory(pods[0]) / "token").read_text()
    for forged in ("", "x", token[:-1], token + "x", "ä", "\udcff", token.upper()):
        assert await reviewer.review(forged, peer="127.0.0.1") is None
    restarted = LocalReviewer(machine.root, machine.clock)
    assert await restarted.review(token, peer="127.0.0.1") is not None

    await polling(fleet, pods[0].name)
    await fleet.delete_live_pod(pods[0].name, uid=pods[0].uid)
    await ended(fleet, pods[0].name)
    assert await reviewer.review(token, peer="127.0.0.1") is None
    await fleet.reap(pods[0].name, uid=pods[0].uid)
    await gone(fleet, pods[0].name)
    assert await reviewer.review(token, peer="127.0.0.1") is None

    again = await fleet.create(order(pods[0].name))
    successor = await reviewer.review(
        (machine.directory(again) / "token").read_text(), peer="127.0.0.1"
    )
    assert successor is not None
    assert successor.pod_uid == again.uid
    assert await reviewer.review(token, peer="127.0.0.1") is None


async def test_a_token_that_cannot_be_looked_up_is_no_no(machine: Machine) -> None:
    reviewer = LocalReviewer(machine.root, machine.clock)
    with pytest.raises(FleetUnavailable, match="could not review"):
        await reviewer.review("any", peer="127.0.0.1")
    fleet = await machine.fleet(poller=UNTIL_WORK)
    whole, damaged = await fleet.create(order("linux-1")), await fleet.create(order("linux-2"))
    token = (machine.directory(whole) / "token").read_text()
    (machine.directory(damaged) / "pod.json").write_text("{")
    with pytest.raises(FleetUnavailable, match="damaged"):
        await reviewer.review("may be of the damaged one", peer="127.0.0.1")
    assert await reviewer.review(token, peer="127.0.0.1") is not None


async def test_a_list_that_misses_something_says_so(machine: Machine) -> None:
    """I29"""
    fleet = await machine.fleet(poller=UNTIL_WORK)
    await fleet.create(order("linux-1"))
    damaged = await fleet.create(order("linux-2"))
    await polling(fleet, "linux-2")
    whole = (machine.directory(damaged) / "pod.json").read_bytes()
    (machine.directory(damaged) / "pod.json.new").write_text("{")
    (machine.directory(damaged) / "pod.json.new").rename(machine.directory(damaged) / "pod.json")
    pods = await fleet.list()
    assert ([pod.name for pod in pods.pods], pods.complete) == (["linux-1"], False)
    (machine.directory(damaged) / "pod.json").write_bytes(whole)
    (machine.directory(damaged) / "anything").touch()
    pods = await fleet.list()
    assert (sorted(pod.name for pod in pods.pods), pods.complete) == (["linux-1", "linux-2"], True)

    away = machine.root.with_name("away")
    machine.root.rename(away)
    with pytest.raises(FleetUnavailable, match="could not list the Pods"):
        await fleet.list()
    away.rename(machine.root)


async def test_what_is_no_pods_directory_is_not_taken_for_one(machine: Machine) -> None:
    fleet = await machine.fleet()
    for name in ("lost+found", ".new-abandoned", ".gone-abandoned"):
        (machine.root / name).mkdir()
    old = machine.clock.now().timestamp() - 3600
    os.utime(machine.root / ".new-abandoned", (old, old))
    pods = await fleet.list()
    assert (pods.pods, pods.complete) == ((), True)
    await fleet.open()
    assert {entry.name for entry in machine.root.iterdir()} == {"lost+found", ".gone-abandoned"}
    (machine.root / "linux-7").mkdir()
    assert not (await fleet.list()).complete


@asynccontextmanager
async def watching(fleet: LocalFleet) -> AsyncIterator[asyncio.Queue[Pod]]:
    queue: asyncio.Queue[Pod] = asyncio.Queue()

    async def watch() -> None:
        async for pod in fleet.watch():
            queue.put_nowait(pod)

    task = asyncio.create_task(watch())
    try:
        yield queue
    finally:
        task.cancel()


async def following(queue: asyncio.Queue[Pod], phase: Phase) -> Pod:
    async with asyncio.timeout(_PATIENCE):
        while (pod := await queue.get()).phase is not phase:
            pass
    return pod


async def test_a_watch_tells_of_every_change(machine: Machine) -> None:
    fleet = await machine.fleet("sleep 1000", poller=UNTIL_WORK)
    before = await fleet.create(order("linux-1"))
    async with watching(fleet) as pods:
        assert (await following(pods, Phase.PENDING)).uid == before.uid
        machine.go(before)
        assert (await following(pods, Phase.RUNNING)).uid == before.uid
        await fleet.stamp(before.name, uid=before.uid, owner="octo-org")
        async with asyncio.timeout(_PATIENCE):
            while (await pods.get()).owner != "octo-org":
                pass
        await fleet.delete_live_pod(before.name, uid=before.uid)
        ended = await following(pods, Phase.FAILED)
        assert ended.deletion_requested_at is not None
        await fleet.reap(before.name, uid=before.uid)
        gone = await following(pods, Phase.UNKNOWN)
        assert (gone.uid, gone.reason) == (before.uid, "deleted")


async def test_a_watch_does_not_take_the_unreadable_for_deleted(machine: Machine) -> None:
    """I29"""
    fleet = await machine.fleet(poller=UNTIL_WORK)
    pod = await fleet.create(order())
    await polling(fleet)
    async with watching(fleet) as pods:
        await following(pods, Phase.PENDING)
        path = machine.directory(pod) / "pod.json"
        whole = path.read_bytes()
        path.unlink()
        await asyncio.sleep(3 * fleet_module.WATCH_EVERY)
        path.write_bytes(whole)
        machine.go(pod)
        async with asyncio.timeout(_PATIENCE):
            while (change := await pods.get()).phase is not Phase.SUCCEEDED:
                assert change.phase is not Phase.UNKNOWN


async def test_a_watch_notices_a_killed_supervisor(machine: Machine) -> None:
    fleet = await machine.fleet("sleep 1000")
    pod = await fleet.create(order())
    async with watching(fleet) as pods:
        await following(pods, Phase.RUNNING)
        os.kill(machine.supervisor(pod), signal.SIGKILL)
        assert (await following(pods, Phase.FAILED)).reason == "NodeLost"


async def test_a_stamp_is_the_owners_label(machine: Machine) -> None:
    fleet = await machine.fleet(poller=UNTIL_WORK)
    pod = await fleet.create(order())
    assert pod.owner is None
    await fleet.stamp(pod.name, uid="another", owner="an-owner")
    await fleet.stamp(pod.name, uid=pod.uid, owner="octo-org")
    assert [each.owner for each in (await fleet.list()).pods] == ["octo-org"]
    labels = json.loads((machine.directory(pod) / "pod.json").read_text())["labels"]
    assert labels == {"paddock.dev/owner": "octo-org"}


async def test_a_log_tail_is_bounded_and_is_text(machine: Machine) -> None:
    """S4"""
    fleet = await machine.fleet(r"seq 1 1000; printf 'caf\303\251 \377\000 end'", poller=UNTIL_WORK)
    pod = await fleet.create(order())
    await polling(fleet)
    assert await fleet.log_tail(pod.name, uid=pod.uid, lines=5, most_bytes=100) is None
    machine.go(pod)
    await ended(fleet)

    async def tail(lines: int, most_bytes: int) -> str | None:
        return await fleet.log_tail(pod.name, uid=pod.uid, lines=lines, most_bytes=most_bytes)

    assert await tail(3, 1000) == "999\n1000\ncafé \ufffd\ufffd end"
    assert await tail(2000, 20) == "000\ncafé \ufffd\ufffd end"
    assert await tail(1, 5) == " end"
    assert await tail(0, 1000) == ""
    assert await tail(10, 0) == ""
    everything = await tail(2000, 65536)
    assert everything is not None
    assert everything.startswith("1\n2\n3\n")
    assert await fleet.log_tail(pod.name, uid="another", lines=5, most_bytes=100) is None
    assert await fleet.log_tail(PodName("none"), uid=pod.uid, lines=5, most_bytes=100) is None


async def test_a_log_is_kept_within_bounds_and_its_end_is_not_lost(machine: Machine) -> None:
    megabytes = 21
    script = f"head -c {megabytes << 20} /dev/zero | tr '\\0' x; echo; echo the end"
    fleet = await machine.fleet(script)
    pod = await fleet.create(order())
    await ended(fleet)
    kept = sum(path.stat().st_size for path in machine.directory(pod).glob("runner.log*"))
    assert 4 << 20 <= kept <= 8 << 20
    tail = await fleet.log_tail(pod.name, uid=pod.uid, lines=200, most_bytes=65536)
    assert tail is not None
    assert len(tail) == 65536
    assert tail.endswith("x\nthe end\n")


async def test_stopping_leaves_no_process_and_every_end_on_record(machine: Machine) -> None:
    fleet = await machine.fleet("trap '' TERM; (setsid sleep 1000 &) ; sleep 1000", grace=1000)
    busy = [await fleet.create(order(f"busy-{n}")) for n in range(3)]
    for pod in busy:
        await running(fleet, pod.name)
    idle_fleet = await machine.fleet(poller=UNTIL_WORK)
    idle = [await idle_fleet.create(order(f"idle-{n}")) for n in range(3)]
    just_born = await idle_fleet.create(order("just-born"))
    await fleet.delete_live_pod(busy[0].name, uid=busy[0].uid)

    await fleet.stop_all()
    assert not processes_in(machine.root)
    assert not [pid for pod in (*busy, *idle) for pid in processes.marked_with(pod.uid)]
    left = {entry.name: {file.name for file in entry.iterdir()} for entry in machine.root.iterdir()}
    assert set(left) == {pod.name for pod in (*busy, *idle, just_born)}
    records = {"pod.json", "status.json", "lock", "supervisor.log", "poller.log", "runner.log"}
    records.add("deleting")
    assert all(files <= records for files in left.values()), left

    pods = await (await machine.fleet()).list()
    assert pods.complete
    assert {pod.phase for pod in pods.pods} == {Phase.FAILED}
    assert {pod.reason for pod in pods.pods if pod.deletion_requested_at is None} == {"Terminated"}
    ends = [fingerprint(pod.containers) for pod in pods.pods if pod.name.startswith("busy")]
    assert [end.exit_code for end in ends if end is not None] == [137, 137, 137]
    await idle_fleet.stop_all()


async def test_stopping_does_not_wait_for_a_supervisor_that_hangs(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "STOP_PATIENCE", 0.5)
    fleet = await machine.fleet("sleep 1000")
    pod = await fleet.create(order())
    await running(fleet)
    os.kill(machine.supervisor(pod), signal.SIGSTOP)
    await fleet.stop_all()
    assert not processes_in(machine.root)
    assert not processes.marked_with(pod.uid)


async def test_a_hundred_runners(machine: Machine) -> None:
    fleet = await machine.fleet("exit 100", poller=UNTIL_WORK)
    pods = []
    for batch in range(10):
        orders = [order(f"linux-{batch}-{n}") for n in range(10)]
        pods += await asyncio.gather(*map(fleet.create, orders))
    for pod in pods:
        machine.go(pod)
    async with asyncio.timeout(100):
        while True:
            listed = await fleet.list()
            assert listed.complete
            assert len(listed.pods) == 100
            if all(pod.phase.terminal for pod in listed.pods):
                break
            await asyncio.sleep(0.2)
    ends = [fingerprint(pod.containers) for pod in listed.pods]
    assert {end.exit_code for end in ends if end is not None} == {100}
    await asyncio.gather(*(fleet.reap(pod.name, uid=pod.uid) for pod in pods))
    await until(lambda: not processes_in(machine.root))
    assert (await fleet.list()).pods == ()
    assert list(machine.root.iterdir()) == []


async def test_a_count_of_oom_kills_in_its_own_cgroup_is_what_makes_an_end_an_oom(
    machine: Machine, tmp_path: Path
) -> None:
    """A plain directory stands for the cgroup, and the runner for the kernel: this holds what is
    written where, and what the count is taken for; not that a kernel keeps to it."""
    parent = tmp_path / "cgroup"
    parent.mkdir()
    (parent / "cgroup.controllers").write_text("cpu memory\n")
    own = f"{parent}/pod-$LOCAL_POD_UID"
    # For any exit code: the kernel may have killed only a step.
    fleet = await machine.fleet(
        f"cat {own}/memory.max {own}/cpu.max; echo; test $$ = $(cat {own}/cgroup.procs) || exit 9; "
        f"printf 'oom 1\\noom_kill 1\\n' > {own}/memory.events; exit 102",
        cgroup_parent=parent,
    )
    cost = Resources(memory_mib=64, vcpu_milli=500)
    pod = await fleet.create(replace(order(), cost=cost))
    end = fingerprint((await ended(fleet)).containers)
    assert end is not None
    assert (end.exit_code, end.reason) == (102, "OOMKilled")
    assert classify(EndingEvidence(fingerprint=end)).ending is Ending.HOST_OOM
    tail = await fleet.log_tail(pod.name, uid=pod.uid, lines=9, most_bytes=999)
    assert tail == f"{64 << 20}50000 100000\n"


async def test_where_a_limit_was_asked_for_nothing_runs_without_it(
    machine: Machine, tmp_path: Path
) -> None:
    fleet = await machine.fleet("touch ../ran", cgroup_parent=tmp_path / "none")
    pod = await fleet.create(order())
    end = fingerprint((await ended(fleet)).containers)
    assert end is not None
    assert (end.exit_code, end.reason) == (128, "StartError")
    assert not (machine.directory(pod) / "ran").exists()


@pytest.fixture
def cgroup() -> Iterator[Path]:
    try:
        parent = cgroup_for_runners(f"test-{os.getpid()}")
    except NoCgroup as reason:
        pytest.skip(f"no cgroup is ours to divide: {reason}")
    yield parent
    give_back(parent)
    assert not parent.exists()


async def test_a_killed_supervisor_leaves_no_cgroup_behind(machine: Machine, cgroup: Path) -> None:
    fleet = await machine.fleet("sleep 600", cgroup_parent=cgroup)
    pod = await fleet.create(replace(order(), cost=Resources(memory_mib=64)))
    await seen(fleet, pod.name, lambda each: each.phase is Phase.RUNNING)
    assert list(cgroup.glob("pod-*"))
    os.kill(machine.supervisor(pod), signal.SIGKILL)
    await ended(fleet)
    assert not list(cgroup.glob("pod-*"))


async def test_a_pod_that_reaches_its_memory_limit_is_known_to_have(
    machine: Machine, cgroup: Path
) -> None:
    eat = f"exec {sys.executable} -c 'x = b\"x\" * (256 << 20)'"
    parent = cgroup
    fleet = await machine.fleet(eat, cgroup_parent=parent)
    await fleet.create(replace(order(), cost=Resources(memory_mib=64)))
    end = fingerprint((await ended(fleet)).containers)
    assert end is not None
    assert (end.exit_code, end.reason) == (137, "OOMKilled")
    assert classify(EndingEvidence(fingerprint=end)).ending is Ending.HOST_OOM
    assert not list(parent.glob("pod-*"))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


class Dispatch:
    """The part of the dispatch endpoint that one Pod needs."""

    def __init__(self, github: FakeGitHub, reviewer: LocalReviewer) -> None:
        self._github = github
        self._reviewer = reviewer
        self.requests: list[tuple[str, str, Any]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:])}
        body = await reader.readexactly(int(headers["content-length"]))
        path = head[0].split()[1].partition("?")[0]
        identity = await self._reviewer.review(
            headers["authorization"].removeprefix("Bearer "), peer="127.0.0.1"
        )
        audience = Audience.VITALS if path == "/v1/vitals" else Audience.DISPATCH
        answer: dict[str, str] = {}
        if identity is None or identity.audience is not audience:
            status = "401 Unauthorized"
        else:
            status = "200 OK"
            self.requests.append((path, identity.pod_name, json.loads(body or b"null")))
            if path == "/v1/dispatch":
                answer = self._mint(identity.pod_name)
        content = json.dumps(answer).encode()
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(content)}\r\n\r\n".encode())
        writer.write(content)
        await writer.drain()
        writer.close()

    def _mint(self, pod: str) -> dict[str, str]:
        organization = self._github.world.account("octo-org")
        assert organization is not None
        group = self._github.world.groups[organization.id][0]
        minted = self._github.runners.mint(
            organization, name=f"{pod}-1", group=group, labels=["linux"]
        )
        return {
            "delivery": "d1",
            "runner_name": f"{pod}-1",
            "jit": minted.encoded_jit_config,
        }


@pytest.mark.parametrize(
    ("script", "die", "code"),
    [("sleep 1", None, 100), ("sleep 1; exit 3", None, 102), ("sleep 1", "sigkill", 137)],
)
async def test_agent_and_runner_execute_a_job(
    machine: Machine, script: str, die: str | None, code: int
) -> None:
    """The agent polls with the Pod's own token, the fake runner runs a job of the fake GitHub."""
    github = FakeGitHub(now=wall_clock, rng=random.Random(1))
    dispatch = Dispatch(github, LocalReviewer(machine.root, machine.clock))
    server = await asyncio.start_server(dispatch.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    fleet = LocalFleet(
        machine.root,
        Programs.of_agent(),
        clock=machine.clock,
        ids=SystemIds(),
        environment={"PADDOCK_SAMPLE_SECONDS": "1"},
    )
    async with server, serving(github):
        app = github.accounts.add_app("paddock")
        organization = github.accounts.add_organization("octo-org")
        repository = github.accounts.add_repository(organization, "hello")
        github.accounts.install(app, organization)
        spec = JobSpec(name="build", labels=("linux",), steps=(Step("a", script),), die=die)
        job = github.jobs.queue_run(repository, [spec]).jobs[0]

        await fleet.open()
        await fleet.announce(f"http://127.0.0.1:{port}")
        pod = await fleet.create(order())
        done = await ended(fleet)
        end = fingerprint(done.containers)
        assert end is not None, done
        assert end.exit_code == code
        assert job.runner is not None
        assert job.runner.name == "linux-1-1"
        tail = await fleet.log_tail(pod.name, uid=pod.uid, lines=200, most_bytes=65536)
        assert tail is not None
        assert "Running job: build" in tail
        paths = [path for path, name, _ in dispatch.requests if name == "linux-1"]
        assert paths[:2] == ["/v1/dispatch", "/v1/dispatch/ack"]
        # The sidecar's last report is still taken for its Pod's.
        [*_, last] = [body for path, _, body in dispatch.requests if path == "/v1/vitals"]
        assert last["job_started_at"] is not None
