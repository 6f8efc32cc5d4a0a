"""`python -m tools.release plan|notes|apply`; `make release-plan` and `make release-notes` call it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.release import notes
from tools.release.components import pins, read
from tools.release.errors import ReleaseError
from tools.release.history import Repository, commits
from tools.release.places import version_at, with_version
from tools.release.plan import Known, Planned, plan


def main(arguments: list[str]) -> int:
    options = _options().parse_args(arguments)
    try:
        repository = Repository(options.repository)
        planned = made(repository)
        match options.command:
            case "plan" if options.json:
                _say(json.dumps([_as_json(repository, one) for one in planned], indent=2))
            case "plan":
                for line in told(repository, planned):
                    _say(line)
            case "notes":
                _write_notes(repository, planned)
            case _:
                _apply(repository, planned)
    except ReleaseError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def made(repository: Repository) -> list[Planned]:
    """The plan for HEAD; what is not committed is not looked at."""
    repository.check()
    components = read(repository.root)
    known = {}
    for component in components:
        last = repository.last_release(component)
        known[component.name] = Known(last=last, commits=commits(repository.since(component, last)))
    at: dict[tuple[str, str], str | None] = {}
    for pin in pins(components):
        text = repository.committed(pin.place.file)
        at[pin.place.file, pin.place.key] = version_at(pin.place, text) if text else None
    return plan(components, known, at)


def told(repository: Repository, planned: list[Planned]) -> Iterator[str]:
    for one in planned:
        name = one.component.name
        if one.level is None:
            yield f"{name}: nothing" + (f" since {one.last}" if one.last else "; never released")
            continue
        how = (
            f"{one.last} → {one.version}, {one.level.name.lower()}"
            if one.last
            else f"{one.version}, its first"
        )
        yield f"{name} {how}, because"
        for commit in one.commits:
            shipped = [each for each in repository.files(commit.id) if one.component.ships(each)]
            yield f"  {commit.id[:7]} {commit.title}"
            # A merge may touch nothing by itself.
            if shipped:
                more = f" and {len(shipped) - 1} more" if len(shipped) > 1 else ""
                yield f"          touches {shipped[0]}{more}"
        for change in one.pinned:
            place = change.pin.place
            before = f" instead of {change.before}" if change.before != str(change.after) else ""
            yield f"  it pins {change.pin.of.name} {change.after}{before} in {place}"


def _as_json(repository: Repository, one: Planned) -> dict[str, Any]:
    return {
        "component": one.component.name,
        "last": str(one.last) if one.last else None,
        "version": str(one.version) if one.version else None,
        "level": one.level.name.lower() if one.level else None,
        "commits": [
            {
                "id": commit.id,
                "title": commit.title,
                "level": commit.level.name.lower(),
                "files": [
                    each for each in repository.files(commit.id) if one.component.ships(each)
                ],
            }
            for commit in one.commits
        ],
        "pins": [
            {
                "component": change.pin.of.name,
                "file": change.pin.place.file,
                "key": change.pin.place.key,
                "before": change.before,
                "after": str(change.after),
            }
            for change in one.pinned
        ],
    }


def _write_notes(repository: Repository, planned: list[Planned]) -> None:
    released = [one for one in planned if one.level is not None]
    for one in released:
        path = notes.write(repository, one)
        _say(f"{one.component.name} {one.version}: {path.relative_to(repository.root)}")
    if not released:
        _say("There is nothing to release.")


def _apply(repository: Repository, planned: list[Planned]) -> None:
    """Versions, pins and notes, all of a plan or none: what cannot be written is found before."""
    written: dict[Path, str] = {}
    # Also those that are not released now: their pins may be behind.
    for one in planned:
        for place in one.component.versions if one.version else ():
            path = repository.root / place.file
            try:
                text = written.get(path) or path.read_text("utf-8")
            except OSError as error:
                raise ReleaseError(f"{place} cannot be read: {error.strerror}.") from error
            written[path] = with_version(place, text, str(one.version))
    for path, text in written.items():
        path.write_text(text, "utf-8")
    _write_notes(repository, planned)
    tags = [f"{one.component.name}-{one.version}" for one in planned if one.level is not None]
    if tags:
        _say(f"Commit this as one, and put these tags on that commit: {' '.join(tags)}")


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    parser.add_argument("--repository", type=Path, default=Path(), help="its root; default: here")
    commands = parser.add_subparsers(dest="command", required=True)
    planning = commands.add_parser("plan", help="what would be released, and why")
    planning.add_argument("--json", action="store_true", help="for programs")
    commands.add_parser("notes", help="write the changelogs of what would be released")
    commands.add_parser("apply", help="write versions, pins and changelogs, to be committed")
    return parser


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
