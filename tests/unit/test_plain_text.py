"""Texts that others choose are shown as text, and no module writes to the terminal in another way
(I87)."""

from __future__ import annotations

import ast
import io
import json
import sys
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

import simulator
from paddock.cli import output
from paddock.domain.plain_text import escaped, escaped_lines
from tests.support.hostile import PAYLOAD, controls

_ROOT = Path(str(resources.files("paddock")))

#: Any text, and often one with characters that a terminal obeys.
texts = st.text(st.one_of(st.characters(codec=None), st.sampled_from(sorted(set(PAYLOAD)))))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("build (ubuntu-24.04, 3.12)", "build (ubuntu-24.04, 3.12)"),
        ("größer – 東京　ビル", "größer – 東京　ビル"),
        ("[bold red]x[/] :skull:", "[bold red]x[/] :skull:"),
        ("\x1b[31mred\x1b[0m \x1b[2Kcleared", "red cleared"),
        ("\x1b]0;title\x07", r"\u001b]0;title\u0007"),
        ("\x9b2J", r"\u009b2J"),
        ("a\nb\r", r"a\u000ab\u000d"),
        ("a\u2028b\u2029c\x85d\x0be", r"a\u2028b\u2029c\u0085d\u000be"),
        ("\u202egnp.exe\u2066", r"\u202egnp.exe\u2066"),
        ("zero\u200bwidth\ufeff", r"zero\u200bwidth\ufeff"),
        ("\U000e0041", r"\udb40\udc41"),
        ("\udcff", r"\udcff"),
        ("a\tb", "a    b"),
        ("\x1b(Bplain", "plain"),
        ("\u2714\ufe0f build 1\ufe0f\u20e3", "\u2714\ufe0f build 1\ufe0f\u20e3"),
        ("a\ufe0f\ufe0f\ufe00", "a\ufe0f\\ufe0f\\ufe00"),
        ("a\U000e0172", r"a\udb40\udd72"),
        ("pass\u034fword\u3164\u2800", r"pass\u034fword\u3164\u2800"),
        ("Vie\u0323\u0302t \u0e17\u0e35\u0e48", "Vie\u0323\u0302t \u0e17\u0e35\u0e48"),
        ("z" + "\u0300" * 9, "z" + "\u0300" * 8 + r"\u0300"),
    ],
)
def test_a_control_character_is_shown_and_not_obeyed(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_no_character_that_a_terminal_obeys_is_left() -> None:
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    assert controls(escaped(every)) == set()
    assert "\n" not in escaped(every)


def test_no_character_without_a_shape_is_left() -> None:
    """Data was hidden in variation selectors: 256 of them are an alphabet of octets."""
    hidden = [
        0x034F,
        0x115F,
        0x1160,
        0x17B4,
        0x17B5,
        *range(0x180B, 0x1810),
        0x2800,
        0x3164,
        0xFFA0,
    ]
    hidden += [*range(0xFE00, 0xFE0E), *range(0xE0000, 0xE1000)]
    assert escaped("a" + "a".join(map(chr, hidden))).isascii()


@given(texts)
def test_what_is_escaped_in_json_is_read_back_as_it_was(text: str) -> None:
    written = json.dumps(text, ensure_ascii=False)
    assert controls(escaped(written)) == set()
    assert json.loads(escaped(written)) == text


def test_a_log_keeps_its_line_breaks_and_no_others() -> None:
    log = "one\r\ntwo\x85three\u2028four\rfive\n\x1b[1msix"
    assert escaped_lines(log) == ["one", r"two\u0085three\u2028four\u000dfive", "six"]


@given(texts)
def test_rich_draws_no_control_character_of_any_text(text: str) -> None:
    """Also what was not made by `output.text`: the last check is on what leaves."""
    written = io.StringIO()
    console = output._Terminal()
    console.file = written
    table = Table("heading", text)
    table.add_row(text, Text(text), output.text(text, (text, "bold")))
    console.print(text, Text(text), table)
    assert controls(written.getvalue()) == set()


@given(texts)
def test_what_is_written_without_rich_is_guarded(text: str) -> None:
    written = io.StringIO()
    print(text, file=output._Guarded(written))
    assert controls(written.getvalue()) == set()


#: Programs of their own, whose output is a log that is read through the above, or a Mac's console.
_OTHER_PROGRAMS = {
    "agent/__main__.py",
    "agent/log.py",
    "fleet/local/supervisor.py",
    "host/command.py",
    "pools/crd.py",
    "fakes/github/__main__.py",
    "fakes/runner.py",
}
_WRITES = {"echo", "secho", "print_exc", "print_exception", "print_stack", "basicConfig"}


def _ways_out(path: Path) -> set[str]:
    """Calls in a module that could write to a terminal."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.Call(func=ast.Name(id="print" | "input" as name)):
                found.add(name)
            case ast.Attribute(
                value=ast.Name(id="typer" | "click" | "traceback" | "logging"), attr=name
            ) if name in _WRITES:
                found.add(name)
            case ast.Attribute(value=ast.Name(id="sys"), attr=name) if name.strip("_") in (
                "stdout",
                "stderr",
            ):
                found.add(name)
            case ast.ImportFrom(
                module="rich.console" | "rich.text" | "rich" as module, names=names
            ):
                found |= {
                    f"{module}.{each.name}"
                    for each in names
                    if each.name in ("Console", "Text", "print")
                }
            case _:
                pass
    return found


def test_nothing_writes_to_a_terminal_but_the_module_that_escapes() -> None:
    others = {
        name: ways
        for path in sorted(_ROOT.rglob("*.py"))
        if (name := str(path.relative_to(_ROOT))) not in _OTHER_PROGRAMS | {"cli/output.py"}
        and (ways := _ways_out(path))
    }
    others |= {
        str(path): ways
        for path in sorted(Path(simulator.__path__[0]).rglob("*.py"))
        if (ways := _ways_out(path))
    }
    assert others == {}


def test_the_check_above_sees_every_way() -> None:
    assert _ways_out(_ROOT / "cli" / "output.py") >= {"stdout", "stderr", "rich.text.Text"}
    assert _ways_out(_ROOT / "fakes" / "runner.py") == {"stdout"}


@pytest.mark.parametrize("way", ["typer.echo('x')", "click.secho('x')", "print('x')"])
def test_the_check_above_sees_calls(way: str, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(way)
    assert _ways_out(tmp_path / "module.py")
