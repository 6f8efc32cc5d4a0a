"""The kubelet of one local Pod: `python -m paddock.fleet.local.supervisor DIRECTORY`.

It runs the poller. If the poller staged a JIT, it then runs the runner, with the vitals sidecar beside
it. It records how each ended in status.json, in Kubernetes' words. It is a process of its own in a
session of its own, so that jobs outlive the server that started them, however the server ended.

SIGTERM deletes the Pod: the supervisor tells the container's first process to stop, kills everything
when the grace period is over, and records the end. SIGINT does the same with a shorter grace period,
for a fleet that shuts down. If a supervisor is killed, the fleet finds the lock free, ends what is left
and records that the Pod's own end is unknown.

No process of a runner runs before status.json says so: a Pod whose runner seems never to have started
may be deleted (I34). No process of a Pod outlives its container's first process: what would end with a
container is killed here.

Standard library only, and little of that: one supervisor runs beside every runner.
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

#: When the fleet shuts down. An idle runner, or one whose job heeds signals, needs a fraction of it.
_HURRIED_GRACE = 3.0
#: The sidecar sends one last report, which takes 2 s at most.
_VITALS_GRACE = 3.0
#: Per file. With the previous file, twice this is kept: a thousand times what a verdict keeps.
_LOG_LIMIT = 4 * 1024 * 1024
#: Seconds between checks that the Pod's directory still exists.
_LOOK_ROUND = 5.0
_RETRY_SAVING = 1.0
#: A fleet also holds the lock for a moment, when it checks whether a supervisor lives.
_LOCK_PATIENCE = 2.0
#: The machine's other users, and the server, have priority over jobs.
_RUNNER_NICENESS = 5
#: When memory runs out the kernel kills the job, not the server, its database or a supervisor. The
#: kubelet gives containers values like this one.
_RUNNER_OOM_SCORE = 500
#: Kubelets' exit code for a process that could not be executed.
_START_ERROR = 128

_PR_SET_CHILD_SUBREAPER = 36


class _DirectoryGone(Exception):
    """The Pod's directory was removed by hand."""


class _Log:
    """The log is created empty at once: its existence shows that the process was started."""

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
    """A process that waits at a gate until status.json says that it runs."""

    def __init__(self, pid: int, gate: int, failure: int, output: int) -> None:
        self.pid = pid
        self.output = output
        self._gate = gate
        self._failure = failure

    def let_go(self) -> str | None:
        """Open the gate. Returns why the program could not be executed, if so."""
        os.write(self._gate, b"!")
        os.close(self._gate)
        with os.fdopen(self._failure, "rb") as failure:
            return failure.read().decode(errors="replace") or None


class Supervisor:
    """Works in the Pod's directory and uses relative paths only: moving the directory, or the parent of
    all of them, ends no job."""

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
        # After the first record: a server that requests the deletion either finds our pid in it, or has
        # written its request before this check.
        if Path(layout.DELETING).exists():
            self._asked_to_stop(self._plan["graceSeconds"])
        if self._contain("poller", self._plan["poller"]) == 0 and self._kill_at is None:
            self._run_runner()
        self._end("Succeeded" if _exit_code(self._status["runner"]) == 0 else "Failed")

    def _run_runner(self) -> None:
        # The token that asks for work must not be where a job can read it (I21).
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
        """Run a container to its end; returns its exit code."""
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
            # For every exit code: when the kernel kills only a job's process, the runner exits with 0.
            reason = "OOMKilled" if cgroup.oom_kills() else reason
            cgroup.remove()
        self._write_down(name, code=code, reason=reason, message=failure)
        self._save()
        return code

    def _write_down(self, name: str, *, code: int, reason: str, message: str | None) -> None:
        """`code` is negative for a signal, as in Python; kubelets report 128 + n, and may add n."""
        ended: dict[str, Any] = {"exitCode": code, "reason": reason}
        if code < 0:
            ended.update(exitCode=128 - code, signal=-code)
        if message:
            ended["message"] = message
        running = self._status[name]["state"].get("running", {})
        ended.update(running, finishedAt=_now())
        self._status[name] = {"name": name, "state": {"terminated": ended}, "started": False}

    def _cgroup(self) -> Cgroup | None:
        """Raises OSError: a runner that should have a limit does not run without it."""
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
                    # Signal only the first process, as a kubelet does; it passes the signal on (I59).
                    # Steps that got it at the same time would fail instead of being cancelled.
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
        """Kill our children, also the adopted ones whose own parents are gone (`_adopt_orphans`)."""
        if group is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
        while True:
            self._reap()
            # We may not end a process that became another user's (sudo).
            left = [pid for pid in _children() if pid != keep and _signal(pid, signal.SIGKILL)]
            if not left:
                return
            time.sleep(0.005)

    def _turn(self, until: float | None) -> None:
        """Wait for output, a signal or the timeout, and handle it."""
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
            pass  # a disk error does not prove that the directory is gone

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
        """Read the rest of its output; the process and its children have ended."""
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
                # Not for adopted processes: a later child may have the same pid.
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
        # The only container of the single shape has one log.
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
                os._exit(_START_ERROR)  # the supervisor died before it recorded this process
            nothing = os.open(os.devnull, os.O_RDONLY)
            for descriptor, number in ((nothing, 0), (said, 1), (said, 2)):
                os.dup2(descriptor, number)
            if name == "runner":
                os.chdir(layout.WORK)
                _prepare_runner_process(cgroup)
            signal.set_wakeup_fd(-1)
            # Python ignores these signals, and the executed program would inherit that.
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
            "Terminated"  # the kubelets' reason for Pods of a node that shuts down gracefully
        )

    def _save(self) -> None:
        while True:
            try:
                layout.write_json(Path(layout.STATUS), self._status)
            except FileNotFoundError:
                raise _DirectoryGone from None
            except OSError as error:
                # A full disk may get room again. Nothing goes on before this is recorded.
                _complain(f"status.json cannot be written: {error}")
                time.sleep(_RETRY_SAVING)
            else:
                return


def _waiting(name: str) -> dict[str, Any]:
    return {"name": name, "state": {"waiting": {"reason": "PodInitializing"}}, "started": False}


def _exit_code(container: dict[str, Any]) -> int | None:
    code: int | None = container["state"].get("terminated", {}).get("exitCode")
    return code


def _prepare_runner_process(cgroup: Cgroup | None) -> None:
    if cgroup is not None:
        cgroup.enter()
    with contextlib.suppress(OSError):
        os.nice(_RUNNER_NICENESS)
        Path("/proc/self/oom_score_adj").write_text(str(_RUNNER_OOM_SCORE))


def _signal(pid: int, number: signal.Signals) -> bool:
    """Returns whether the signal could be sent."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _children() -> list[int]:
    """Our child processes; empty on systems that do not list them. There only a process group can be
    ended."""
    try:
        return [
            int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        ]
    except OSError:
        return []


def _adopt_orphans() -> None:
    """Make a process whose parent ended our child, not init's: daemons that a job starts can then be
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
                # A Pod runs once: what an earlier supervisor began is never begun again.
                if not (directory / layout.STATUS).exists():
                    Supervisor().run()
                return 0
        time.sleep(0.02)
    return 0


if __name__ == "__main__":
    sys.exit(main())
