"""SQL files: each has a purpose and a defined order, and none uses time or randomness of its own."""

from __future__ import annotations

import re
from importlib import resources

import pytest

from paddock.store.sql import queries

_STORE = resources.files("paddock.store")
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


def test_rows_are_fetched_only_by_statements_that_order_them() -> None:
    for module in _STORE.iterdir():
        if not module.name.endswith(".py"):
            continue
        code = module.read_text("utf-8")
        texts = [
            _STORE.joinpath("queries", f"{file}.sql").read_text("utf-8")
            for file in re.findall(r'queries\("(\w+)"\)', code)
        ]
        for name in re.findall(r'\.fetch\(\s*\w+\["(\w+)"\]', code):
            assert any(f"-- name: {name}[]" in text for text in texts), f"{module.name}: {name}"
