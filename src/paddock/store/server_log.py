"""The log of the embedded PostgreSQL, and the one line of it that explains a failure."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from paddock.store.data_directory import DataDirectory
from paddock.store.errors import EmbeddedPostgresError

# A day of one error a second is some 16 MB; one old file of that size is kept beside the current.
_LIMIT = 16 * 1024 * 1024
_TAIL = 8 * 1024  # the log of a failed start, or of a crash and the failed recovery after it
_NO_ROOM = re.compile(r"No space left on device|Disk quota exceeded")
_TROUBLE = re.compile(r"\b(?:PANIC|FATAL|error): +(.*)")


class ServerLog:
    def __init__(self, directory: DataDirectory) -> None:
        self._directory = directory
        self._path = directory.log
        self._began = 0  # the offset where the present server's log begins

    @contextmanager
    def opened(self) -> Iterator[int]:
        """A descriptor for a new server to write its log to."""
        with self._directory.writing():
            self.trim()
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            self._began = os.fstat(descriptor).st_size
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def append(self, text: str) -> None:
        with suppress(OSError, EmbeddedPostgresError), self.opened() as descriptor:
            os.write(descriptor, text.encode())

    def trim(self) -> None:
        """Copy and truncate, do not rename: the server goes on writing to the file it has open."""
        with suppress(OSError):
            if self._path.stat().st_size > _LIMIT:
                shutil.copyfile(self._path, self._path.with_suffix(".log.old"))
                os.truncate(self._path, 0)
                self._began = 0

    def last_line(self) -> str:
        lines = self._tail().splitlines()
        return re.sub(r"^.*?\[\d+\] ", "", lines[-1]) if lines else "it has said nothing yet"

    def failure(self, what: str, *, said: str | None = None) -> EmbeddedPostgresError:
        said = self._tail() if said is None else said
        if _NO_ROOM.search(said) or self._directory.has_no_room():
            return self._directory.is_full()
        troubles = _TROUBLE.findall(said) or said.splitlines() or ["it said nothing"]
        return EmbeddedPostgresError(
            f"PostgreSQL {what} ({troubles[-1].strip().rstrip('.')}): see {self._path}."
        )

    def _tail(self) -> str:
        with suppress(OSError), self._path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._began, size - _TAIL))
            return log.read().decode(errors="replace")
        return ""
