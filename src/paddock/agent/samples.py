"""Reads the samples and marks that `run.sh` writes on the stage. Any job can write these files too, so
no link is followed, only regular files are read, every read has a bound, and only numbers come out.

    vitals/samples, samples.old    a line every few seconds; moved aside when it is large
    vitals/job-started             Unix time
    vitals/ended                   Unix time, exit code (for people)
"""

from __future__ import annotations

import os
import stat
from typing import Final, NamedTuple

#: The words of a line, in the order in which they are also reported; "-" means not measured.
FIELDS: Final = (
    "at",  # Unix time
    "memory_used",  # bytes, without the page cache that the kernel can reclaim, as the kubelet counts
    "memory_limit",  # bytes
    "oom_kills",  # since the container's start
    "memory_pressure",  # per cent of the last ten seconds in which a process waited for memory
    "cpu_pressure",
    "io_pressure",
    "cpu_seconds",  # since the container's start; a line has microseconds
    "disk_used",  # per cent of the work directory's file system
    "load",  # the machine's, over one minute
)
_CPU: Final = FIELDS.index("cpu_seconds")

#: As much as `run.sh` writes before it moves the file aside. Nothing is dropped while less is unread.
_MOST_READ: Final = 64 * 1024
_MOST_LINE: Final = 256
#: Digits: enough for a byte count of any machine, and for any integer that JSON readers take.
_MOST_DIGITS: Final = 16
#: In the year 2096; no clock makes a later mark.
_LAST_TIME: Final = 4e9

Sample = list[float | None]


def parse(line: bytes) -> Sample | None:
    """`None` if the line is no sample. A word that is not a number counts as missing."""
    words = line.split(b" ") if len(line) <= _MOST_LINE else []
    if len(words) != len(FIELDS):
        return None
    sample: Sample = [_number(word) for word in words]
    if (microseconds := sample[_CPU]) is not None:
        sample[_CPU] = microseconds / 1e6
    return sample if sample[0] is not None else None


def _number(word: bytes) -> float | None:
    whole, dot, fraction = word.partition(b".")
    if len(word) > _MOST_DIGITS or not whole.isdigit():
        return None
    if not dot:
        return int(whole)
    return float(word) if fraction.isdigit() else None


class Marks(NamedTuple):
    job_started_at: float | None = None
    ended: bool = False


class Samples:
    def __init__(self, stage: str) -> None:
        self._path = f"{stage}/vitals"
        self._inode: int | None = None
        self._offset = 0

    def new(self) -> list[Sample]:
        """The samples since the last call; the oldest are left out if there are too many."""
        lines: list[bytes] = []
        directory = self._open_directory()
        if directory is None:
            return []
        try:
            self._read(directory, "samples", lines)
        finally:
            os.close(directory)
        return [sample for line in lines if (sample := parse(line)) is not None]

    def marks(self) -> Marks:
        directory = self._open_directory()
        if directory is None:
            return Marks()
        try:
            started, ended = _first_word(directory, "job-started"), _first_word(directory, "ended")
        finally:
            os.close(directory)
        started_at = _number(started or b"")
        if started_at is not None and started_at > _LAST_TIME:
            started_at = None  # the server would refuse a whole report with such a time
        return Marks(started_at, ended is not None)

    def _open_directory(self) -> int | None:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(self._path, flags)
        except OSError:
            return None  # it does not exist yet, or a job has replaced it

    def _read(self, directory: int, name: str, lines: list[bytes]) -> None:
        file = _open(directory, name)
        if file is None:
            return
        try:
            found = os.fstat(file)
            if found.st_ino != self._inode:
                self._read_old(directory, lines)
                self._inode, self._offset = found.st_ino, 0
            lines += self._lines(file, found.st_size)
        finally:
            os.close(file)

    def _read_old(self, directory: int, lines: list[bytes]) -> None:
        """Read what `run.sh` added after our last read and before it moved the file aside."""
        file = _open(directory, "samples.old")
        if file is None:
            return
        try:
            found = os.fstat(file)
            if self._inode in (None, found.st_ino):
                lines += self._lines(file, found.st_size)
        finally:
            os.close(file)

    def _lines(self, file: int, size: int) -> list[bytes]:
        """Whole lines only; an incomplete line is read later."""
        if size < self._offset:
            self._offset = 0
        self._offset = max(self._offset, size - _MOST_READ)
        content = os.pread(file, _MOST_READ, self._offset)
        end = content.rfind(b"\n") + 1
        if not end and len(content) > _MOST_LINE:
            end = len(content)  # no line of `run.sh` is so long
        self._offset += end
        return content[:end].splitlines()


def _first_word(directory: int, name: str) -> bytes | None:
    """`None` if there is no such file."""
    file = _open(directory, name)
    if file is None:
        return None
    try:
        return os.read(file, _MOST_LINE).partition(b" ")[0].strip()
    finally:
        os.close(file)


def _open(directory: int, name: str) -> int | None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        # Non-blocking: a job may have put a pipe there, to which no process writes.
        file = os.open(name, flags | os.O_NONBLOCK, dir_fd=directory)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    return None
