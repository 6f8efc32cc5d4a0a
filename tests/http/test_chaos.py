"""`paddock up --demo chaos`: paddock finds, repairs and explains all harm that the demonstration does.

The demonstration records each incident with its job and Pod. The rows, the fake GitHub's answers and
`why` have to agree with the record.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from paddock.demo.chaos import ChaosLine
from paddock.demo.demo import QUICK_RECOVERY
from paddock.demo.incidents import INCIDENTS, Case
from paddock.domain.recovery.thresholds import Thresholds
from paddock.store.data_directory import running_url
from paddock.store.database import Database
from paddock.store.reading import PgReading
from paddock.stories import tell
from paddock.system import SystemClock
from tests.http.test_up import ask, processes_of, up
from tests.support.directories import open_directory

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks at processes in /proc"),
]

#: The incidents that end within half a minute.
QUICK = ["killed", "out-of-memory", "deleted-from-outside", "mint-fails", "stray"]
ALL = [incident.name for incident in INCIDENTS]
LONG = "PADDOCK_TEST_CHAOS" in os.environ


def lines(data_dir: Path) -> list[ChaosLine]:
    try:
        said = (data_dir / "chaos.jsonl").read_bytes()
    except FileNotFoundError:
        return []
    return [msgspec.json.decode(line, type=ChaosLine) for line in said.splitlines()]


async def over(data_dir: Path, incidents: Sequence[str], *, within: float) -> dict[str, ChaosLine]:
    """The last line of each incident."""
    async with asyncio.timeout(within):
        while True:
            found = {line.incident: line for line in lines(data_dir) if line.what == "over"}
            if set(incidents) <= found.keys():
                return found
            await asyncio.sleep(0.5)


@asynccontextmanager
async def reading_of(data_dir: Path) -> AsyncIterator[PgReading]:
    url = running_url(data_dir)
    assert url is not None
    database = await Database.connect(url, application_name="test")
    try:
        yield PgReading(database, SystemClock())
    finally:
        await database.close()


async def _check(reading: PgReading, data_dir: Path, line: ChaosLine) -> None:
    case = line.case
    await _is_found_out(data_dir, case)
    told = await _stories(reading, case)
    assert case.afterwards is None or any(case.afterwards in each for each in told), (case, told)
    if case.meanwhile is not None:
        [explained] = [
            each
            for each in lines(data_dir)
            if each.what == "explained" and each.incident == line.incident
        ]
        assert case.meanwhile in explained.story


async def _is_found_out(data_dir: Path, case: Case) -> None:
    if case.endings:
        [(ending,)] = await ask(
            data_dir,
            "SELECT v.ending FROM verdicts v JOIN runners r ON r.id = v.runner_id"
            f" WHERE r.pod_name = '{case.pod}'",
        )
        assert ending in case.endings, case
    if case.rules:
        about = f"r.pod_name = '{case.pod}'" if case.pod else f"a.job_id = {case.job}"
        rules = await ask(
            data_dir,
            "SELECT a.rule FROM actions a LEFT JOIN runners r"
            f" ON r.id = a.runner_id OR r.pod_name = a.pod_name WHERE {about}",
        )
        assert {rule for (rule,) in rules} & set(case.rules), (case, rules)


async def _stories(reading: PgReading, case: Case) -> list[str]:
    thresholds = Thresholds(**QUICK_RECOVERY)  # type: ignore[arg-type]
    names = [str(name) for name in (case.job, case.pod) if name is not None]
    stories: list[Any] = [
        tell(each, now=SystemClock().now(), thresholds=thresholds)
        for name in names
        for each in await reading.find(name)
    ]
    assert stories, case
    assert {story.state for story in stories} <= {"completed", "gone"}, case
    return [" ".join((story.why, *story.remarks)) for story in stories]


DONE = "SELECT count(*) FROM jobs WHERE state = 'completed' AND conclusion = 'success'"


async def chaos(incidents: Sequence[str], *, within: float) -> None:
    with open_directory() as parent:
        data_dir = parent / "data"
        async with up(data_dir, "--demo", "chaos"):
            found = await over(data_dir, incidents, within=within)
            async with reading_of(data_dir) as reading:
                for incident in incidents:
                    await _check(reading, data_dir, found[incident])
            [(done,)] = await ask(data_dir, DONE)
            assert isinstance(done, int)
            assert done >= len(incidents)
        assert processes_of(data_dir) == []
        assert not list((data_dir / "runners").glob(".*partial*"))
        # Only the record of ended Pods is left, and the next start removes it.
        async with up(data_dir, "--demo", "quiet"):
            await _until_cleared_away(data_dir)
        assert processes_of(data_dir) == []
        shutil.rmtree(data_dir)


async def _until_cleared_away(data_dir: Path) -> None:
    """No row lives without its Pod, and no Pod is left without a living row."""
    async with asyncio.timeout(90):
        while True:
            rows = await ask(data_dir, "SELECT pod_name FROM runners WHERE gone_at IS NULL")
            pods = {path.name for path in (data_dir / "runners").glob("[a-z]*")}
            if rows and {name for (name,) in rows} == pods:
                return
            await asyncio.sleep(0.5)


@pytest.mark.timeout(180)
async def test_the_first_incidents_are_found_out_put_right_and_explained() -> None:
    await chaos(QUICK, within=90)


@pytest.mark.skipif(not LONG, reason="takes three minutes: make test-chaos")
@pytest.mark.timeout(600)
async def test_every_incident_is_found_out_put_right_and_explained() -> None:
    await chaos(ALL, within=300)
