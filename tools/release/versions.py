"""Versions, and how much a change raises one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Self

_SEMANTIC: Final = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")


class Level(IntEnum):
    """Ordered: the greatest of several changes counts."""

    PATCH = 1
    MINOR = 2
    MAJOR = 3


@dataclass(frozen=True, slots=True, order=True)
class Version:
    major: int
    minor: int
    patch: int

    @classmethod
    def parse(cls, text: str) -> Self | None:
        if found := _SEMANTIC.fullmatch(text):
            return cls(*(int(number) for number in found.groups()))
        return None

    def raised(self, level: Level) -> Version:
        # Before 1.0.0 compatibility is not promised, and a breaking change raises the middle number.
        if level is Level.MAJOR and self.major == 0:
            level = Level.MINOR
        match level:
            case Level.MAJOR:
                return Version(self.major + 1, 0, 0)
            case Level.MINOR:
                return Version(self.major, self.minor + 1, 0)
            case Level.PATCH:
                return Version(self.major, self.minor, self.patch + 1)

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


#: Of a component that was never released.
FIRST: Final = Version(0, 1, 0)
