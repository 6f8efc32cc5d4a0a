"""A runner program for the fake GitHub: `python -m paddock.fakes.runner run`.

It is started like `bin/Runner.Listener run`, takes its JIT configuration the same way, prints the
same landmarks, treats signals alike and ends with the same exit codes, so that whatever starts,
watches and judges real runners can be tried with hundreds of these on one machine. It also dies in
each of the ways real ones do, on demand: `--die SPEC`, `PADDOCK_FAKE_RUNNER_DIE=SPEC`, or as the job
says.

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

Standard library only, and little of that: an idle one should cost a few megabytes.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, NoReturn

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
_INTERRUPT_GRACE, _TERMINATE_GRACE = 7.5, 2.5  # a step: SIGINT, then SIGTERM, then SIGKILL

#: `oom` really runs out of memory where the limit is a Pod's. Where there is none, or one so large
#: that it must be the machine's, it takes a little and then kills itself, which looks the same.
_OOM_LARGEST_LIMIT = 2 << 30
_OOM_BYTES_WITHOUT_LIMIT = 64 << 20


class Exit(IntEnum):
    SUCCESS = 0
    TERMINATED = 1
    RETRYABLE = 2
    SESSION_CONFLICT = 5
    VERSION_DEPRECATED = 7
    #: What the .NET runtime makes of SIGTERM, however orderly the shutdown was.
    SIGTERM = 143


#: Conclusion: what the listener prints, and its exit code when asked to return the result.
_RESULTS: Final = {
    "success": ("Succeeded", 100),
    "failure": ("Failed", 102),
    "cancelled": ("Canceled", 103),
    "skipped": ("Skipped", 104),
}

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
    "version-deprecated": "start",
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
    hurry: float


class RefusedError(Exception):
    """The service says no, with a code the runner acts on."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Ended(Exception):
    """The listener is done."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def say(text: str, *, stamped: bool = False) -> None:
    now = time.strftime("%Y-%m-%d %H:%M:%SZ: ", time.gmtime()) if stamped else ""
    sys.stdout.write(f"{now}{text}\n")
    sys.stdout.flush()


class Service:
    """The fake GitHub's runner protocol (`paddock.fakes.github.runner_api`).

    One request per connection, by hand: `http.client` brings `email` and `ssl` along, which would be
    a third of the whole program's memory.
    """

    def __init__(self, url: str) -> None:
        scheme, _, rest = url.partition("://")
        authority, _, path = rest.partition("/")
        host, _, port = authority.rpartition(":")
        if scheme != "http" or not port.isdigit():
            raise ValueError(f"The fake GitHub is at http://HOST:PORT/, which {url!r} is not.")
        self._address = (host.strip("[]"), int(port))
        self._authority = authority
        self._base = "/" + path.strip("/")

    def call(
        self, method: str, path: str, body: object = None, *, timeout: float = 30.0
    ) -> dict[str, Any] | None:
        """None: there is nothing. Raises RefusedError, or OSError when out of reach."""
        content = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {self._base}{path} HTTP/1.1\r\n"
            f"Host: {self._authority}\r\n"
            "Connection: close\r\n"
            "Content-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        with socket.create_connection(self._address, timeout=timeout) as connection:
            connection.sendall(head.encode() + content)
            received = bytearray()
            while chunk := connection.recv(65536):
                received += chunk
        return _answer(bytes(received))


def _answer(received: bytes) -> dict[str, Any] | None:
    head, _, content = received.partition(b"\r\n\r\n")
    status_line, *headers = head.decode("latin-1").split("\r\n")
    length = next((int(h[15:]) for h in headers if h.lower().startswith("content-length:")), 0)
    if not status_line.startswith("HTTP/1.1 ") or len(content) < length:
        raise ConnectionResetError("the connection was closed in the middle of the answer")
    status = int(status_line.split()[1])
    if status >= 500:
        raise ConnectionAbortedError(f"the service answered {status}")
    decoded: dict[str, Any] | None = json.loads(content) if content else None
    if status >= 400:
        reason = decoded or {}
        raise RefusedError(reason.get("code", "refused"), reason.get("message", "refused"))
    return decoded


def decode_jit(encoded: str) -> dict[str, dict[str, Any]]:
    """base64(JSON {file name: base64(content)}), as GitHub encodes it."""
    files = json.loads(base64.b64decode(encoded, validate=True))
    return {name: json.loads(base64.b64decode(content)) for name, content in files.items()}


class Steps(threading.Thread):
    """The worker: runs the job's shell steps one after the other and puts the result on `events`."""

    def __init__(self, job: dict[str, Any], events: queue.SimpleQueue[Any], hurry: float) -> None:
        super().__init__(daemon=True)
        self._job = job
        self._events = events
        self._hurry = hurry
        self._cancelled = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self.ends: list[dict[str, str]] = []

    def cancel(self) -> None:
        self._cancelled.set()

    def run(self) -> None:
        conclusion = "success"
        hook = os.environ.get("ACTIONS_RUNNER_HOOK_JOB_STARTED")
        before = [{"name": "Set up runner", "run": f". {hook}"}] if hook else []
        for step in before + self._job["steps"]:
            if conclusion != "success":
                self.ends.append({"name": step["name"], "conclusion": "skipped"})
                continue
            conclusion = self._run_step(step["run"])
            self.ends.append({"name": step["name"], "conclusion": conclusion})
        self._events.put(("finished", conclusion))

    def _run_step(self, script: str) -> str:
        if self._cancelled.is_set():
            return "cancelled"
        self._process = subprocess.Popen(
            ["/bin/sh", "-e", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=_step_output(),
            stderr=subprocess.STDOUT,
            env=self._environment(),
        )
        while self._process.poll() is None:
            if self._cancelled.wait(0.02):
                self._stop(self._process)
                return "cancelled"
        return "success" if self._process.returncode == 0 else "failure"

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        tree = _tree(process.pid)
        for number, grace in (
            (signal.SIGINT, _INTERRUPT_GRACE),
            (signal.SIGTERM, _TERMINATE_GRACE),
        ):
            _signal_all(tree, number)
            try:
                process.wait(timeout=grace / self._hurry)
                break
            except subprocess.TimeoutExpired:
                continue
        # Also what the step left behind: the real one cleans up orphans when a job ends.
        _signal_all(tree, signal.SIGKILL)
        process.wait()

    def _environment(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ACTIONS_RUNNER_", "PADDOCK_"))
        }
        return kept | {
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_JOB": str(self._job["name"]),
            "GITHUB_REPOSITORY": str(self._job["repository"]),
            "GITHUB_RUN_ID": str(self._job["run_id"]),
        }


def _open_worker_log() -> None:
    """The real listener's worker opens one in the runner's directory as soon as it lives; those who
    must know that a job has started look for it."""
    with contextlib.suppress(OSError):
        directory = Path("_diag")
        directory.mkdir(exist_ok=True)
        name = time.strftime("Worker_%Y%m%d-%H%M%S-utc.log", time.gmtime())
        (directory / name).touch()


def _step_output() -> int | None:
    """A step's output goes to GitHub, not to the listener's; unless diagnostics are asked for."""
    return None if os.environ.get("ACTIONS_RUNNER_PRINT_LOG_TO_STDOUT") else subprocess.DEVNULL


def _signal_all(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _tree(root: int) -> list[int]:
    """The process and its descendants. A process group would be easier to signal, but would escape
    whoever kills the runner's own group."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue  # it ended while we looked
        children.setdefault(parent, []).append(int(entry.name))
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo.extend(children.get(pid, ()))
    return found


class Listener:
    def __init__(self, options: Options) -> None:
        self._death = options.death
        self._hurry = options.hurry
        self._jit = options.jit
        #: ("job"|"cancel", id), ("finished", conclusion), ("signal", number), ("refused", error)
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._signal: int | None = None
        self._quiet = threading.Event()  # set: neither poll nor renew any more

    def run(self) -> int:
        try:
            self._run()
        except Ended as ended:
            return ended.code
        return Exit.SUCCESS

    def _run(self) -> None:
        if not self._jit:
            say("Runner is not configured.")
            raise Ended(Exit.TERMINATED)
        try:
            files = decode_jit(self._jit)
            self._settings = files[".runner"]
            self._client = files[".credentials"]["Data"]["ClientId"]
            self._secret = files[".credentials_rsaparams"]["d"]
            self._service = Service(self._settings["ServerUrl"])
        except (ValueError, KeyError, TypeError) as error:
            say(f"The JIT configuration cannot be read: {error}")
            raise Ended(Exit.TERMINATED) from None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._maybe_die("start")
        self._session = self._connect()
        say(f"Current runner version: '{VERSION}'")
        say("Listening for Jobs", stamped=True)
        self._maybe_die("listening")
        threading.Thread(target=self._poll, daemon=True).start()
        self._listen()

    def _on_signal(self, number: int, _frame: object) -> None:
        self._signal = self._signal or number
        self._events.put(("signal", number))  # SimpleQueue is made for this

    def _wait(self, seconds: float) -> None:
        """Sleep, unless a signal ends the program."""
        deadline = time.monotonic() + seconds / self._hurry
        while (left := deadline - time.monotonic()) > 0:
            if self._signal is not None:
                raise Ended(self._exit_after_signal())
            time.sleep(min(left, 0.1))

    def _exit_after_signal(self) -> int:
        return Exit.SIGTERM if self._signal == signal.SIGTERM else Exit.SUCCESS

    def _connect(self) -> str:
        conflict_since: float | None = None
        said_error = False
        while True:
            try:
                say("")
                say("√ Connected to GitHub")
                say("")
                answer = self._service.call(
                    "POST",
                    "/sessions",
                    {"client_id": self._client, "secret": self._secret, "version": VERSION},
                )
                assert answer is not None
                return str(answer["session_id"])
            except OSError as error:
                if not said_error:
                    said_error = True
                    say(f"Runner connect error: {error}. Retrying until reconnected.", stamped=True)
            except RefusedError as refused:
                if refused.code != "session-conflict":
                    self._refused(refused.code, str(refused))
                now = time.monotonic()
                if conflict_since is None:
                    conflict_since = now
                    say("A session for this runner already exists.")
                if now - conflict_since >= _CONFLICT_LIMIT / self._hurry:
                    raise Ended(Exit.SESSION_CONFLICT) from None
            self._wait(_RECONNECT)

    def _refused(self, code: str, message: str) -> NoReturn:
        match code:
            case "session-conflict":
                say("A session for this runner already exists.")
                raise Ended(Exit.SESSION_CONFLICT)
            case "version-deprecated":
                say(f"An error occured: {message}")
                asked = os.environ.get(DEPRECATED_VARIABLE, "").lower() in ("1", "true")
                raise Ended(Exit.VERSION_DEPRECATED if asked else Exit.TERMINATED)
            case "registration-deleted":
                say(
                    "Failed to create a session. The runner registration has been deleted from the "
                    "server, please re-configure."
                )
                raise Ended(Exit.TERMINATED)
            case _:
                say(f"An error occurred: {message}")
                raise Ended(Exit.RETRYABLE)

    def _poll(self) -> None:
        """The long poll, in a thread of its own, so that signals and steps need not wait for it."""
        path = f"/sessions/{self._session}/poll?wait={_POLL:g}"
        while not self._quiet.is_set():
            try:
                message = self._service.call("POST", path, timeout=_POLL + 10)
            except OSError:
                time.sleep(1.0 / self._hurry)
                continue
            except RefusedError as refused:
                self._events.put(("refused", refused))
                return
            if message is not None:
                self._events.put((message["type"], message["job_id"]))
                # The same message comes again until the main thread has fetched the job.
                time.sleep(0.2)

    def _listen(self) -> None:
        while True:
            kind, value = self._events.get()
            match kind:
                case "signal":
                    self._disconnect()
                    raise Ended(self._exit_after_signal())
                case "refused":
                    if self._death is not None and self._death.mode == "zombie":
                        continue
                    self._refused(value.code, str(value))
                case "job":
                    try:
                        job = self._service.call("POST", self._path(value, "acquire"))
                    except (OSError, RefusedError):
                        continue
                    assert job is not None
                    self._execute(job)
                case _:
                    pass

    def _path(self, job_id: int, action: str) -> str:
        return f"/sessions/{self._session}/jobs/{job_id}/{action}"

    def _execute(self, job: dict[str, Any]) -> NoReturn:
        say(f"Running job: {job['name']}", stamped=True)
        _open_worker_log()
        threading.Thread(target=self._renew, args=(job,), daemon=True).start()
        steps = Steps(job, self._events, self._hurry)
        steps.start()
        conclusion = self._watch(steps)
        if job.get("die"):
            self._death = Death.parse(job["die"], "job")
        self._maybe_die("job")
        if self._death is not None and self._death.mode == "worker-killed":
            conclusion = "failure"
        if self._death is None or self._death.mode != "no-completion":
            self._report(job, conclusion, steps.ends)
        self._quiet.set()
        printed, hosted = _RESULTS[conclusion]
        say(f"Job {job['name']} completed with result: {printed}", stamped=True)
        if self._signal is not None:
            raise Ended(self._exit_after_signal())
        asked = os.environ.get(HOSTED_VARIABLE, "").lower() in ("1", "true")
        raise Ended(hosted if asked else Exit.SUCCESS)

    def _watch(self, steps: Steps) -> str:
        """Wait for the steps; stop them when GitHub cancels the job or the program is told to go."""
        deadline: float | None = None
        while True:
            try:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                kind, value = self._events.get(timeout=left)
            except queue.Empty:
                raise Ended(Exit.SIGTERM) from None
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
                    deadline = time.monotonic() + _UNLOAD_LIMIT / self._hurry
                case _:
                    pass  # deleted by somebody while it runs a job: the job goes on

    def _renew(self, job: dict[str, Any]) -> None:
        while not self._quiet.wait(float(job["renew_seconds"])):
            try:
                self._service.call("POST", self._path(job["job_id"], "renew"))
            except OSError:
                continue
            except RefusedError:
                return

    def _report(self, job: dict[str, Any], conclusion: str, steps: list[dict[str, str]]) -> None:
        body = {"conclusion": conclusion, "steps": steps}
        for _ in range(5):
            try:
                self._service.call("POST", self._path(job["job_id"], "complete"), body)
            except OSError:
                time.sleep(1.0 / self._hurry)
            except RefusedError:
                return  # given up meanwhile; a real runner does not notice either
            else:
                return

    def _disconnect(self) -> None:
        self._quiet.set()
        with contextlib.suppress(OSError, RefusedError):
            self._service.call("DELETE", f"/sessions/{self._session}", timeout=5)

    def _maybe_die(self, moment: str) -> None:
        death = self._death
        if death is None or death.moment != moment:
            return
        match death.mode:
            case "exit":
                raise Ended(death.code)
            case "leave":
                self._disconnect()
                raise Ended(Exit.SUCCESS)
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
                pass  # worker-killed, no-completion, zombie: they change what it does later


def _memory_limit() -> int | None:
    """Of this process's own cgroup; in a container that is mostly at the top."""
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
        taken.append(b"x" * (1 << 24))  # not zeroes: those would cost nothing until touched
    os.kill(os.getpid(), signal.SIGKILL)


def options(arguments: list[str]) -> Options:
    """`run` and `--jitconfig` as the real one takes them. argparse would cost a megabyte."""
    jit = os.environ.pop(JIT_VARIABLE, None)
    die = os.environ.get("PADDOCK_FAKE_RUNNER_DIE")
    hurry = os.environ.get("PADDOCK_FAKE_RUNNER_HURRY", "1")
    left = list(arguments)
    while left:
        argument = left.pop(0)
        if argument == "run":
            continue
        if argument not in ("--jitconfig", "--die", "--hurry") or not left:
            raise ValueError(f"Unrecognised argument {argument!r}, or its value is missing.")
        value = left.pop(0)
        match argument:
            case "--jitconfig":
                jit = value
            case "--die":
                die = value
            case _:
                hurry = value
    return Options(jit=jit, death=Death.parse(die) if die else None, hurry=float(hurry))


def main() -> int:
    try:
        chosen = options(sys.argv[1:])
    except ValueError as error:
        say(f"The fake runner cannot start: {error}")
        return Exit.TERMINATED
    return Listener(chosen).run()


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # a poll may still be under way in its thread; nothing is left to clean up
