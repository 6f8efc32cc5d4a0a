"""The system user that the embedded PostgreSQL runs as.

PostgreSQL refuses to run as root, and in a container or on a fresh machine paddock often is root.
Then paddock runs the server as an existing unprivileged user, and never creates one.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from paddock.store.errors import EmbeddedPostgresError

_CANDIDATES = ("postgres", "nobody")


class _SubprocessArguments(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]
    env: dict[str, str]


@dataclass(frozen=True, slots=True)
class ServerUser:
    name: str
    uid: int
    gid: int
    is_other: bool  # than the user paddock runs as

    def subprocess_arguments(self) -> _SubprocessArguments:
        """For `subprocess`: this user, and none of paddock's own environment, which may hold secrets.
        LC_ALL keeps messages in English, because paddock searches them for known words."""
        environment = {"LC_ALL": "C", "PATH": os.environ.get("PATH", os.defpath)}
        if "LD_LIBRARY_PATH" in os.environ:
            environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
        if not self.is_other:
            return {"env": environment}
        return {"env": environment, "user": self.uid, "group": self.gid, "extra_groups": []}

    def give(self, path: Path) -> None:
        if self.is_other:
            os.chown(path, self.uid, self.gid)

    def can_enter(self, directory: Path) -> bool:
        """Tested by a process that runs as that user: mode bits alone ignore access lists, mounts and
        security modules."""
        if not self.is_other:
            return True
        answer = subprocess.run(
            ["/bin/sh", "-c", 'cd -- "$1"', "sh", directory],
            stderr=subprocess.DEVNULL,
            check=False,
            cwd="/",
            **self.subprocess_arguments(),
        )
        return answer.returncode == 0


def server_user(existing: Path | None) -> ServerUser:
    """The user to run the server as: the owner of the data directory, if it exists already."""
    if os.geteuid() != 0:
        uid = os.geteuid()
        return ServerUser(name=_name(uid), uid=uid, gid=os.getegid(), is_other=False)
    if existing and (owner := existing.stat()).st_uid != 0:
        return ServerUser(
            name=_name(owner.st_uid), uid=owner.st_uid, gid=owner.st_gid, is_other=True
        )
    for name in _CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return ServerUser(name=name, uid=entry.pw_uid, gid=entry.pw_gid, is_other=True)
    raise EmbeddedPostgresError(
        "PostgreSQL does not run as root, and this machine has neither a user postgres nor nobody: "
        "run paddock as another user, or set PADDOCK_DATABASE_URL."
    )


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
