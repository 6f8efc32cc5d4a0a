"""The directory the embedded PostgreSQL lives in, and who owns it.

    paddock.lock      flock'ed by the paddock that owns the directory; its pid, for people
    postgres-18/      PostgreSQL's own files; the number is its major version
    postgres.log      what PostgreSQL says
    run/              its socket (elsewhere if this path is too long for one)
    database-url      how other commands reach it while it runs
    binaries-0.6.0/   a copy of the programs, only where root's server user cannot reach the wheel

The lock makes a second `paddock up` harmless. PostgreSQL's own postmaster.pid cannot serve as the lock:
that file outlives a `kill -9`, and says nothing about the time before the server runs.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import platformdirs

from paddock.store.errors import DirectoryInUse, EmbeddedPostgresError
from paddock.store.server_user import ServerUser

_LOCK = "paddock.lock"
# A fresh file system has this directory at its root; it holds no data.
_NOT_CONTENT = {"lost+found"}
# sun_path holds 104 bytes on macOS, 108 on Linux, both with a final NUL.
_SOCKET_PATH_LIMIT = 103
_SOCKET_NAME = ".s.PGSQL.65535"
# A full file system cannot store the log line that says so. Less free space than this counts as full.
_HARDLY_ANY_ROOM = 1024 * 1024
_TEMPORARY_PREFIX = "paddock-pg-"


def default_data_dir() -> Path:
    """For root not below /root, because the server's unprivileged user could not enter it."""
    if os.geteuid() == 0:
        return Path("/var/lib/paddock")
    return platformdirs.user_data_path("paddock", appauthor=False)


def running_url(data_dir: Path) -> str | None:
    """How to reach the server that another paddock runs in this directory, once it is up."""
    try:
        return DataDirectory(data_dir).url_file.read_text().strip() or None
    except OSError:
        return None


class DataDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()
        self.log = self.path / "postgres.log"
        self.url_file = self.path / "database-url"

    def pgdata(self, major: int) -> Path:
        return self.path / f"postgres-{major}"

    def existing_pgdata(self) -> Path | None:
        """The newest PostgreSQL data directory, of any major version."""
        found = [path for path in self.path.glob("postgres-*") if _major_version(path)]
        return max(found, key=lambda path: (len(path.name), path.name), default=None)

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Own this directory exclusively until the end of the block."""
        with self.writing():
            self._refuse_a_strangers_directory()
            self._make()
            # Never unlinked: a third process could lock a new file while we hold the old one.
            descriptor = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._lock(descriptor)
            yield
        finally:
            os.close(descriptor)

    def _make(self) -> None:
        """Private, but PostgreSQL's own user, if there is one, must be able to reach its files."""
        if not self.path.exists():
            self.path.mkdir(parents=True, mode=0o700)
            if os.geteuid() == 0:
                self.path.chmod(0o711)

    def _lock(self, descriptor: int) -> None:
        with self.writing():
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pid = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
                raise DirectoryInUse(
                    f"The data directory {self.path} is in use by another paddock (pid {pid}): stop "
                    "that one, or choose another directory with --data-dir."
                ) from None
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)

    def _refuse_a_strangers_directory(self) -> None:
        if not self.path.exists() or (self.path / _LOCK).exists():
            return
        if (self.path / "PG_VERSION").exists():
            raise EmbeddedPostgresError(
                f"{self.path} is the directory of another PostgreSQL: choose an empty one with "
                "--data-dir, or start that server and set PADDOCK_DATABASE_URL."
            )
        if {entry.name for entry in self.path.iterdir()} - _NOT_CONTENT:
            raise EmbeddedPostgresError(
                f"{self.path} is not empty and was not made by paddock: choose another directory "
                "with --data-dir."
            )

    def refuse_another_major_version(self, major: int) -> None:
        """A newer paddock may bring a newer PostgreSQL. If it started an empty database beside the old
        data, the data would seem to be lost."""
        ours = self.pgdata(major)
        found = ours if ours.exists() else self.existing_pgdata()
        version = _major_version(found) if found else None
        if found and not version:
            raise EmbeddedPostgresError(
                f"{found} is damaged (it has no PG_VERSION): restore it from a backup, or choose "
                "another directory with --data-dir."
            )
        if found and version != str(major):
            raise EmbeddedPostgresError(
                f"{found} holds the data of PostgreSQL {version}, and this paddock brings "
                f"PostgreSQL {major}: upgrade them with pg_upgrade into {ours}, choose another "
                "--data-dir, or set PADDOCK_DATABASE_URL."
            )

    def new_pgdata(self, major: int, user: ServerUser) -> Path:
        """A directory beside the final one, renamed once it is complete: a paddock killed in the
        middle leaves nothing that looks like a database. The name is new each time, because the
        killed paddock's initdb may still be writing to the previous directory."""
        prefix = f"postgres-{major}.partial-"
        with self.writing():
            for abandoned in self.path.glob(f"{prefix}*"):
                shutil.rmtree(abandoned, ignore_errors=True)
            partial = Path(tempfile.mkdtemp(prefix=prefix, dir=self.path))
            user.give(partial)
        return partial

    def put_in_place(self, partial: Path, major: int) -> None:
        with self.writing():
            partial.rename(self.pgdata(major))
            # The rename itself must survive a power cut.
            descriptor = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def socket_directory(self, user: ServerUser) -> Path:
        """Only the server's user (and root) can enter this directory, because the server asks for no
        password on this socket."""
        directory = self.path / "run"
        with self.writing():
            shutil.rmtree(directory, ignore_errors=True)  # a killed server leaves its lock there
            if _can_hold_a_socket(directory):
                directory.mkdir(mode=0o700)
            else:
                directory = Path(
                    tempfile.mkdtemp(prefix=_TEMPORARY_PREFIX, dir=_short_parent(user))
                )
            user.give(directory)
        return directory

    def publish(self, url: str) -> None:
        """Written to another file and renamed, so that a reader never sees half of it."""
        partial = self.url_file.with_suffix(".partial")
        with self.writing():
            partial.unlink(missing_ok=True)
            partial.touch(mode=0o600)
            partial.write_text(url + "\n")
            partial.rename(self.url_file)

    def unpublish(self) -> None:
        """Also remove what a killed paddock published, with its temporary socket directory."""
        query = urlsplit(running_url(self.path) or "").query
        for sockets in parse_qs(query).get("host", []):
            self.remove_sockets(Path(sockets))
        with suppress(OSError):
            self.url_file.unlink(missing_ok=True)

    def remove_sockets(self, sockets: Path) -> None:
        if sockets.name.startswith(_TEMPORARY_PREFIX):
            shutil.rmtree(sockets, ignore_errors=True)

    @contextmanager
    def writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise self.is_full() from error
            raise EmbeddedPostgresError(
                f"The data directory {self.path} cannot be written ({error.strerror}): choose "
                "another with --data-dir, or set PADDOCK_DATABASE_URL."
            ) from error

    def has_no_room(self) -> bool:
        try:
            return shutil.disk_usage(self.path).free < _HARDLY_ANY_ROOM
        except OSError:
            return False

    def is_full(self) -> EmbeddedPostgresError:
        return EmbeddedPostgresError(
            f"The disk that holds {self.path} is full: free some space, or choose another "
            "directory with --data-dir (what was committed is safe)."
        )


def _can_hold_a_socket(directory: Path) -> bool:
    """Short enough for the kernel, and without the characters that separate hosts in a URL."""
    path = str(directory / _SOCKET_NAME)
    return len(os.fsencode(path)) <= _SOCKET_PATH_LIMIT and not set(path) & set(',"')


def _short_parent(user: ServerUser) -> Path:
    usual = Path(tempfile.gettempdir())
    if _can_hold_a_socket(usual / f"{_TEMPORARY_PREFIX}12345678") and user.can_enter(usual):
        return usual
    return Path("/tmp")  # noqa: S108 -- what is made there is private


def _major_version(pgdata: Path) -> str | None:
    if not re.fullmatch(r"postgres-\d+", pgdata.name):
        return None
    try:
        return (pgdata / "PG_VERSION").read_text().strip()
    except OSError:
        return None
