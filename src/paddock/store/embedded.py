"""paddock's own PostgreSQL, so that one command is enough to try it.

The server is a child process in a session of its own, so the terminal's Ctrl-C reaches only paddock,
which stops its parts in order. The server listens on a socket in a private directory and on no network.
A paddock that is killed leaves the server running, unharmed; the next start stops that server cleanly
and starts a new one.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import asyncpg

from paddock.store.data_directory import DataDirectory
from paddock.store.errors import EmbeddedPostgresError
from paddock.store.postgres_binaries import Binaries, find_binaries
from paddock.store.server_log import ServerLog
from paddock.store.server_user import ServerUser, server_user

DATABASE = "paddock"
_ROLE = "paddock"

_SETTINGS: Mapping[str, str] = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "port": "5432",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
    "log_checkpoints": "off",
    "logging_collector": "off",
}

_POLL = 0.02  # how often a process is checked; a start takes 0.1 s
_PATIENCE = 2.0  # after this long the user is told what paddock waits for
_REPEAT = 10.0  # and told again this often
# A fast shutdown writes one checkpoint: milliseconds here, tens of seconds on a slow, busy disk.
_FAST_SHUTDOWN_TIMEOUT = 60.0
# An immediate shutdown writes nothing, and the next start recovers. PostgreSQL kills its own children
# 5 s after it begins.
_IMMEDIATE_SHUTDOWN_TIMEOUT = 10.0
# The backends of a killed postmaster notice within a second or two. Until then they hold its shared
# memory, and a new postmaster refuses to start.
_ORPHANS_TIMEOUT = 10.0
_LOG_LOOK_INTERVAL = 60.0


def _say_nothing(_: str) -> None: ...


class EmbeddedPostgres:
    """`async with EmbeddedPostgres(data_dir) as server: server.url`"""

    def __init__(
        self,
        data_dir: Path,
        *,
        settings: Mapping[str, str] | None = None,
        binaries: Path | None = None,
        say: Callable[[str], None] = _say_nothing,
    ) -> None:
        self._directory = DataDirectory(data_dir)
        self._log = ServerLog(self._directory)
        self._settings = {**_SETTINGS, **(settings or {})}
        self._chosen_binaries = binaries
        self._say = say
        self._ownership = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self._sockets: Path | None = None

    @property
    def url(self) -> str:
        """Accepted by asyncpg, psycopg and psql alike."""
        return self.url_of(DATABASE)

    def url_of(self, database: str) -> str:
        assert self._sockets is not None, "it does not run"
        place = f"host={quote(str(self._sockets), safe='/')}&port={self._settings['port']}"
        return f"postgresql://{_ROLE}@/{quote(database, safe='')}?{place}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "it does not run"
        return self._process.pid

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stop()

    async def wait(self) -> None:
        """Never return; raise if the server ends by itself. Meanwhile keep its log small."""
        assert self._process is not None, "it does not run"
        look_at = 0.0
        while self._process.poll() is None:
            if time.monotonic() > look_at:
                self._log.trim()
                look_at = time.monotonic() + _LOG_LOOK_INTERVAL
            await asyncio.sleep(10 * _POLL)
        raise self._log.failure("ended unexpectedly")

    async def _start(self) -> None:
        directory = self._directory
        self._ownership.enter_context(directory.claimed())
        directory.unpublish()
        user = server_user(directory.existing_pgdata())
        if not user.can_enter(directory.path):
            raise EmbeddedPostgresError(
                f"PostgreSQL does not run as root, and the user {user.name} that it would run as "
                f"cannot enter {directory.path}: choose a directory open to it with --data-dir, or "
                "run paddock as another user."
            )
        binaries = find_binaries(directory, user=user, chosen=self._chosen_binaries)
        directory.refuse_another_major_version(binaries.major)
        pgdata = directory.pgdata(binaries.major)
        await self._stop_leftover(pgdata)
        if not pgdata.exists():
            await self._create(binaries, user)
        self._sockets = directory.socket_directory(user)
        await self._launch(pgdata, binaries, user)
        await self._create_database()
        directory.publish(self.url)

    async def _stop_leftover(self, pgdata: Path) -> None:
        pid = running_postmaster(pgdata)
        if pid is not None:
            self._say(f"stopping the PostgreSQL (pid {pid}) that an earlier paddock left running")
            await self._shut_down(pid, lambda: running_postmaster(pgdata) != pid)
            if running_postmaster(pgdata) == pid:
                raise EmbeddedPostgresError(
                    f"The PostgreSQL (pid {pid}) that an earlier paddock left running in {pgdata} "
                    "does not stop: end it, then start paddock again."
                )
        # The remaining file names a process that is not this server, but its mere existence would keep
        # PostgreSQL from starting. PostgreSQL still guards its shared memory against a second server.
        with self._directory.writing():
            (pgdata / "postmaster.pid").unlink(missing_ok=True)

    async def _create(self, binaries: Binaries, user: ServerUser) -> None:
        directory = self._directory
        self._say(f"creating a PostgreSQL {binaries.major} database in {directory.path} (once)")
        partial = directory.new_pgdata(binaries.major, user)
        try:
            await self._initdb(partial, binaries, user)
            directory.put_in_place(partial, binaries.major)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    async def _initdb(self, pgdata: Path, binaries: Binaries, user: ServerUser) -> None:
        command: list[str | Path] = [binaries.initdb, "-D", pgdata, "-U", _ROLE, "-E", "UTF8"]
        # The C locale sorts the same on every machine, and no library update can break an index.
        command += ["--no-locale", "--auth-local=trust", "--auth-host=reject"]
        # PostgreSQL fills a new log segment with zeros while a COMMIT waits: 1 MB instead of 16.
        command += ["--wal-segsize=1"]
        if self._settings.get("fsync") == "off":
            command.append("--no-sync")
        # A pipe and not the log: on a full disk the log could not store the message that says so. The
        # output is far smaller than a pipe holds.
        process = self._spawn(command, user, subprocess.PIPE)
        assert process.stdout is not None
        with process.stdout as pipe:
            try:
                await _ended(process)
            except BaseException:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise
            said = pipe.read().decode(errors="replace")
        self._log.append(said)
        if process.returncode != 0:
            raise self._log.failure("could not create its database", said=said)

    async def _launch(self, pgdata: Path, binaries: Binaries, user: ServerUser) -> None:
        settings = {**self._settings, "unix_socket_directories": f'"{self._sockets}"'}
        command: list[str | Path] = [binaries.postgres, "-D", pgdata]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        give_up_at = time.monotonic() + _ORPHANS_TIMEOUT
        while True:
            with self._log.opened() as log:
                self._process = self._spawn(command, user, log)
            if await self._is_up(self._process, pgdata):
                return
            failure = self._log.failure("did not start")
            if "pre-existing shared memory" not in str(failure) or time.monotonic() > give_up_at:
                raise failure
            await asyncio.sleep(10 * _POLL)

    async def _is_up(self, process: subprocess.Popen[bytes], pgdata: Path) -> bool:
        """There is no time limit: the server may have much to recover, and another start would take
        as long."""
        tell_at = time.monotonic() + _PATIENCE
        while process.poll() is None:
            if postmaster_is_ready(pgdata, process.pid):
                return True
            if time.monotonic() > tell_at:
                self._say(f"PostgreSQL is still starting: {self._log.last_line()}")
                tell_at += _REPEAT
            await asyncio.sleep(_POLL)
        return False

    async def _create_database(self) -> None:
        try:
            connection = await asyncpg.connect(self.url_of("postgres"))
            try:
                query = "SELECT FROM pg_database WHERE datname = $1"
                if not await connection.fetch(query, DATABASE):
                    await connection.execute(f'CREATE DATABASE "{DATABASE}"')
            finally:
                await connection.close()
        except asyncpg.DiskFullError as error:
            raise self._directory.is_full() from error
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise self._log.failure("does not let paddock in", said=str(error)) from error

    async def _stop(self) -> None:
        """If cancelled, it does not wait for the checkpoint; the server ends all the same."""
        process, self._process = self._process, None
        try:
            if process is not None:
                await self._shut_down(process.pid, lambda: process.poll() is not None)
        except asyncio.CancelledError:
            assert process is not None
            process.send_signal(signal.SIGQUIT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_IMMEDIATE_SHUTDOWN_TIMEOUT)
            process.kill()
            process.wait()
            raise
        finally:
            if self._sockets is not None:
                self._directory.unpublish()
                self._directory.remove_sockets(self._sockets)
                self._sockets = None
            self._ownership.close()

    async def _shut_down(self, pid: int, has_ended: Callable[[], bool]) -> None:
        began = time.monotonic()
        is_told = False
        for number, timeout in (
            (signal.SIGINT, _FAST_SHUTDOWN_TIMEOUT),
            (signal.SIGQUIT, _IMMEDIATE_SHUTDOWN_TIMEOUT),
            (signal.SIGKILL, _IMMEDIATE_SHUTDOWN_TIMEOUT),
        ):
            if has_ended():
                return
            with suppress(ProcessLookupError):
                os.kill(pid, number)
            deadline = time.monotonic() + timeout
            while not has_ended() and time.monotonic() < deadline:
                if not is_told and time.monotonic() - began > _PATIENCE:
                    self._say("PostgreSQL is writing its last checkpoint")
                    is_told = True
                await asyncio.sleep(_POLL)

    def _spawn(
        self, command: list[str | Path], user: ServerUser, output: int
    ) -> subprocess.Popen[bytes]:
        # Not asyncio's subprocesses: uvloop's do not support `user`.
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            start_new_session=True,
            **user.subprocess_arguments(),
        )


async def _ended(process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:  # noqa: ASYNC110 -- no event reports it on every loop
        await asyncio.sleep(_POLL)


# In postmaster.pid: the pid is in its first line, whether the server is ready in its eighth.
_STATUS_LINE = 7


def postmaster_is_ready(pgdata: Path, pid: int) -> bool:
    lines = _pid_file(pgdata)
    return (
        len(lines) > _STATUS_LINE
        and lines[0] == str(pid)
        and lines[_STATUS_LINE].strip() == "ready"
    )


def running_postmaster(pgdata: Path) -> int | None:
    """The pid of this directory's server, even if another process started it.

    postmaster.pid outlives a `kill -9` and a reboot, after which another process may have the pid. So
    the process itself is checked before the file is trusted."""
    lines = _pid_file(pgdata)
    if not lines or not lines[0].strip().isdigit():
        return None
    pid = int(lines[0])
    return pid if _works_in(pid, pgdata) else None


def _works_in(pid: int, pgdata: Path) -> bool:
    """A server's working directory is its data directory, even after the directory was moved. Where the
    system hides the working directory (macOS; another user's process, for root in a container), the
    process's command line names it."""
    try:
        return Path(f"/proc/{pid}/cwd").samefile(pgdata)
    except OSError:
        command = _command(pid)
        return "postgres" in command and str(pgdata) in command


def _command(pid: int) -> str:
    if Path("/proc/self").exists():
        with suppress(OSError):
            return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
        return ""
    listing = ["/bin/ps", "-ww", "-o", "command=", "-p", str(pid)]
    return subprocess.run(listing, capture_output=True, text=True, check=False).stdout


def _pid_file(pgdata: Path) -> list[str]:
    try:
        return (pgdata / "postmaster.pid").read_text().splitlines()
    except OSError:
        return []
