"""SQL files: each has a purpose and a defined order, and none uses time or randomness of its own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from paddock.store.sql import Query, named, queries

_STORE = resources.files("paddock.store")
_MODULES = sorted(Path(str(_STORE)).rglob("*.py"))
_FILES = sorted(path.name for path in _STORE.joinpath("queries").iterdir())
_QUERIES = [
    pytest.param(text, id=f"{file}:{name}")
    for file in _FILES
    for name, text in queries(file.removesuffix(".sql")).items()
]
_MIGRATIONS = [
    pytest.param(path.read_text("utf-8"), id=path.name)
    for path in sorted(_STORE.joinpath("migrations").iterdir(), key=lambda path: path.name)
]

_CLOCKS = re.compile(
    r"\b(now\(|current_timestamp|current_date|clock_timestamp|statement_timestamp|localtime"
    r"|random\(|gen_random_uuid|uuidv[47])",
    re.IGNORECASE,
)


#: The name of a state of the terms is compared with another, and with nothing else: it is in no trace.
_COMPARED_ONLY = (
    "SET version = gen_random_uuid()",
    "version  uuid NOT NULL DEFAULT gen_random_uuid()",
)


def _code(text: str) -> str:
    for name in _COMPARED_ONLY:
        text = text.replace(name, "")
    return re.sub(r"--.*", "", text)


@pytest.mark.parametrize("text", _QUERIES + _MIGRATIONS)
def test_time_and_ids_come_from_ports(text: str) -> None:
    assert not _CLOCKS.search(_code(text))


@pytest.mark.parametrize("text", _QUERIES)
def test_every_statement_says_what_it_is_for(text: str) -> None:
    assert text.startswith("-- ")


def test_a_statement_that_returns_rows_ends_in_their_order() -> None:
    for file in _FILES:
        text = _STORE.joinpath("queries", file).read_text("utf-8")
        for name, statement in re.findall(
            r"^-- name: (\w+)\[\]\n(.*?)(?=^-- name|\Z)", text, re.MULTILINE | re.DOTALL
        ):
            last_clause = re.split(r"^ ?ORDER BY|\bORDER BY", _code(statement))[-1]
            assert "ORDER BY" in statement, name
            assert not re.search(r"[()]|\bFROM\b", last_clause), (
                f"{file}: {name} is not ordered last"
            )


def _calls(module: ast.Module) -> Iterator[tuple[str, str, set[str]]]:
    """Each call of a named query: the noun, the query's name and the parameters that it gives."""
    nouns = {
        target.id: node.value.args[0].value
        for node in module.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        for target in node.targets
        if isinstance(target, ast.Name) and ast.unparse(node.value.func) == "named"
        if isinstance(node.value.args[0], ast.Constant)
    }
    for node in ast.walk(module):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Subscript):
            continue
        table, name = node.func.value, node.func.slice
        if isinstance(table, ast.Name) and table.id in nouns and isinstance(name, ast.Constant):
            given = {each.arg for each in node.keywords if each.arg is not None}
            if len(given) == len(node.keywords):  # without `**more`
                yield str(nouns[table.id]), str(name.value), given


@pytest.mark.parametrize("path", _MODULES, ids=lambda path: path.name)
def test_a_query_is_given_its_parameters(path: Path) -> None:
    for noun, name, given in _calls(ast.parse(path.read_text("utf-8"))):
        assert given == set(named(noun)[name].names), f"{noun}.{name}"


@pytest.mark.parametrize("path", _MODULES, ids=lambda path: path.name)
def test_rows_are_fetched_only_by_statements_that_order_them(path: Path) -> None:
    code = path.read_text("utf-8")
    texts = [
        _STORE.joinpath("queries", f"{file}.sql").read_text("utf-8")
        for file in re.findall(r'(?:queries|named)\("(\w+)"\)', code)
    ]
    for name in re.findall(r'\.fetch\(\s*\*?\w+\["(\w+)"\]', code):
        assert any(f"-- name: {name}[]" in text for text in texts), name


def test_a_parameter_is_numbered_once_and_comments_and_casts_are_left() -> None:
    query = Query("-- of :pool\nSELECT :state::text, :pool WHERE :state IS NULL AND a = 'x: y'\n")
    assert query.names == ("state", "pool")
    assert query(pool=1, state=2) == (
        "-- of :pool\nSELECT $1::text, $2 WHERE $1 IS NULL AND a = 'x: y'\n",
        2,
        1,
    )
    with pytest.raises(TypeError, match="'state'"):
        query(pool=1)
    with pytest.raises(TypeError, match="account"):
        query(pool=1, state=2, account=3)
