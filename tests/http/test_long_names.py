"""The longest possible names, in every list: unbroken at 80 and 200 columns, and in a pipe."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

from paddock.store.database import Database
from paddock.store.embedded import EmbeddedPostgres
from tests.conftest import fresh_database
from tests.http.test_terminal import Hostile
from tests.support.long_names import LOGIN, POD, REPOSITORY, lengthen_names

pytestmark = pytest.mark.slow

#: Of each list, what must never be broken or shortened.
NAMES = {
    "jobs": ("id", "repository", "pool", "pod"),
    "runners": ("pod", "pool", "account", "job", "node"),
    "pools": ("name", "queued"),
    "accounts": ("login", "host"),
    "endings --since 9000d": ("pod", "pool", "node", "job", "exit_code"),
    "deliveries": ("number", "guid", "event"),
    "rules": ("rule",),
}
OTHERS = ["doctor", "top", "endings counts --since 9000d"]
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
_BOXES = re.compile("[\u2500-\u259f\u25a0]")


@asynccontextmanager
async def _lengthened(server: EmbeddedPostgres, template: str) -> AsyncIterator[Hostile]:
    async with asynccontextmanager(fresh_database)(server, template=template) as url:
        database = await Database.connect(url, application_name="paddock-test")
        try:
            await lengthen_names(database)
        finally:
            await database.close()
        yield Hostile(url, {})


@pytest.fixture(scope="module")
def fleet(postgres: EmbeddedPostgres, chaotic_template: str) -> Iterator[Hostile]:
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(_lengthened(postgres, chaotic_template)) as found,
    ):
        yield found


@pytest.fixture(scope="module")
def records(fleet: Hostile) -> dict[str, list[Any]]:
    told = fleet.run(fleet.words([f"{command} --json" for command in NAMES]))
    return {command: json.loads(out) for command, (out, _) in zip(NAMES, told, strict=True)}


def _whole(records: list[Any], fields: tuple[str, ...]) -> set[str]:
    return {str(each[field]) for each in records for field in fields if each[field] is not None}


def test_the_names_are_as_long_as_they_can_be(records: dict[str, list[Any]]) -> None:
    assert {len(each["pod"]) for each in records["runners"]} == {POD}
    assert {len(each["login"]) for each in records["accounts"]} == {LOGIN}
    assert {len(each["repository"]) for each in records["jobs"]} == {LOGIN + 1 + REPOSITORY}


def test_a_pipe_gets_one_whole_line_for_each_record(
    fleet: Hostile, records: dict[str, list[Any]]
) -> None:
    told = fleet.run(fleet.words([*NAMES]), COLUMNS="80")
    for (command, fields), (out, _) in zip(NAMES.items(), told, strict=True):
        lines = [line for line in out.splitlines() if line]
        assert not re.search("…|\x1b", out), command
        assert not _BOXES.search(out), command
        if command != "rules":  # four tables
            assert len(lines) == len(records[command]) + 1, command
        for name in _whole(records[command], fields):
            assert any(name in line for line in lines), (command, name)


def test_what_is_no_list_is_not_wrapped_in_a_pipe_either(fleet: Hostile) -> None:
    for command, (out, _) in zip(OTHERS, fleet.run(fleet.words(OTHERS), COLUMNS="80"), strict=True):
        assert max(map(len, out.splitlines())) > 80, command
        assert not re.search("…|\x1b", out), command
        assert not _BOXES.search(out), command


@pytest.mark.parametrize("columns", [80, 200])
@pytest.mark.parametrize("command", NAMES)
def test_a_terminal_gets_whole_names(
    fleet: Hostile, records: dict[str, list[Any]], command: str, columns: int
) -> None:
    seen = _COLOURS.sub("", fleet.on_a_terminal(command.split(), COLUMNS=str(columns)))
    for name in _whole(records[command], NAMES[command]):
        assert name in seen
    for line in seen.splitlines():
        assert len(line) <= columns or max(map(len, line.split())) > columns - 16, line
