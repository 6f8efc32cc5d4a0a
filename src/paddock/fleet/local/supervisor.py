"""What a kubelet is to a Pod, for one Pod of this machine: `python -m paddock.fleet.local.supervisor
DIRECTORY`.

It runs the poller, then, if that brought a JIT, the runner with the vitals sidecar beside it, and
writes down in status.json, in Kubernetes' words, what became of each. It is a process of its own in a
session of its own, so that jobs outlive the server that started them, however that ended.

SIGTERM is the deletion of the Pod: the container's first process is told to stop, everything is
killed when the grace period is over, and the end is written down. SIGINT is the same in a hurry, for
a fleet that shuts down. A killed supervisor is no end of its own: the fleet finds the lock free, ends
what is left and says that nobody knows how it ended.

Nothing of a runner runs before it is on record that it does: a Pod that is taken for one whose runner
never started may be deleted (I34). And nothing of a Pod runs on after its first process: what a
container would take along is killed here.

Standard library only, and little of that: there is one of these beside every runner.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from io import FileIO
from pathlib import Path
from typing import Any, NoReturn

from paddock.fleet.local import layout
from paddock.fleet.local.cgroup import Cgroup
from paddock.fleet.local.processes import POD_VARIABLE, start_mark

#: For a fleet that shuts down: a runner that is idle, or whose job heeds signals, needs a fraction.
_HURRIED_GRACE = 3.0
#: The sidecar has one last report to send, for which it takes 2 s at most.
_VITALS_GRACE = 3.0
#: Per file; with the one before it, twice that is kept. A thousand times what a verdict keeps.
_LOG_LIMIT = 4 * 1024 * 1024
#: How often it looks whether somebody took its directory away.
_LOOK_ROUND = 5.0
_RETRY_SAVING = 1.0
#: The lock is also held for a moment by a fleet that looks whether there is a supervisor.
_LOCK_PATIENCE = 2.0
#: Jobs leave the machine's other users, and the server, the first word.
_RUNNER_NICENESS = 5
#: When memory runs out the kernel takes the job, not the server, its database or a supervisor. The
#: kubelet gives containers values like this one.
_RUNNER_OOM_SCORE = 500
#: What kubelets say of a process that could not be executed.
_START_ERROR = 128

_PR_SET_CHILD_SUBREAPER = 36


class _DirectoryGone(Exception):
    """Somebody removed it by hand."""


class _Log:
    """Made at once, empty: that there is one tells that the process began to run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: FileIO | None = None
        self.write(b"")

    def write(self, said: bytes) -> None:
        # A full disk must not hold the runner up.
        with contextlib.suppress(OSError):
            if self._file is None:
                self._file = FileIO(self._path, "a")
            if self._file.tell() + len(said) > _LOG_LIMIT:
                self._file.close()
                self._file = None
                self._path.replace(self._path.with_suffix(".log.old"))
                self._file = FileIO(self._path, "a")
            self._file.write(said)


class _Child:
    """A process that waits at a gate until its life is on record."""

    def __init__(self, pid: int, gate: int, failure: int, output: int) -> None:
        self.pid = pid
        self.output = output
        self._gate = gate
        self._failure = failure

    def let_go(self) -> str | None:
        """Why it could not be executed, if so."""
        os.write(self._gate, b"!")
        os.close(self._gate)
        with os.fdopen(self._failure, "rb") as failure:
            return failure.read().decode(errors="replace") or None


class Supervisor:
    """Works in the Pod's directory and names everything from there: a directory that is moved, with
    all others perhaps, takes no job's life."""

    def __init__(self) -> None:
        self._pod: dict[str, Any] = json.loads(Path(layout.POD).read_text())
        self._plan: dict[str, Any] = self._pod["plan"]
        self._environment = {**self._plan["environment"], POD_VARIABLE: self._pod["uid"]}
        self._logs: dict[int, _Log] = {}
        self._poll = select.poll()
        self._spawned: set[int] = set()
        self._ended: dict[int, int] = {}
        self._kill_at: float | None = None
        self._reason: str | None = None
        self._status: dict[str, Any] = {
            "supervisor": [os.getpid(), start_mark(os.getpid())],
            "leaders": [],
            "phase": "Pending",
            "reason": None,
            "finishedAt": None,
            "poller": _waiting("poller"),
            "runner": _waiting("runner"),
        }

    def run(self) -> None:
        self._hear_signals()
        _adopt_orphans()
        try:
            self._live()
        except _DirectoryGone:
            _complain("its directory was taken away")
        finally:
            self._end_children()

    def _live(self) -> None:
        self._save()
        # After the first record: whoever asks for the deletion either finds our pid there, or is
        # found here.
        if Path(layout.DELETING).exists():
            self._asked_to_stop(self._plan["graceSeconds"])
        if self._contain("poller", self._plan["poller"]) == 0 and self._kill_at is None:
            self._run_runner()
        self._end("Succeeded" if _exit_code(self._status["runner"]) == 0 else "Failed")

    def _run_runner(self) -> None:
        # What asks for work never shares a place with what a job can read (I21).
        Path(layout.TOKEN).unlink(missing_ok=True)
        missing = [name for name in self._plan["staged"] if not Path(name).exists()]
        if missing:
            why = f"the poller did not leave {' and '.join(missing)}"
            self._write_down("runner", code=_START_ERROR, reason="StartError", message=why)
            return
        vitals = None
        if self._plan["vitals"]:
            vitals = self._spawn("vitals", self._plan["vitals"])
            self._remember(vitals)
            vitals.let_go()
        self._status["phase"] = "Running"
        self._contain("runner", self._plan["runner"], keep=vitals)
        if vitals is not None:
            self._dismiss(vitals)

    def _end(self, phase: str) -> None:
        self._status.update(phase=phase, reason=self._reason, finishedAt=_now())
        self._save()
        layout.clear(Path())

    def _contain(self, name: str, argv: list[str], keep: _Child | None = None) -> int:
        """Run a container to its end; its exit code."""
        try:
            cgroup = self._cgroup() if name == "runner" else None
            child = self._spawn(name, argv, cgroup)
        except OSError as error:
            self._write_down(name, code=_START_ERROR, reason="StartError", message=str(error))
            return _START_ERROR
        self._remember(child)
        state = {"running": {"startedAt": _now()}}
        self._status[name] = {"name": name, "state": state, "started": True}
        self._save()
        failure = child.let_go()
        status = self._until_its_end(child.pid)
        self._end_children(keep=keep.pid if keep else None, group=child.pid)
        self._drain(child)
        code = os.waitstatus_to_exitcode(status)
        reason = "Completed" if code == 0 else "StartError" if failure else "Error"
        if cgroup is not None:
            # Whatever the exit code: when only a job's process is killed, the runner exits with 0.
            reason = "OOMKilled" if cgroup.oom_kills() else reason
            cgroup.remove()
        self._write_down(name, code=code, reason=reason, message=failure)
        self._save()
        return code

    def _write_down(self, name: str, *, code: int, reason: str, message: str | None) -> None:
        """`code` is negative for a signal, as Python has it; kubelets say 128 + n, and may add n."""
        ended: dict[str, Any] = {"exitCode": code, "reason": reason}
        if code < 0:
            ended.update(exitCode=128 - code, signal=-code)
        if message:
            ended["message"] = message
        running = self._status[name]["state"].get("running", {})
        ended.update(running, finishedAt=_now())
        self._status[name] = {"name": name, "state": {"terminated": ended}, "started": False}

    def _cgroup(self) -> Cgroup | None:
        """Raises OSError: where a limit was asked for, nothing runs without it."""
        if self._plan["cgroupParent"] is None:
            return None
        cgroup = Cgroup(Path(self._plan["cgroupParent"]), self._pod["uid"])
        cgroup.limit(memory_mib=self._plan["memoryMib"], cpu_milli=self._plan["cpuMilli"])
        return cgroup

    def _until_its_end(self, pid: int) -> int:
        told = False
        while pid not in self._ended:
            if self._kill_at is not None:
                if not told:
                    # Only the first process, as a kubelet does: it passes the word on (I59). Steps
                    # that got it at the same time would fail where they should be cancelled.
                    _signal(pid, signal.SIGTERM)
                    told = True
                if time.monotonic() >= self._kill_at:
                    _signal(pid, signal.SIGKILL)
            self._turn(self._kill_at)
        return self._ended[pid]

    def _dismiss(self, vitals: _Child) -> None:
        _signal(vitals.pid, signal.SIGTERM)
        deadline = time.monotonic() + _VITALS_GRACE
        while vitals.pid not in self._ended and time.monotonic() < deadline:
            self._turn(deadline)
        self._end_children()

    def _end_children(self, keep: int | None = None, group: int | None = None) -> None:
        """Also those whose own parents are gone, which are ours then (`_adopt_orphans`)."""
        if group is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
        while True:
            self._reap()
            # What became another user's (sudo) is not ours to end.
            left = [pid for pid in _children() if pid != keep and _signal(pid, signal.SIGKILL)]
            if not left:
                return
            time.sleep(0.005)

    def _turn(self, until: float | None) -> None:
        """Wait for something to happen, and do what it needs."""
        seconds = _LOOK_ROUND
        if until is not None:
            seconds = min(seconds, max(0.01, until - time.monotonic()))
        for descriptor, _ in self._poll.poll(seconds * 1000):
            self._read(descriptor)
        self._reap()
        try:
            Path(layout.POD).stat()
        except FileNotFoundError:
            raise _DirectoryGone from None
        except OSError:
            pass  # a disk in trouble proves nothing

    def _read(self, descriptor: int) -> bool:
        try:
            said = os.read(descriptor, 65536)
        except BlockingIOError:
            return False
        log = self._logs.get(descriptor)
        if log is not None and said:
            log.write(said)
        elif log is not None:
            self._forget(descriptor)
        return bool(said)

    def _drain(self, child: _Child) -> None:
        """What it said last; nobody is left to say more."""
        while child.output in self._logs and self._read(child.output):
            pass
        self._forget(child.output)

    def _forget(self, descriptor: int) -> None:
        if self._logs.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)
            os.close(descriptor)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                # Not of those we merely adopted: a later child may have the same pid.
                if ended[0] in self._spawned:
                    self._ended[ended[0]] = ended[1]

    def _spawn(self, name: str, argv: list[str], cgroup: Cgroup | None = None) -> _Child:
        gate, opened = os.pipe()
        failed, failure = os.pipe()
        output, said = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(opened)
            self._become(name, argv, cgroup=cgroup, gate=gate, failure=failure, said=said)
        self._spawned.add(pid)
        for descriptor in (gate, failure, said):
            os.close(descriptor)
        os.set_blocking(output, False)
        # The one container of the single shape has one log.
        log = "runner" if self._plan["shape"] == "single" and name == "poller" else name
        self._logs[output] = _Log(Path(f"{log}.log"))
        self._poll.register(output, select.POLLIN)
        return _Child(pid, opened, failed, output)

    def _become(
        self,
        name: str,
        argv: list[str],
        *,
        cgroup: Cgroup | None,
        gate: int,
        failure: int,
        said: int,
    ) -> NoReturn:
        try:
            os.setpgid(0, 0)
            if not os.read(gate, 1):
                os._exit(_START_ERROR)  # the supervisor died before it had written us down
            nothing = os.open(os.devnull, os.O_RDONLY)
            for descriptor, number in ((nothing, 0), (said, 1), (said, 2)):
                os.dup2(descriptor, number)
            if name == "runner":
                os.chdir(layout.WORK)
                _be_a_runner(cgroup)
            signal.set_wakeup_fd(-1)
            # Python ignores these, and what is ignored stays so in the next program.
            for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(ignored, signal.SIG_DFL)
            os.execvpe(argv[0], argv, self._environment)  # noqa: S606 - the plan's own argv
        except OSError as error:
            os.write(failure, f"{argv[0]}: {error.strerror}".encode())
        finally:
            os._exit(_START_ERROR)

    def _remember(self, child: _Child) -> None:
        self._status["leaders"].append([child.pid, start_mark(child.pid)])

    def _hear_signals(self) -> None:
        woken, wake = os.pipe()
        for descriptor in (woken, wake):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._poll.register(woken, select.POLLIN)
        signal.signal(signal.SIGTERM, lambda *_: self._asked_to_stop(self._plan["graceSeconds"]))
        signal.signal(signal.SIGINT, lambda *_: self._shut_down())
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def _asked_to_stop(self, grace: float) -> None:
        kill_at = time.monotonic() + grace
        self._kill_at = kill_at if self._kill_at is None else min(self._kill_at, kill_at)

    def _shut_down(self) -> None:
        self._asked_to_stop(_HURRIED_GRACE)
        self._reason = (
            "Terminated"  # kubelets' word for Pods of a node that shuts down in good order
        )

    def _save(self) -> None:
        while True:
            try:
                layout.write_json(Path(layout.STATUS), self._status)
            except FileNotFoundError:
                raise _DirectoryGone from None
            except OSError as error:
                # A full disk may have room again; what is not on record has not happened.
                _complain(f"status.json cannot be written: {error}")
                time.sleep(_RETRY_SAVING)
            else:
                return


def _waiting(name: str) -> dict[str, Any]:
    return {"name": name, "state": {"waiting": {"reason": "PodInitializing"}}, "started": False}


def _exit_code(container: dict[str, Any]) -> int | None:
    code: int | None = container["state"].get("terminated", {}).get("exitCode")
    return code


def _be_a_runner(cgroup: Cgroup | None) -> None:
    if cgroup is not None:
        cgroup.enter()
    with contextlib.suppress(OSError):
        os.nice(_RUNNER_NICENESS)
        Path("/proc/self/oom_score_adj").write_text(str(_RUNNER_OOM_SCORE))


def _signal(pid: int, number: signal.Signals) -> bool:
    """Whether it could be sent."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _children() -> list[int]:
    """None are found where the system does not tell; a group is all that can be ended there."""
    try:
        return [
            int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        ]
    except OSError:
        return []


def _adopt_orphans() -> None:
    """A process whose parent ended becomes our child, not init's: daemons that a job starts can be
    found at its end. Linux only."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _now() -> str:
    seconds = time.time()
    return (
        time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds % 1 * 1e6):06d}Z"
    )


def _complain(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main() -> int:
    directory = Path(sys.argv[1])
    os.chdir(directory)
    deadline = time.monotonic() + _LOCK_PATIENCE
    while time.monotonic() < deadline:
        with layout.locked(directory) as free:
            if free:
                # A Pod has one life: what a former supervisor began is never begun again.
                if not (directory / layout.STATUS).exists():
                    Supervisor().run()
                return 0
        time.sleep(0.02)
    return 0


if __name__ == "__main__":
    sys.exit(main())
