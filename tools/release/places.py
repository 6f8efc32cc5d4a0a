"""Reads and writes a version in a file and changes nothing else: comments and order stay."""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

from tools.release.components import Place
from tools.release.errors import ReleaseError

_LINE: Final = re.compile(
    r"(?P<before>(?P<indent> *)(?P<key>[\w.-]+):[ ]*[\"']?)[^#\"'\n]*?(?P<after>[\"']?\s*(?:#.*)?)"
)


def version_at(place: Place, text: str) -> str:
    if place.file.endswith(".py"):
        if found := _assignment(place).search(text):
            return found["value"]
    else:
        value = _loaded(place, text)
        for key in place.key.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, str):
            return value
    raise _missing(place)


def with_version(place: Place, text: str, version: str) -> str:
    if place.file.endswith(".py"):
        written, times = _assignment(place).subn(rf"\g<before>{version}\g<after>", text)
    else:
        written, times = _with_value(place.key.split("."), text, version)
    if times != 1 or version_at(place, written) != version:
        raise _missing(place)
    if not place.file.endswith(".py"):
        _check_the_rest(place, text, written, version)
    return written


def _missing(place: Place) -> ReleaseError:
    return ReleaseError(
        f"{place.file} has no version under `{place.key}` that could be changed: write one as a quoted "
        "string on a line of its own, or correct tools/release/components.toml."
    )


def _assignment(place: Place) -> re.Pattern[str]:
    key = re.escape(place.key)
    return re.compile(
        rf'^(?P<before>{key}(?:: Final)? = ")(?P<value>[^"]*)(?P<after>")', re.MULTILINE
    )


def _with_value(keys: list[str], text: str, version: str) -> tuple[str, int]:
    """Follows the keys by their indentation."""
    path: list[tuple[int, str]] = []
    lines = text.splitlines(keepends=True)
    times = 0
    for number, line in enumerate(lines):
        found = _LINE.fullmatch(line.rstrip("\n"))
        if not found:
            continue
        indent = len(found["indent"])
        path = [*(each for each in path if each[0] < indent), (indent, found["key"])]
        if [key for _, key in path] == keys:
            lines[number] = f"{found['before']}{version}{found['after']}\n"
            times += 1
    return "".join(lines), times


def _check_the_rest(place: Place, before: str, after: str, version: str) -> None:
    """YAML has more ways to write a key than by lines: nothing but this version may have changed."""
    expected = _loaded(place, before)
    inner = expected
    *parents, last = place.key.split(".")
    for key in parents:
        inner = inner[key]
    inner[last] = version
    if _loaded(place, after) != expected:
        raise _missing(place)


def _loaded(place: Place, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ReleaseError(f"{place.file} is no YAML: {' '.join(str(error).split())}.") from error
