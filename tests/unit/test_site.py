"""The pages' diagrams can be drawn, and the page that follows one job names what exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tools.docs import ROOT, pages
from tools.site.diagrams import DiagramError, draw

_FENCE = re.compile(r"^```mermaid\n(.*?)^```", re.MULTILINE | re.DOTALL)
_DIAGRAMS = [
    (page.relative_to(ROOT).as_posix(), text)
    for page in pages(ROOT)
    for text in _FENCE.findall(page.read_text("utf-8"))
]
_ARCHITECTURE = (ROOT / "docs/architecture.md").read_text("utf-8")
#: A row of the page's table: a link to a file, and the functions that the row names in it.
_ROW = re.compile(r"^\| \[`[^`]+`\]\(\.\./([^)]+\.\w+)\) \| ([^|]+) \|", re.MULTILINE)


def _texts(drawn: str) -> str:
    root = ElementTree.fromstring(drawn)
    return " ".join("".join(each.itertext()) for each in root.iter() if each.tag.endswith("}text"))


@pytest.mark.parametrize(("page", "text"), _DIAGRAMS, ids=[page for page, _ in _DIAGRAMS])
def test_every_diagram_of_the_pages_is_drawn_with_all_its_words(page: str, text: str) -> None:
    drawn = _texts(draw(text))
    said = re.findall(r'(?<=: )\S.*$|(?<=\[")[^"]+|(?<=-- ")[^"]+', text, re.MULTILINE)
    assert said
    for words in said:
        assert set(re.sub(r"<br/>", " ", words).split()) <= set(drawn.split())


def test_an_arrow_leads_from_one_participant_to_the_other() -> None:
    drawn = draw("sequenceDiagram\nparticipant a\nparticipant b\na->>b: there\nb-->>a: back")
    ends = [
        [float(number) for number in re.findall(r"[\d.]+", path)[::2]]
        for path in re.findall(r'<path class="(?:message|reply)" d="([^"]+)"', drawn)
    ]
    [(start, stop), (back_start, back_stop)] = ends
    assert start < stop
    assert back_start > back_stop


def test_blocks_stand_on_a_grid_and_an_arrow_touches_both() -> None:
    drawn = draw('block-beta\ncolumns 2\na["A"]:2\nspace:2\nb["B"]\nc["C"]\na -- "down" --> c')
    boxes = [
        tuple(float(each) for each in found)
        for found in re.findall(
            r'class="block" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', drawn
        )
    ]
    a, b, c = boxes
    assert a[2] > b[2] + c[2]
    assert b[1] == c[1] > a[1] + a[3]
    assert b[0] + b[2] < c[0]
    [path] = re.findall(r'<path class="message" d="M([^"]+)"', drawn)
    x1, y1, x2, y2 = (float(number) for number in re.findall(r"[\d.]+", path))
    assert x1 == x2
    assert c[0] < x1 < c[0] + c[2]
    assert (y1, y2) == (a[1] + a[3], c[1])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "flowchart TB\na --> b",
        "sequenceDiagram\nparticipant a\na->>b: no such participant",
        "sequenceDiagram\nparticipant a\nactivate a",
        "sequenceDiagram\nparticipant a\nopt never ended\na->>a: x",
        "sequenceDiagram\nparticipant a\nend",
        "sequenceDiagram\nparticipant a\nelse what",
        "stateDiagram-v2\na --> b",
        'block-beta\na["A"]\na --> b',
        'block-beta\nblock:g:2\na["A"]',
        "block-beta\na((round))",
    ],
)
def test_what_cannot_be_drawn_whole_is_not_drawn(text: str) -> None:
    with pytest.raises(DiagramError):
        draw(text)


def _defined(file: Path) -> set[str]:
    """Functions and methods, as `function` and `Class.method`."""
    text = file.read_text("utf-8")
    if file.suffix == ".sh":
        return set(re.findall(r"^(\w+)\(\)", text, re.MULTILINE))
    return set(_functions(ast.parse(text).body))


def _functions(body: list[ast.stmt], within: str = "") -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{within}{node.name}"
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{node.name}.")


@pytest.mark.parametrize(("file", "functions"), _ROW.findall(_ARCHITECTURE))
def test_every_function_on_the_path_of_a_job_exists(file: str, functions: str) -> None:
    named = re.findall(r"`([^`]+)`", functions)
    assert named
    assert set(named) <= _defined(ROOT / file)


def test_the_path_of_a_job_is_long_enough_to_be_read_from_the_page() -> None:
    """Rows in another form would be checked by no test."""
    rows = re.findall(r"^\| \[", _ARCHITECTURE.partition("## One job")[2], re.MULTILINE)
    assert len(_ROW.findall(_ARCHITECTURE)) == len(rows) > 0


def test_functions_named_in_sentences_exist() -> None:
    prose = "\n".join(line for line in _ARCHITECTURE.splitlines() if not line.startswith("|"))
    named = set(re.findall(r"`([A-Z]\w+\.\w+)`", prose))
    assert named <= set().union(*map(_defined, (ROOT / "src/paddock").rglob("*.py")))
