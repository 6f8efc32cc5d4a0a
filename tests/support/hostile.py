"""Hostile names that a job, a repository or a Pod may choose, in every free text of the store."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from paddock.store.database import Database

#: A title, a clear screen, the clipboard, a link, colours that hide, an 8-bit escape, a bell, a
#: backspace, a carriage return, forged lines of four kinds, bidirectional and invisible characters,
#: rich's markup, and emoji codes.
PAYLOAD: Final = (
    "x\x1b]0;owned\x07\x1b[2J\x1b[66;6H\x1b]52;c;ZXZpbA==\x07\x1b]8;;http://evil.example\x1b\\"
    "\x1b[8m\x9b2J\x07\x08\r\nFORGED by lf\u2028FORGED by ls\u2029FORGED by ps\x85FORGED by nel"
    "\x0bFORGED by vt\x7f\u202egnp.exe\u2066\u200b\u200e\ufeff\U000e0041[bold red]red[/] :skull: end"
)
#: The database limits the length of a Pod's and a runner's name, a GUID and an ending.
SHORT: Final = "x\x1b]0;o\x07\x9b\r\nFORGED\u202e\u200b[red]"

#: Texts that others choose: GitHub's users, jobs, images, operators and the cluster.
FREE: Final = {
    "accounts": {"login", "paused_by", "paused_why"},
    "actions": {"actor", "pod_name", "why"},
    "apps": {"slug"},
    "backoffs": {"reason"},
    "deliveries": {"guid", "event", "action", "note"},
    "dispatch_pauses": {"paused_by", "why"},
    "events": {"actor", "why"},
    "host_faults": {"host", "why"},
    "job_checks": {"waits_because"},
    "jobs": {
        "name",
        "workflow",
        "labels",
        "refusal",
        "refusal_detail",
        "conclusion",
        "executor_name",
        "actor",
        "why",
        "trust_why",
    },
    "mints": {"name", "outcome"},
    "pool_decisions": {"why"},
    "pool_images": {"image"},
    "pools": {"labels", "runner_group", "paused_by", "paused_why"},
    "repositories": {"full_name"},
    "runners": {
        "pod_name",
        "pod_uid",
        "node",
        "actor",
        "why",
        "name",
        "retire_reason",
        "forced_by",
    },
    "verdicts": {"why", "reason", "node", "log_tail"},
}
#: Texts that paddock chooses from a list, computes, or has checked: the database or the reader rejects
#: any other value.
OURS: Final = {
    "accounts": {"kind"},
    "actions": {"rule", "action", "outcome", "evidence"},
    "backoffs": {"cause"},
    "budgets": {"bucket"},
    "events": {"before", "after", "evidence"},
    "hosts": {"name", "api_url"},
    "job_checks": {"answer"},
    "pool_decisions": {"terms"},
    "pod_versions": {"spec_hash", "version"},
    "pool_images": {"spec_hash"},
    "pools": {"name", "spec", "spec_hash", "runner"},
    "runners": {"spec_hash", "evidence", "jit_key", "retired", "runner_version"},
    "schema_migrations": {"name", "checksum", "oldest_program"},
    "verdicts": {"ending", "evidence"},
    "version_schedules": {"version"},
}
_SHORT: Final = {"pod_name", "guid", "name"}

_COLUMNS: Final = """
SELECT table_name, column_name, udt_name FROM information_schema.columns
 WHERE table_schema = 'public' AND udt_name IN ('text', '_text', 'json', 'jsonb')
"""


async def make_hostile(database: Database) -> None:
    """Appends the payload to every free text."""
    found = [tuple(row) for row in await database.rows(_COLUMNS)]
    known = {(table, column) for part in (FREE, OURS) for table in part for column in part[table]}
    assert {(table, column) for table, column, _ in found} == known, "say which kind a column is"
    async with database.transaction() as connection:
        # Steps, charges and foreign keys do not matter here.
        await connection.execute("SET LOCAL session_replication_role = replica")
        for table, column, kind in found:
            if column not in FREE.get(table, ()):
                continue
            added = (
                SHORT
                if table in ("runners", "mints", "deliveries") and column in _SHORT
                else PAYLOAD
            )
            if kind == "_text":
                value = f"array_append({column}, $1)"
            elif added is SHORT:
                value = f"left({column}, 30) || $1"
            else:
                value = f"{column} || $1"
            await connection.execute(
                f"UPDATE {table} SET {column} = {value} WHERE {column} IS NOT NULL", added
            )


_BAD: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def controls(text: str) -> set[str]:
    """Its characters, except line breaks, that a terminal obeys or a reader does not see."""
    return {each for each in set(text) - {"\n"} if unicodedata.category(each) in _BAD}


def forged(text: str) -> list[str]:
    """Lines that begin as the payload intends. An indented line is part of another text."""
    return re.findall(r"(?m)^FORGED.*", text)
