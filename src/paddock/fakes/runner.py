"""A runner program for the fake GitHub: `python -m paddock.fakes.runner run`.

It is started like `bin/Runner.Listener run` and takes its JIT configuration the same way. It prints
the same landmarks, handles signals alike and ends with the same exit codes. So programs that start,
watch and judge real runners can be tried with hundreds of these on one machine. It also dies in each
of the ways real ones do, on demand: `--die SPEC`, `PADDOCK_FAKE_RUNNER_DIE=SPEC`, or as the job says.
    SPEC = MODE[=CODE][@MOMENT]      moments: start, listening, job (after the job's steps)

    exit=CODE             ends with CODE
    sigkill               kills itself, as the kernel or a node failure would
    oom                   takes memory until it is killed for it
    hang                  lives on and does nothing: no lease renewal, no more polls
    never-registers       lives on and never connects
    worker-killed         its worker is killed; the listener reports a failure and exits 0
    no-completion         exits cleanly, but its report never reaches GitHub
    leave                 exits 0 without a job
    zombie                goes on listening when its registration is deleted
    session-conflict, registration-deleted, version-deprecated    as if GitHub had said so

Standard library only, and few modules: an idle runner should need only a few megabytes.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import queue
import signal
import sys
import threading
import time
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, NoReturn

from paddock.fakes.runner_service import JobService, RefusedError, Service
from paddock.fakes.runner_steps import Steps

VERSION: Final = "2.330.0"

JIT_VARIABLE: Final = "ACTIONS_RUNNER_INPUT_JITCONFIG"
HOSTED_VARIABLE: Final = "ACTIONS_RUNNER_RETURN_JOB_RESULT_FOR_HOSTED"
#: Without it a deprecated runner exits 1, not 7.
DEPRECATED_VARIABLE: Final = "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE"

# The real runner's own times, in seconds.
_POLL = 50.0
_RECONNECT = 30.0
_CONFLICT_LIMIT = 240.0  # a session conflict is retried for four minutes
_UNLOAD_LIMIT = 30.0  # after SIGTERM
_REPORT_AGAIN = 10.0  # when a job's result could not be reported
_REPORTS, _REPORTS_WHEN_TOLD_TO_GO = 10, 2

#: `oom` really runs out of memory where the Pod has a limit. Without one, or with one so large that it
#: must be the machine's, it takes a little and then kills itself, which looks the same.
_OOM_LARGEST_LIMIT = 2 << 30
_OOM_BYTES_WITHOUT_LIMIT = 64 << 20


class RunnerExit(IntEnum):
    SUCCESS = 0
    TERMINATED = 1
    RETRYABLE = 2
    #: Of a runner that takes one job. Its start script installs the new version and starts it.
    UPDATING = 4
    SESSION_CONFLICT = 5
    VERSION_DEPRECATED = 7
    #: The exit code that the .NET runtime turns SIGTERM into, also after an orderly shutdown.
    SIGTERM = 143


#: Conclusion: what the listener reports and prints, and its exit code when asked to return the result.
_RESULTS: Final = {
    "success": ("Succeeded", 100),
    "failure": ("Failed", 102),
    "cancelled": ("Canceled", 103),
    "skipped": ("Skipped", 104),
}

#: The job's variable in which the fake GitHub says how to die.
_DIE_VARIABLE: Final = "paddock.fakes.die"

_MOMENTS: Final = ("start", "listening", "job")
_DEFAULT_MOMENT: Final = {
    "exit": "job",
    "sigkill": "job",
    "oom": "job",
    "hang": "job",
    "worker-killed": "job",
    "no-completion": "job",
    "leave": "listening",
    "zombie": "listening",
    "never-registers": "start",
    "session-conflict": "start",
    "registration-deleted": "start",
    "version-deprecated": "listening",
}


@dataclass(frozen=True)
class Death:
    mode: str
    moment: str
    code: int = 1

    @staticmethod
    def parse(spec: str, default_moment: str | None = None) -> Death:
        rest, _, moment = spec.partition("@")
        mode, _, code = rest.partition("=")
        if mode not in _DEFAULT_MOMENT:
            raise ValueError(f"There is no death {mode!r}; there are {', '.join(_DEFAULT_MOMENT)}.")
        moment = moment or default_moment or _DEFAULT_MOMENT[mode]
        if moment not in _MOMENTS:
            raise ValueError(f"There is no moment {moment!r}; there are {', '.join(_MOMENTS)}.")
        if code and not code.isdigit():
            raise ValueError(f"{code!r} is not an exit code.")
        return Death(mode, moment, int(code) if code else 1)


@dataclass(frozen=True)
class Options:
    jit: str | None
    death: Death | None
    #: All waiting times are divided by it.
    speedup: float


class ListenerFinished(Exception):
    """The listener has finished."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def say(text: str, *, stamped: bool = False) -> None:
    now = time.strftime("%Y-%m-%d %H:%M:%SZ: ", time.gmtime()) if stamped else ""
    sys.stdout.write(f"{now}{text}\n")
    sys.stdout.flush()


def decode_jit(encoded: str) -> dict[str, dict[str, Any]]:
    """base64(JSON {file name: base64(content)}), as GitHub encodes it."""
    files = json.loads(base64.b64decode(encoded, validate=True))
    return {name: json.loads(base64.b64decode(content)) for name, content in files.items()}


def _open_worker_log() -> None:
    """The real listener's worker opens a log in the runner's directory as soon as it starts. Programs
    that must know that a job has started look for it."""
    with contextlib.suppress(OSError):
        directory = Path("_diag")
        directory.mkdir(exist_ok=True)
        name = time.strftime("Worker_%Y%m%d-%H%M%S-utc.log", time.gmtime())
        (directory / name).touch()


class Listener:
    def __init__(self, options: Options) -> None:
        self._death = options.death
        self._speedup = options.speedup
        self._jit = options.jit
        #: ("job", message), ("cancel", id), ("finished", conclusion), ("signal", number),
        #: ("refused", error), ("update", None)
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._signal: int | None = None
        self._quiet = threading.Event()  # set: the threads neither poll nor renew any more
        self._busy = False
        #: Set: the poll may continue after it received a job.
        self._decided = threading.Event()

    def run(self) -> int:
        try:
            self._run()
        except ListenerFinished as ended:
            return ended.code
        return RunnerExit.SUCCESS

    def _run(self) -> None:
        if not self._jit:
            say("Runner is not configured.")
            raise ListenerFinished(RunnerExit.TERMINATED)
        try:
            files = decode_jit(self._jit)
            self._settings = files[".runner"]
            self._service = Service(files)
        except (ValueError, KeyError, TypeError) as error:
            say(f"The JIT configuration cannot be read: {error}")
            raise ListenerFinished(RunnerExit.TERMINATED) from None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._maybe_die("start")
        self._connect()
        say(f"Current runner version: '{VERSION}'")
        say("Listening for Jobs", stamped=True)
        self._maybe_die("listening")
        self._listen()

    def _on_signal(self, number: int, _frame: object) -> None:
        self._signal = self._signal or number
        self._events.put(("signal", number))  # SimpleQueue is made for this

    def _wait(self, seconds: float) -> None:
        """Sleeps, unless a signal ends the program."""
        deadline = time.monotonic() + seconds / self._speedup
        while (left := deadline - time.monotonic()) > 0:
            if self._signal is not None:
                raise ListenerFinished(self._exit_after_signal())
            time.sleep(min(left, 0.1))

    def _exit_after_signal(self) -> int:
        return RunnerExit.SIGTERM if self._signal == signal.SIGTERM else RunnerExit.SUCCESS

    def _connect(self) -> None:
        conflict_since: float | None = None
        said_error = False
        while True:
            try:
                say("")
                say("√ Connected to GitHub")
                say("")
                self._service.connect(self._settings["AgentName"], VERSION)
            except OSError as error:
                if not said_error:
                    said_error = True
                    say(f"Runner connect error: {error}. Retrying until reconnected.", stamped=True)
            except RefusedError as refused:
                if refused.code == "refused" and refused.status == 404:
                    self._wait(_RECONNECT)
                    continue
                if refused.status == 403:
                    # Whatever the reason: the real one does not read it.
                    say("Failed to create session. Error: Forbidden")
                    raise ListenerFinished(RunnerExit.TERMINATED) from None
                if refused.status != 409:
                    self._refused(refused.code, str(refused), final=True)
                now = time.monotonic()
                if conflict_since is None:
                    conflict_since = now
                    say("A session for this runner already exists.")
                if now - conflict_since >= _CONFLICT_LIMIT / self._speedup:
                    raise ListenerFinished(RunnerExit.SESSION_CONFLICT) from None
            else:
                return
            self._wait(_RECONNECT)

    def _refused(self, code: str, message: str, *, final: bool = False) -> NoReturn:
        match code:
            case "session-conflict":
                say("A session for this runner already exists.")
                raise ListenerFinished(RunnerExit.SESSION_CONFLICT)
            case "version-deprecated":
                say(f"An error occured: {message}")
                asked = os.environ.get(DEPRECATED_VARIABLE, "").lower() in ("1", "true")
                raise ListenerFinished(
                    RunnerExit.VERSION_DEPRECATED if asked else RunnerExit.TERMINATED
                )
            case "registration-deleted":
                say(
                    "Failed to create a session. The runner registration has been deleted from the "
                    "server, please re-configure."
                )
                raise ListenerFinished(RunnerExit.TERMINATED)
            case _:
                say(f"An error occurred: {message}")
                raise ListenerFinished(RunnerExit.TERMINATED if final else RunnerExit.RETRYABLE)

    def _poll(self) -> None:
        """The long poll, in a thread of its own, so that signals and steps need not wait for it."""
        while not self._quiet.is_set():
            try:
                message = self._service.message(VERSION, busy=self._busy, timeout=_POLL + 10)
            except OSError:
                time.sleep(1.0 / self._speedup)
                continue
            except RefusedError as refused:
                self._events.put(("refused", refused))
                return
            match message:
                case {"type": "RunnerJobRequest"}:
                    self._decided.clear()
                    self._events.put(("job", message))
                    self._decided.wait()
                case {"type": "JobCancellation", "jobId": job_id}:
                    self._events.put(("cancel", job_id))
                case {"type": "RunnerRefresh"}:
                    self._events.put(("update", None))
                    return
                case _:
                    pass

    def _listen(self) -> None:
        threading.Thread(target=self._poll, daemon=True).start()
        while True:
            kind, value = self._events.get()
            match kind:
                case "signal":
                    self._disconnect()
                    raise ListenerFinished(self._exit_after_signal())
                case "refused":
                    if self._death is not None and self._death.mode == "zombie":
                        continue
                    if value.code == "session-lost":
                        self._connect()
                        threading.Thread(target=self._poll, daemon=True).start()
                        continue
                    self._disconnect()
                    # A second 401, with a new token.
                    self._refused(value.code, str(value), final=value.status == 401)
                case "job":
                    self._acquire(value)
                case "update":
                    say("Runner update in progress, do not shutdown runner.")
                    self._disconnect()
                    raise ListenerFinished(RunnerExit.UPDATING)
                case _:
                    pass

    def _acquire(self, message: dict[str, Any]) -> None:
        try:
            service = self._service.acquire(message)
        except (OSError, RefusedError):
            time.sleep(1.0 / self._speedup)
            self._decided.set()
            return
        self._busy = True
        self._decided.set()
        self._execute(service)

    def _execute(self, service: JobService) -> NoReturn:
        job = service.job
        name = job["jobDisplayName"]
        say(f"Running job: {name}", stamped=True)
        _open_worker_log()
        threading.Thread(target=self._renew, args=(service,), daemon=True).start()
        steps = Steps(job, self._events, self._speedup)
        steps.start()
        conclusion = self._watch(steps)
        if die := (job.get("variables") or {}).get(_DIE_VARIABLE):
            self._death = Death.parse(die["value"], "job")
        self._maybe_die("job")
        if self._death is not None and self._death.mode == "worker-killed":
            conclusion = "failure"
        printed, hosted = _RESULTS[conclusion]
        if self._death is None or self._death.mode != "no-completion":
            self._report(service, printed.lower(), steps)
        self._quiet.set()
        say(f"Job {name} completed with result: {printed}", stamped=True)
        if self._signal is not None:
            raise ListenerFinished(self._exit_after_signal())
        asked = os.environ.get(HOSTED_VARIABLE, "").lower() in ("1", "true")
        raise ListenerFinished(hosted if asked else RunnerExit.SUCCESS)

    def _watch(self, steps: Steps) -> str:
        """Waits for the steps; stops them when GitHub cancels the job or the program receives a
        signal."""
        deadline: float | None = None
        while True:
            try:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                kind, value = self._events.get(timeout=left)
            except queue.Empty:
                raise ListenerFinished(RunnerExit.SIGTERM) from None
            match kind:
                case "finished":
                    return str(value)
                case "cancel":
                    steps.cancel()
                case "signal" if deadline is None:
                    say(
                        "The runner has received a shutdown signal. This can happen when the "
                        "runner service is stopped, or a manually started runner is canceled."
                    )
                    steps.cancel()
                    deadline = time.monotonic() + _UNLOAD_LIMIT / self._speedup
                case _:
                    pass  # deleted while it runs a job: the job goes on

    def _renew(self, service: JobService) -> None:
        wait = 0.0
        while not self._quiet.wait(wait):
            try:
                wait = service.renew()
            except OSError:
                wait = 1.0 / self._speedup
            except RefusedError:
                return

    def _report(self, service: JobService, conclusion: str, steps: Steps) -> None:
        if steps.log:
            with contextlib.suppress(OSError, RefusedError):
                service.upload_log(steps.log)
        for attempt in range(_REPORTS):
            try:
                service.complete(conclusion, steps.ends)
            except OSError:
                if self._signal is not None and attempt >= _REPORTS_WHEN_TOLD_TO_GO:
                    return
                time.sleep(_REPORT_AGAIN / self._speedup)
            except RefusedError:
                return  # GitHub gave the job up meanwhile; a real runner does not notice either
            else:
                return

    def _disconnect(self) -> None:
        self._quiet.set()
        with contextlib.suppress(OSError, RefusedError):
            self._service.disconnect()

    def _maybe_die(self, moment: str) -> None:
        death = self._death
        if death is None or death.moment != moment:
            return
        match death.mode:
            case "exit":
                raise ListenerFinished(death.code)
            case "leave":
                self._disconnect()
                raise ListenerFinished(RunnerExit.SUCCESS)
            case "sigkill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "oom":
                _exhaust_memory()
            case "hang" | "never-registers":
                self._quiet.set()
                while True:  # SIGTERM still ends it, as it would a program that waits
                    self._wait(3600.0)
            case "session-conflict" | "registration-deleted" | "version-deprecated":
                self._refused(death.mode, f"Runner version v{VERSION} is deprecated.")
            case _:
                pass  # worker-killed, no-completion, zombie: they change its later behaviour


def _memory_limit() -> int | None:
    """The limit of this process's own cgroup; in a container that is mostly the topmost one."""
    for path in (
        *_own_limits(),
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ):
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        # Version 1 says "no limit" with a number near 2^63.
        return int(text) if text.isdigit() and int(text) < 1 << 60 else None
    return None


def _own_limits() -> list[str]:
    found = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if "memory" in controllers.split(","):
                found.append(f"/sys/fs/cgroup/memory{path}/memory.limit_in_bytes")
            elif not controllers:
                found.append(f"/sys/fs/cgroup{path}/memory.max")
    return found


def _exhaust_memory() -> None:
    limit = _memory_limit()
    limited = limit is not None and limit <= _OOM_LARGEST_LIMIT
    taken: list[bytes] = []
    while limited or len(taken) << 24 < _OOM_BYTES_WITHOUT_LIMIT:
        taken.append(b"x" * (1 << 24))  # not zeroes: unwritten pages would take no memory
    os.kill(os.getpid(), signal.SIGKILL)


def options(arguments: list[str]) -> Options:
    """`run` and `--jitconfig` as the real one takes them. argparse would cost a megabyte."""
    jit = os.environ.pop(JIT_VARIABLE, None)
    die = os.environ.get("PADDOCK_FAKE_RUNNER_DIE")
    speedup = os.environ.get("PADDOCK_FAKE_RUNNER_SPEEDUP", "1")
    left = list(arguments)
    while left:
        argument = left.pop(0)
        if argument == "run":
            continue
        if argument not in ("--jitconfig", "--die", "--speedup") or not left:
            raise ValueError(f"Unrecognised argument {argument!r}, or its value is missing.")
        value = left.pop(0)
        match argument:
            case "--jitconfig":
                jit = value
            case "--die":
                die = value
            case _:
                speedup = value
    return Options(jit=jit, death=Death.parse(die) if die else None, speedup=float(speedup))


def main() -> int:
    try:
        chosen = options(sys.argv[1:])
    except ValueError as error:
        say(f"The fake runner cannot start: {error}")
        return RunnerExit.TERMINATED
    return Listener(chosen).run()


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # a poll may still be in progress in its thread; there is nothing to clean up
