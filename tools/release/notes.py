"""A component's changelog: one section per release, the newest first."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Final

from tools.release.history import Repository, named
from tools.release.plan import Planned
from tools.release.versions import Version

DIRECTORY: Final = "changelogs"


def section(repository: Repository, one: Planned) -> str:
    """As git-cliff writes it, from the commits the plan was made of."""
    assert one.version is not None  # nobody writes notes of nothing
    pinned = sorted({f"{each.pin.of.name} {each.after}" for each in one.pinned})
    context = named(
        repository.since(one.component, one.last),
        version=one.version,
        time=repository.time(),
        pinned=pinned,
    )
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.write(context)
        file.flush()
        written = repository.cliff("--from-context", file.name)
    return written.decode("utf-8").strip() + "\n"


def write(repository: Repository, one: Planned) -> Path:
    path = repository.root / DIRECTORY / f"{one.component.name}.md"
    before = path.read_text("utf-8") if path.exists() else ""
    path.parent.mkdir(exist_ok=True)
    assert one.version is not None
    after = changelog(
        before, title=one.component.title, version=one.version, section=section(repository, one)
    )
    path.write_text(after, "utf-8")
    return path


def changelog(before: str, *, title: str, version: Version, section: str) -> str:
    """With the section in its place; one of the same version is replaced, so that notes can be written
    as often as one likes."""
    older = [
        each
        for each in re.split(r"^(?=## )", before, flags=re.MULTILINE)[1:]
        if not each.startswith(f"## {version} ")
    ]
    heading = f"# Changelog of {title}\n\n"
    return heading + "\n".join(each.strip() + "\n" for each in [section, *older])
