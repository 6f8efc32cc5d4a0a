"""The changelog. Developers write what users should know under `## [Unreleased]`. A release turns that
section into one for its versions, and begins a new one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tools.release.errors import ReleaseError
from tools.release.plan import Planned

FILE: Final = "CHANGELOG.md"
UNRELEASED: Final = "## [Unreleased]"

_SECTION: Final = re.compile(
    rf"^{re.escape(UNRELEASED)}\n(?P<entries>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL
)


def section(changelog: str, planned: Sequence[Planned], *, date: str) -> str:
    """The text of the release's section."""
    found = _SECTION.search(changelog)
    if found is None:
        raise ReleaseError(
            f"{FILE} has no section `{UNRELEASED}`: add it above the other sections."
        )
    if not (entries := found["entries"].strip()):
        raise ReleaseError(
            f"{FILE} has nothing under `{UNRELEASED}`: write what users should know about this release."
        )
    versions = ", ".join(f"{one.component.name} {one.version}" for one in planned if one.level)
    return f"## {versions} ({date})\n\n{entries}\n"


def released(changelog: str, section: str) -> str:
    """The changelog with that section instead of the unreleased one, and an empty one above it."""
    return _SECTION.sub(lambda _: f"{UNRELEASED}\n\n{section}\n", changelog).rstrip() + "\n"
