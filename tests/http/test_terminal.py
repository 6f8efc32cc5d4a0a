"""Texts that others choose reach a terminal as plain text, from every command."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from anyio.from_thread import start_blocking_portal

from paddock.store.database import Database
from paddock.store.embedded import EmbeddedPostgres
from tests.conftest import fresh_database
from tests.support.hostile import PAYLOAD, controls, forged, make_hostile

#: Every command that shows what is in the database. `{job}` and `{runner}` are names of the scene.
READS = [
    "why {job}",
    "why {refused}",
    "why {runner}",
    "why {dead}",
    "top",
    "jobs",
    "jobs --refused",
    "jobs --status completed",
    "runners",
    "runners --ended",
    "endings",
    "endings counts",
    "pools",
    "pools explain linux-x64",
    "accounts",
    "deliveries",
    "deliveries --state dead",
    "doctor",
    "rules",
    "migrate --dry-run",
]
#: Errors repeat the words that the user typed.
ERRORS = [["why", PAYLOAD], ["jobs", "--after", PAYLOAD], ["pools", "explain", PAYLOAD], [PAYLOAD]]
ERRORS += [["jobs", f"--{PAYLOAD}"], ["pools", "apply", PAYLOAD], ["why", "\udcff"]]
ERRORS += [["why", "1", PAYLOAD], ["endings", "--since", PAYLOAD], ["--config", PAYLOAD, "top"]]

#: Runs all in one process: an interpreter for each would take a minute.
RUN_ALL = """
import json, sys
from paddock.cli import main

for number, words in enumerate(json.loads(sys.argv[1])):
    sys.argv[1:] = words
    # Not by print: what is tested guards that too.
    sys.__stdout__.write(f"@@@ {number}\\n"); sys.__stdout__.flush()
    sys.__stderr__.write(f"@@@ {number}\\n"); sys.__stderr__.flush()
    try:
        main()
    except SystemExit as end:
        sys.__stdout__.write(f"@@@ exit {end.code}\\n"); sys.__stdout__.flush()
"""


class Hostile:
    """A database in which every free text is hostile."""

    def __init__(self, url: str, names: dict[str, str]) -> None:
        self.url = url
        self.names = names

    def words(self, commands: list[str]) -> list[list[str]]:
        return [[each.format_map(self.names) for each in one.split()] for one in commands]

    def environment(self, **more: str) -> dict[str, str]:
        return {
            **os.environ,
            "PADDOCK_DATABASE_URL": self.url,
            "COLUMNS": "400",
            "LINES": "200",
            "TERM": "xterm-256color",
            **more,
        }

    def run(self, commands: list[list[str]], **more: str) -> list[tuple[str, str]]:
        """The standard output and standard error of each."""
        done = subprocess.run(
            [sys.executable, "-c", RUN_ALL, json.dumps(commands)],
            env=self.environment(**more),
            capture_output=True,
            timeout=300,
            check=False,
        )
        out, err = _parts(done.stdout), _parts(done.stderr)
        assert len(out) == len(err) == len(commands), done.stderr.decode()
        return list(zip(out, err, strict=True))

    def on_a_terminal(self, words: list[str], **more: str) -> str:
        """Its output on a terminal until it ends. `top` never ends: it is interrupted when it draws
        for the second time. An interrupt during the first drawing would leave half a screen."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "paddock", *words],
            env=self.environment(**more),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        seen, told = b"", False
        try:
            while True:
                try:
                    some = os.read(ours, 65536)
                except OSError:  # the other side is closed
                    break
                seen += some
                if words == ["top"] and seen.count(b"in the last hour") > 1 and not told:
                    process.send_signal(signal.SIGINT)
                    told = True
        finally:
            process.kill()
            process.wait()
            os.close(ours)
        return seen.decode()


def _parts(output: bytes) -> list[str]:
    text = output.decode()
    return [part.split("\n", 1)[1] for part in text.split("@@@ ")[1:] if part[0].isdigit()]


async def _names(database: Database) -> dict[str, str]:
    async def one(query: str) -> str:
        [row] = await database.rows(query)
        return str(row[0])

    return {
        "job": await one("SELECT id FROM jobs WHERE state = 'completed' ORDER BY id LIMIT 1"),
        "refused": await one("SELECT id FROM jobs WHERE refusal IS NOT NULL ORDER BY id LIMIT 1"),
        "runner": await one(
            "SELECT pod_name FROM runners WHERE state = 'busy' ORDER BY id LIMIT 1"
        ),
        "dead": await one(
            "SELECT pod_name FROM runners r JOIN verdicts v ON v.runner_id = r.id"
            " WHERE v.log_tail IS NOT NULL ORDER BY r.id LIMIT 1"
        ),
    }


@asynccontextmanager
async def _hostile(server: EmbeddedPostgres, template: str) -> AsyncIterator[Hostile]:
    async with asynccontextmanager(fresh_database)(server, template=template) as url:
        database = await Database.connect(url, application_name="paddock-test")
        try:
            await make_hostile(database)
            names = await _names(database)
        finally:
            await database.close()
        yield Hostile(url, names)


@pytest.fixture(scope="module")
def hostile(postgres: EmbeddedPostgres, chaotic_template: str) -> Iterator[Hostile]:
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(_hostile(postgres, chaotic_template)) as found,
    ):
        yield found


def test_what_is_read_from_the_database_holds_no_control_character(hostile: Hostile) -> None:
    for command, (out, err) in zip(READS, hostile.run(hostile.words(READS)), strict=True):
        assert controls(out + err) == set(), command
        assert forged(out + err) == [], command
        assert len(out) > 20, (command, err)


def test_json_is_as_harmless_and_still_holds_every_character(hostile: Hostile) -> None:
    told = hostile.run(hostile.words([f"{each} --json" for each in READS]))
    for command, (out, err) in zip(READS, told, strict=True):
        assert controls(out + err) == set(), command
        read = json.loads(out)
        if command == "jobs":
            assert all(job["name"].endswith(PAYLOAD) for job in read)


@pytest.mark.parametrize("stream", ["captured", "ascii"])
def test_errors_name_what_was_given_without_its_control_characters(
    hostile: Hostile, stream: str
) -> None:
    more = {"PYTHONIOENCODING": "ascii:backslashreplace"} if stream == "ascii" else {}
    for words, (out, err) in zip(ERRORS, hostile.run(ERRORS, **more), strict=True):
        assert controls(out + err) == set(), words
        assert forged(out + err) == [], words
        assert "Traceback" not in err, words
        assert err, words


def test_a_bug_shown_with_its_trace_is_text_too(hostile: Hostile) -> None:
    [(out, err)] = hostile.run([["why", PAYLOAD]], PADDOCK_DEBUG="1")
    assert "Traceback" in err
    assert controls(out + err) == set()


#: What rich itself sends to a terminal that `top` draws on: colours, and where they are drawn.
_DRAWING = re.compile(
    r"\x1b\[(?:[0-9;]*m|\?1049[hl]|\?25[hl]|H|2J\x1b\[H|\d*A|2K|1A\x1b\[2K)|\r\n?"
)


@pytest.mark.parametrize("command", ["top", "jobs", "why {dead}", "doctor"])
def test_a_terminal_is_sent_no_sequence_of_anothers(hostile: Hostile, command: str) -> None:
    [words] = hostile.words([command])
    seen = hostile.on_a_terminal(words)
    assert "\x1b[" in seen, "there are no colours: it took the terminal for a pipe"
    assert controls(_DRAWING.sub("", seen)) == set()
    assert "\x1b[66;6H" not in seen
    assert "\x1b[8m" not in seen
    if command == "top":
        assert "WAITING LONGEST" in seen, "a long name takes the room of all others"


def test_logs_for_people_hold_no_control_character() -> None:
    told = subprocess.run(
        [sys.executable, "-c", LOGS, json.dumps(PAYLOAD)],
        capture_output=True,
        timeout=60,
        check=True,
    ).stderr.decode()
    assert controls(told) == set()
    assert forged(told) == []
    assert told.count("some.event") == 3
    assert "state=idle" in told  # and not the repr of an enumeration
    assert "\u3164" not in told


LOGS = """
import json, sys
import structlog
from paddock.cli.logs import configure_logs
from paddock.domain.states import RunnerState
from paddock.settings import Settings

configure_logs(Settings(log_format="console"))
log, payload = structlog.get_logger(), json.loads(sys.argv[1])
log.info("some.event", field=payload, short="\x9b2J\u202e", listed=[payload], keyed={payload: payload})
class Own:
    def __repr__(self):
        return payload

log.info("some.event" + payload, state=RunnerState.IDLE, own=Own(), filled=["\u3164\u2800"])
try:
    raise ValueError(payload)
except ValueError:
    log.exception("some.event")
"""
