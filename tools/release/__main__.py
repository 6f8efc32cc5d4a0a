"""`python -m tools.release plan|notes|apply`; `make release-plan` and `make release-notes` call it."""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from tools.release import notes
from tools.release.components import pins, read
from tools.release.errors import ReleaseError
from tools.release.history import Repository
from tools.release.places import version_at, with_version
from tools.release.plan import Known, Planned, plan

#: A reserved top-level domain (RFC 2606): no address in it can ever be reached.
PLACEHOLDER: Final = ".example"


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
            case _ if not any(one.level for one in planned):
                _say("There is nothing to release.")
            case "notes":
                _say(_section(repository, planned).rstrip())
            case _:
                _apply(repository, planned)
    except ReleaseError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def made(repository: Repository) -> list[Planned]:
    """The plan for HEAD; uncommitted changes are ignored."""
    repository.check()
    components = read(repository.root)
    known = {}
    for component in components:
        last = repository.last_release(component)
        known[component.name] = Known(last=last, commits=repository.since(component, last))
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
        if one.last is None:
            # A list of all commits is not a reason; `--json` has them.
            types = Counter(commit.message.type or "without a type" for commit in one.commits)
            counts = ", ".join(f"{count} {each}" for each, count in types.most_common())
            yield f"{name} {one.version}, its first: {len(one.commits)} commits ({counts})"
            continue
        yield f"{name} {one.last} → {one.version}, {one.level.name.lower()}, because"
        for commit in one.commits:
            shipped = [each for each in repository.files(commit.id) if one.component.ships(each)]
            yield f"  {commit.id[:7]} {commit.message.title}"
            # A merge may touch no file by itself.
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
                "title": commit.message.title,
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


def _section(repository: Repository, planned: list[Planned]) -> str:
    return notes.section(_text(repository, notes.FILE), planned, date=repository.date())


def _apply(repository: Repository, planned: list[Planned]) -> None:
    """Writes versions, pins and changelog: all of a plan or none, since errors are found before
    writing."""
    _check_addresses(repository.root)
    changelog = notes.released(_text(repository, notes.FILE), _section(repository, planned))
    written = {notes.FILE: changelog}
    # Also components that are not released now: their pins may be outdated.
    for one in planned:
        for place in one.component.versions if one.version else ():
            text = written.get(place.file) or _text(repository, place.file)
            written[place.file] = with_version(place, text, str(one.version))
    for file, text in written.items():
        (repository.root / file).write_text(text, "utf-8")
        _say(f"wrote {file}")
    tags = [f"{one.component.name}-{one.version}" for one in planned if one.level is not None]
    names = ", ".join(f"{one.component.name} {one.version}" for one in planned if one.level)
    _say(f"Commit this as `chore(release): {names}`, and put these tags on it: {' '.join(tags)}")


def _check_addresses(root: Path) -> None:
    """The project has no public address yet, and a package that was published cannot be corrected."""
    file = root / "pyproject.toml"
    project = tomllib.loads(file.read_text("utf-8"))["project"] if file.exists() else {}
    for name, address in project.get("urls", {}).items():
        if (urlsplit(address).hostname or "").endswith(PLACEHOLDER):
            raise ReleaseError(
                f"pyproject.toml: the address of {name} is a placeholder, {address}: write the "
                "repository's own."
            )


def _text(repository: Repository, file: str) -> str:
    try:
        return (repository.root / file).read_text("utf-8")
    except OSError as error:
        raise ReleaseError(f"{file} cannot be read: {error.strerror}.") from error


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    parser.add_argument("--repository", type=Path, default=Path(), help="its root; default: here")
    commands = parser.add_subparsers(dest="command", required=True)
    planning = commands.add_parser("plan", help="what would be released, and why")
    planning.add_argument("--json", action="store_true", help="for programs")
    commands.add_parser(
        "notes", help="show the section of the changelog that a release would write"
    )
    commands.add_parser("apply", help="write versions, pins and the changelog, to be committed")
    return parser


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
