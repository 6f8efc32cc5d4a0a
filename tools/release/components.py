"""The components, read from their file and checked: a plan with a misspelt path would silently release
nothing."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from tools.release.errors import ReleaseError

#: Relative to the repository.
FILE: Final = "tools/release/components.toml"
#: Tags are `name-1.2.3`; a dash in a name would make them ambiguous.
_NAME: Final = re.compile(r"[a-z][a-z0-9]*")


class Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file that carries a version, and the version's key."""

    file: str
    key: str

    def __str__(self) -> str:
        return f"{self.file} ({self.key})"


class Component(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    paths: list[str]
    versions: list[Place]

    def ships(self, file: str) -> bool:
        return any(
            file.startswith(path) if path.endswith("/") else file == path for path in self.paths
        )


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    component: list[Component]


@dataclass(frozen=True, slots=True)
class Pin:
    """A version of one component that another one ships: the other's files change with it."""

    of: Component
    within: Component
    place: Place


def read(repository: Path) -> list[Component]:
    try:
        found = msgspec.convert(
            tomllib.loads((repository / FILE).read_text("utf-8")), type=_File
        ).component
    except (OSError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ReleaseError(f"The components cannot be read from {FILE}: {error}.") from error
    for component in found:
        if not _NAME.fullmatch(component.name):
            raise ReleaseError(
                f"{FILE}: `{component.name}` is no name for a component: use small letters and digits."
            )
        if not component.paths:
            raise ReleaseError(
                f"{FILE}: {component.name} has no paths, so it would never be released."
            )
        for path in component.paths:
            if (
                not (repository / path).exists()
                or path.endswith("/") != (repository / path).is_dir()
            ):
                raise ReleaseError(
                    f"{FILE}: {component.name} is to ship {path}, which is not there: correct it (a "
                    "directory ends in `/`)."
                )
    return found


def pins(components: list[Component]) -> list[Pin]:
    return [
        Pin(of=component, within=other, place=place)
        for component in components
        for place in component.versions
        for other in components
        if other is not component and other.ships(place.file)
    ]
