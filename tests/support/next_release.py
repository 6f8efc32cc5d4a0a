"""A possible next release of paddock, to upgrade to and to roll back from."""

from __future__ import annotations

import shutil
from pathlib import Path

import paddock

VERSION = "0.2.0"


def write_next_release(checkout: Path) -> Path:
    """Copies this program, newer and with one more migration; returns its place on the Python path."""
    path = checkout / "src"
    source = path / "paddock"
    shutil.copytree(
        Path(paddock.__file__).parent, source, ignore=shutil.ignore_patterns("__pycache__")
    )
    start = source / "__init__.py"
    start.write_text(start.read_text().replace(paddock.__version__, VERSION))
    write_next_migration(source / "store" / "migrations")
    return path


def write_next_migration(migrations: Path) -> Path:
    """Expand only: this release can run on the schema after it."""
    number = len(list(migrations.glob("*.sql"))) + 1
    file = migrations / f"{number:04}_next.sql"
    file.write_text(
        "-- What the next release brings.\n"
        f"-- oldest program: {paddock.__version__}\n\n"
        "CREATE TABLE next_release (id integer);\n"
        "ALTER TABLE hosts ADD COLUMN next_release text NOT NULL DEFAULT 'expanded';\n"
    )
    return file
