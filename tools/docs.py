"""The parts of docs/ that come from the code: `python -m tools.docs`, or `--check`.

A table copied into a page by hand soon becomes wrong. Here a page marks the place,

    <!-- generated: NAME -->
    <!-- end -->

and the tool writes the text between the marks from the tables that the program itself uses. A test
fails when a page is out of date.
"""

from __future__ import annotations

import argparse
import ast
import ipaddress
import json
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, get_args

from prometheus_client.metrics import MetricWrapperBase
from pydantic import BaseModel
from pydantic.fields import FieldInfo

import paddock
from paddock.cli.output import complain, show
from paddock.domain.allocation import Withheld
from paddock.domain.failure_modes import FAILURE_MODES, FailureMode, Party
from paddock.domain.github import errors as github_errors
from paddock.domain.recovery.durations import in_words
from paddock.domain.recovery.evidence import Subject
from paddock.domain.recovery.table import RULES
from paddock.domain.recovery.thresholds import Thresholds, reasons
from paddock.domain.retention import RETENTION
from paddock.domain.runners import endings
from paddock.domain.runners.endings import Ending
from paddock.domain.states import HOLDS_CAPACITY, RUNNER_TRANSITIONS, RunnerState
from paddock.fleet.kube.pod_rules import RULES as POD_RULES
from paddock.fleet.kube.pod_rules import FieldRule as PodRule
from paddock.fleet.kube.pod_rules import Privileged
from paddock.github.settings import GitHubAppSettings
from paddock.host.special_ranges import GLOBAL_UNICAST, SPECIAL_RANGES
from paddock.log_events import EVENTS, RunnerFields
from paddock.settings import Settings
from paddock.store.data_directory import default_data_dir
from paddock.web.api_description import described
from paddock.web.metrics import LEVELS
from simulator.mutants import MUTANTS

ROOT: Final = Path(__file__).parents[1]

#: docs/invariants.md numbers them from 1.
INVARIANTS: Final = 92

_BLOCK: Final = re.compile(
    r"^<!-- generated: (?P<name>[A-Za-z -]+) -->\n(?P<old>.*?)^<!-- end -->$",
    re.MULTILINE | re.DOTALL,
)
_MARKER: Final = re.compile(r"^<!-- (?:generated:.*|end) -->$", re.MULTILINE)

#: The text for a default that depends on the machine.
_COMPUTED: Final[Mapping[Any, str]] = {
    default_data_dir: "`/var/lib/paddock` for root, otherwise the user's data directory"
}


class DocsError(Exception):
    """A page cannot be written; one sentence."""


def pages(root: Path) -> list[Path]:
    """Every page for readers, generated parts or not."""
    found = [*root.glob("*.md"), *root.glob("docs/**/*.md")]
    if not found:
        raise DocsError(f"There are no pages in {root}: run this in a checkout of paddock.")
    return sorted(found)


def render(text: str, *, page: str) -> str:
    """The page with its generated parts as the code has them now."""

    def write(block: re.Match[str]) -> str:
        name = block["name"]
        if name not in SECTIONS:
            known = ", ".join(sorted(SECTIONS))
            raise DocsError(f"{page} asks for `{name}`, and there are only: {known}.")
        return f"<!-- generated: {name} -->\n{SECTIONS[name](block['old'])}<!-- end -->"

    blocks = len(_BLOCK.findall(text))
    if len(_MARKER.findall(text)) != 2 * blocks:
        raise DocsError(f"{page} has a marker without its counterpart.")
    return _BLOCK.sub(write, text)


def outdated(root: Path = ROOT) -> dict[Path, str]:
    """The outdated pages, each with its right content."""
    written = {page: page.read_text("utf-8") for page in pages(root)}
    rendered = {
        page: render(text, page=str(page.relative_to(root))) for page, text in written.items()
    }
    ranges = root / "deploy" / "chart" / "files" / "special-ranges.yaml"
    if ranges.parent.is_dir():
        written[ranges] = ranges.read_text("utf-8") if ranges.exists() else ""
        rendered[ranges] = special_ranges_file()
    return {page: text for page, text in rendered.items() if text != written[page]}


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [
        list(headings),
        ["---"] * len(headings),
        *([_cell(cell) for cell in row] for row in rows),
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _yes(holds: bool) -> str:
    return "yes" if holds else "–"


# The life of a runner.


def _steps() -> list[tuple[str, RunnerState, str]]:
    """From where, to where, why. Steps that almost every state can make are one line."""
    alike: dict[tuple[RunnerState, str], list[RunnerState]] = {}
    for (before, after), why in RUNNER_TRANSITIONS.items():
        alike.setdefault((after, why), []).append(before)
    steps = []
    for (after, why), befores in alike.items():
        if len(befores) > len(RunnerState) / 2:
            others = [state for state in RunnerState if state not in befores]
            steps.append((f"any but {' and '.join(others)}", after, why))
        else:
            steps += [(before.value, after, why) for before in befores]
    return steps


def _diagram(_: str) -> str:
    lines = ["stateDiagram-v2", f"[*] --> {RunnerState.BOOTING}"]
    for before, after, why in _steps():
        name = before.replace(" ", "_")
        if name != before:
            lines.append(f'state "{before}" as {name}')
        lines.append(f"{name} --> {after}: {why}")
    lines.append(f"{RunnerState.GONE} --> [*]")
    body = "".join(f"{'    ' if number else ''}{line}\n" for number, line in enumerate(lines))
    return f"```mermaid\n{body}```\n"


def _states(_: str) -> str:
    supply = _supply_functions()["is_supply(r runners"]
    rows = [
        (f"`{state}`", state.meaning, _yes(state in HOLDS_CAPACITY), _yes(f"'{state}'" in supply))
        for state in RunnerState
    ]
    return _table(["state", "means", "holds capacity", "can be supply"], rows)


@cache
def _supply_functions() -> Mapping[str, str]:
    """The schema's functions that define supply, by the beginning of their signature."""
    migration = Path(paddock.__file__).parent / "store" / "migrations" / "0001_schema.sql"
    found = re.finditer(
        r"^CREATE FUNCTION (?P<name>(is_)?supply\([^,)]+).*?^\$\$;$",
        migration.read_text("utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    return {each["name"]: each[0] for each in found}


def _supply(_: str) -> str:
    return "```sql\n" + "\n".join(_supply_functions().values()) + "\n```\n"


def _transitions(_: str) -> str:
    rows = [
        (before if " " in before else f"`{before}`", f"`{after}`", why)
        for before, after, why in _steps()
    ]
    return _table(["from", "to", "because"], rows)


# Endings, failures, reasons.


def _endings(_: str) -> str:
    rows = [(f"`{each}`", each.meaning, _yes(each.abnormal)) for each in Ending]
    return _table(["ending", "means", "abnormal"], rows)


def _ending_rules(_: str) -> str:
    rows = [
        (str(number), f"`{rule.name}`", f"{rule.seen}.", f"`{rule.ending}`")
        for number, rule in enumerate(endings.RULES, 1)
    ]
    return _table(["", "rule", "what is seen", "ending"], rows)


def _recovery_rules(subject: Subject) -> Callable[[str], str]:
    def write(_: str) -> str:
        rows = [
            (
                str(number),
                f"`{rule.name}`",
                f"{rule.seen_with(Thresholds())}.",
                f"{rule.done}.",
                ", then ".join(rule.questions) or "–",
                ", ".join(rule.invariants),
            )
            for number, rule in enumerate(RULES, 1)
            if rule.subject is subject
        ]
        headings = ["", "rule", "what is seen", "what is done", "asks first", "because of"]
        return _table(headings, rows)

    return write


#: How long the system of the incidents took (docs/incidents.md), where they say so.
_BEFORE: Final = {
    "suspect": "its job waited for more than 100 minutes; since the fix 5 to 6 (S2)",
    "never-registered": "no component looked; since the fix 5 to 6 minutes (S2)",
    "waiting-container": "no component looked; since the fix 5 to 6 minutes (S2)",
    "pod-without-row": "5 to 6 minutes, also with a job in it (S1)",
    "pod-ended": "about a minute (S4)",
    "missed-completion": "left to webhooks that are sent again (S2)",
}


def _recovery_times(_: str) -> str:
    """Recorded, not run: a run takes minutes."""
    recorded = json.loads((ROOT / "docs" / "figures" / "recovery-times.json").read_text())
    table = _table(
        ["rule", "seen", "median", "19 of 20 within", "longest", "the system of the incidents"],
        (
            (
                f"`{rule}`",
                f"{told['times']}",
                *(f"{told[each]:g} s" for each in ("median", "p95", "longest")),
                _BEFORE.get(rule, "–"),
            )
            for rule, told in recorded["recovery_seconds"].items()
        ),
    )
    return f"Measured by `{recorded['command']}`.\n\n{table}"


def _failure_modes(party: Party) -> Callable[[str], str]:
    """From the failure to its rules: what each sees, its times, and what it does."""
    return lambda _: "\n".join(_failure(mode) for mode in FAILURE_MODES if mode.party is party)


def _failure(mode: FailureMode) -> str:
    by_name = {rule.name: rule for rule in RULES}
    rows = [
        (f"`{name}`", f"{by_name[name].seen_with(Thresholds())}.", f"{by_name[name].done}.")
        for name in mode.rules
    ]
    parts = [
        f"### {mode.what}\n",
        f"{mode.besides}\n" if mode.besides else "",
        _table(["rule", "what is seen", "what is done"], rows) if rows else "",
        f"*The job:* {mode.job}\n",
        f"*The verdict:* {', '.join(f'`{each}`' for each in mode.endings)}\n"
        if mode.endings
        else "",
    ]
    return "\n".join(part for part in parts if part)


def _thresholds(_: str) -> str:
    rows = [
        (
            f"`{name}`",
            in_words(name, Thresholds()),
            f"{reason[0].upper()}{reason[1:]}.",
            ", ".join(f"`{rule.name}`" for rule in RULES if name in rule.thresholds)
            or "all that ask",
        )
        for name, reason in reasons().items()
    ]
    return _table(["in `[recovery]`", "default", "why", "used by"], rows)


def _failures(_: str) -> str:
    return _table(
        ["what is seen", "called", "who backs off", "for", "repeated at once"],
        github_errors.rules_table(),
    )


def _withheld(_: str) -> str:
    return ", ".join(f"`{reason}`" for reason in Withheld) + "\n"


def _retention(_: str) -> str:
    rows = [
        (str(history), "1 day" if kept.days == 1 else f"{kept.days} days")
        for history, kept in RETENTION.items()
    ]
    return _table(["history", "kept for"], rows)


# Settings.


def _settings(_: str) -> str:
    rows = [
        (
            f"`{name}`",
            f"`PADDOCK_{name.replace('.', '_').upper()}`",
            _default(field),
            _meaning(field),
        )
        for name, field in _fields(Settings)
    ]
    return _table(["in the file", "in the environment", "default", "meaning"], rows)


def _fields(model: type[BaseModel], table: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every setting under its whole name, tables after what stands outside of them."""
    tables = {}
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            tables[name] = field.annotation
        else:
            yield f"{table}{name}", field
    for name, inner in tables.items():
        yield from _fields(inner, f"{table}{name}.")


def _app_settings(_: str) -> str:
    rows = [
        (f"`{name}`", _default(field), _meaning(field))
        for name, field in GitHubAppSettings.model_fields.items()
    ]
    return _table(["in `[[github.apps]]`", "default", "meaning"], rows)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default_factory is not None:
        return _COMPUTED.get(field.default_factory, "computed")
    match field.default:
        case None | ():
            return "unset"
        case float() as number:
            return f"`{number:g}`"
        case value:
            return f"`{value}`"


def _meaning(field: FieldInfo) -> str:
    parts = [field.description or _description_within(field.annotation)]
    if isinstance(field.annotation, type) and issubclass(field.annotation, StrEnum):
        parts.append("one of " + ", ".join(f"`{value}`" for value in field.annotation))
    if "SecretStr" in str(field.annotation):
        parts.append("**secret**")
    return "; ".join(part for part in parts if part)


def _description_within(annotation: Any) -> str:
    """For `Annotated[int, Field(description=…)] | None`, which keeps the field in the annotation."""
    found = [
        each.description
        for part in get_args(annotation)
        for each in getattr(part, "__metadata__", ())
        if isinstance(each, FieldInfo) and each.description
    ]
    return found[0] if found else ""


# Addresses that are not the internet.


def special_ranges_file() -> str:
    """For the chart's policies: for IPv6 they name the ranges that are routed between networks."""
    routed = ipaddress.IPv6Network(GLOBAL_UNICAST)
    networks = [ipaddress.ip_network(each) for each in SPECIAL_RANGES]
    ipv6 = [net for net in networks if net.version == 6 and net.subnet_of(routed)]
    lines = ["# Written by `make docs` from paddock.host.special_ranges; do not edit."]
    lines += ["ipv4:", *(f"  - {each}" for each in networks if each.version == 4)]
    lines += ["ipv6:", *(f"  - {each}" for each in ipv6)]
    return "\n".join(lines) + "\n"


def _special_ranges(_: str) -> str:
    return _table(["range", "what is there"], ((f"`{k}`", v) for k, v in SPECIAL_RANGES.items()))


def _connections(_: str) -> str:
    """Recorded by tests/cluster/test_network.py, which fails if it sees different results."""
    seen = json.loads((ROOT / "docs" / "figures" / "network.json").read_text())

    def cell(target: str, mode: str) -> str:
        states = [state for state in ("idle", "busy") if target in seen[state][mode]]
        return " and ".join(states) or "–"

    table = _table(
        ["reached by a runner", *seen["idle"]],
        ((target, *(cell(target, mode) for mode in seen["idle"])) for target in seen["targets"]),
    )
    return (
        f"Enforced by {seen['enforced by']}.\n\n{table}\n"
        "The server, which no policy of the chart restricts, was not tried on its own ports. It "
        f"reached all others but {', '.join(seen['not reached by the server'])}. A busy runner, at a "
        "port on which a process in its Pod listened, was reached by "
        f"{', '.join(seen['reaches a busy runner'])} alone.\n"
    )


# Metrics.


@dataclass(frozen=True, slots=True)
class MetricFacts:
    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str

    @property
    def series(self) -> set[str]:
        """The names under which Prometheus has it."""
        if self.kind == "histogram":
            return {f"{self.name}_{part}" for part in ("bucket", "count", "sum")}
        return {self.name}


def metrics() -> list[MetricFacts]:
    """The program's metrics, by name: counters, and levels read from rows."""
    # Imports all modules, so that every metric is registered.
    modules = [
        import_module(found.name)
        for found in pkgutil.walk_packages(paddock.__path__, "paddock.")
        if not found.name.endswith("__main__")
    ]
    counted = [each for module in modules for each in vars(module).values()]
    found = [_counted(each) for each in counted if isinstance(each, MetricWrapperBase)]
    found += [MetricFacts(level.name, "gauge", level.labels, level.meaning) for level in LEVELS]
    return sorted(set(found), key=lambda metric: metric.name)


def _counted(metric: MetricWrapperBase) -> MetricFacts:
    [family] = metric.describe()
    name = f"{family.name}_total" if family.type == "counter" else family.name
    labels = tuple(metric._labelnames)  # noqa: SLF001  nothing else tells them before there is a value
    return MetricFacts(name, family.type, labels, family.documentation)


def _metrics(_: str) -> str:
    rows = [
        (f"`{each.name}`", each.kind, ", ".join(each.labels) or "–", each.meaning)
        for each in metrics()
    ]
    return _table(["metric", "kind", "by", "meaning"], rows)


# Invariants.

_PLACES: Final = (
    ("tests", "tests", "*.py"),
    ("schema", "src/paddock/store/migrations", "*.sql"),
    ("domain", "src/paddock/domain", "*.py"),
)


@cache
def tags(root: Path = ROOT) -> dict[int, dict[str, list[Path]]]:
    """Where each invariant is named, as a whole word: invariant → kind of place → files."""
    found: dict[int, dict[str, list[Path]]] = {number: {} for number in range(1, INVARIANTS + 1)}
    for kind, directory, pattern in _PLACES:
        for file in sorted((root / directory).rglob(pattern)):
            if "node_modules" in file.parts:
                continue
            for number in sorted({int(tag) for tag in _TAG.findall(file.read_text("utf-8"))}):
                if number in found:
                    found[number].setdefault(kind, []).append(file.relative_to(root))
    return found


_TAG: Final = re.compile(r"\bI(\d{1,2})\b")
_ROW: Final = re.compile(r"^\| I(?P<number>\d+) \| (?P<text>.*?) \|.*$", re.MULTILINE)


def _held_by(old: str) -> str:
    """The first two columns are written by hand; the last is generated."""
    rows = [
        (f"I{row['number']}", row["text"], _held(tags()[int(row["number"])]))
        for row in _ROW.finditer(old)
    ]
    heading = "| | what must hold, and why | held by |\n| --- | --- | --- |\n"
    return heading + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _held(places: Mapping[str, Sequence[Path]]) -> str:
    if not places:
        return "not yet"
    parts = [
        f"{kind}: " + ", ".join(f"[{_short(file)}](../{file.as_posix()})" for file in files)
        for kind, files in places.items()
    ]
    return "; ".join(parts if "tests" in places else ["no test yet", *parts])


def _short(file: Path) -> str:
    name = file.stem.removeprefix("test_")
    return f"{file.parent.name}/{name}" if file.parts[0] == "tests" else name


def _count(_: str) -> str:
    places = tags().values()
    tested = sum("tests" in found for found in places)
    named = sum(bool(found) and "tests" not in found for found in places)
    return (
        f"Of {INVARIANTS}, {tested} are named by a test, {named} only by code, and "
        f"{INVARIANTS - tested - named} by neither yet.\n"
    )


def _read_api(_: str) -> str:
    return _table(
        ["`GET`", "is", "filters"],
        (
            (
                f"`{path}`",
                operations["get"]["summary"],
                ", ".join(
                    f"`{each['name']}`"
                    for each in operations["get"].get("parameters", ())
                    if each["in"] == "query" and each["name"] not in ("limit", "cursor")
                )
                or "–",
            )
            for path, operations in described().items()
        ),
    )


def _mutants(_: str) -> str:
    return _table(
        ("mutant", "source", "must break", "the product without", "and also without"),
        (
            (f"`{each.name}`", each.source, each.breaks.name, each.does, each.also or "–")
            for each in MUTANTS.values()
        ),
    )


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    levels: frozenset[str]
    fields: frozenset[str]


def logged() -> dict[str, LoggedEvent]:
    """Every event that a module of the product logs, as its calls say."""
    found: dict[str, LoggedEvent] = {}
    for file in sorted((ROOT / "src/paddock").rglob("*.py")):
        for call in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(call, ast.Call) and (level := _logs_at(call)) is not None:
                fields = frozenset(_fields_of(call))
                for event in _events_of(call.args[0], file):
                    before = found.get(event, LoggedEvent(frozenset(), frozenset()))
                    found[event] = LoggedEvent(before.levels | {level}, before.fields | fields)
    return found


def _fields_of(call: ast.Call) -> Iterable[str]:
    """The fields that the call names. `**fields(…)` stands for a runner's fields; the fields of other
    spread mappings are unknown here."""
    for each in call.keywords:
        if each.arg:
            yield each.arg
        elif "fields(" in ast.unparse(each.value):
            yield from RunnerFields.__annotations__


def _logs_at(call: ast.Call) -> str | None:
    """`_log.LEVEL(event, …)`, or `log_at(event, …)` where a level is chosen."""
    match call.func:
        case ast.Attribute(value=ast.Name(id="_log"), attr=level) if call.args:
            return "error" if level == "exception" else level
        case ast.Name(id="log_at") if call.args:
            return "info"
    return None


def _events_of(event: ast.expr, file: Path) -> Iterable[str]:
    """A literal, a module's constant, or one of a module's table."""
    module = ".".join(file.relative_to(ROOT / "src").with_suffix("").parts)
    match event:
        case ast.Constant(value=str(literal)):
            return [literal]
        case ast.Name(id=name):
            return [getattr(import_module(module), name)]
        case ast.Subscript(value=ast.Name(id=name)):
            table: Mapping[Any, str] = getattr(import_module(module), name)
            return table.values()
        case _:
            raise DocsError(f"{file}: the event of a log call has to be a literal or a constant.")


def _log_events(_: str) -> str:
    calls = logged()
    return _table(
        ("event", "level", "fields", "meaning"),
        (
            (
                f"`{event}`",
                ", ".join(sorted(calls[event].levels)),
                ", ".join(f"`{field}`" for field in sorted(calls[event].fields)) or "–",
                meaning,
            )
            for event, meaning in EVENTS.items()
        ),
    )


def _mutants_counted(_: str) -> str:
    pairs = sum(each.also is not None for each in MUTANTS.values())
    return f"There are {len(MUTANTS)} mutants; {pairs} of them remove a pair of guards.\n"


# What a Pod may contain.


def _pod_rules(_: str) -> str:
    values = get_args(Privileged)
    return _table(
        [
            "in the Pod that would be created",
            "refused because",
            "in baseline",
            *(f"`{each}`" for each in values),
        ],
        (
            [
                rule.refuses,
                rule.why,
                _yes(rule.in_baseline),
                *(_permitted(rule, value) for value in values),
            ]
            for rule in POD_RULES
        ),
    )


def _permitted(rule: PodRule, privileged: Privileged) -> str:
    if not rule.permits(privileged):
        return "refused"
    return "with a runtime class" if privileged == "inVirtualMachine" else "permitted"


SECTIONS: Final[Mapping[str, Callable[[str], str]]] = {
    "recovery times": _recovery_times,
    "runner diagram": _diagram,
    "runner states": _states,
    "runner transitions": _transitions,
    "endings": _endings,
    "ending rules": _ending_rules,
    "rules for runners": _recovery_rules(Subject.RUNNER),
    "rules for ended runners": _recovery_rules(Subject.ENDED),
    "rules for pods": _recovery_rules(Subject.POD),
    "rules for jobs": _recovery_rules(Subject.JOB),
    **{f"failures of {party}": _failure_modes(party) for party in Party},
    "recovery thresholds": _thresholds,
    "github failures": _failures,
    "withheld reasons": _withheld,
    "supply": _supply,
    "retention": _retention,
    "pod rules": _pod_rules,
    "special ranges": _special_ranges,
    "connections": _connections,
    "settings": _settings,
    "metrics": _metrics,
    "log events": _log_events,
    "read api": _read_api,
    "app settings": _app_settings,
    "held by": _held_by,
    "invariants counted": _count,
    "mutants": _mutants,
    "mutants counted": _mutants_counted,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.docs", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if out of date")
    options = parser.parse_args()
    try:
        found = outdated()
    except DocsError as error:
        complain(str(error))
        return 1
    for page, text in found.items():
        name = page.relative_to(ROOT)
        if options.check:
            complain(f"{name} is out of date: run `make docs`.")
        else:
            page.write_text(text, "utf-8")
            show(f"wrote {name}")
    return 1 if found and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
