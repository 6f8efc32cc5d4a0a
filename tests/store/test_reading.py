"""Read-only access: pages, filters, stories, and its small cost for dispatch."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from paddock.domain.reading.filters import (
    ActionFilter,
    BadCursor,
    DeliveryFilter,
    EventFilter,
    JobFilter,
    Paging,
    RunnerFilter,
    VerdictFilter,
)
from paddock.domain.reading.overview import TREND_STEP, depths
from paddock.domain.runners.endings import Ending
from paddock.domain.states import JobState, RunnerState
from paddock.ports.errors import StoreError
from paddock.store.database import Database
from paddock.store.reading import PgReading, reader
from paddock.store.sql import Query, named
from paddock.system import SystemClock
from tests.support.scenes import HOSTILE
from tests.support.world import World

LISTS: list[Any] = [
    ("jobs", JobFilter()),
    ("runners", RunnerFilter()),
    ("verdicts", VerdictFilter()),
    ("events", EventFilter()),
    ("actions", ActionFilter()),
    ("deliveries", DeliveryFilter()),
]


@pytest.fixture
def reading(chaotic: Database) -> PgReading:
    return PgReading(chaotic, SystemClock())


async def test_every_list_has_each_line_once_on_its_pages(reading: PgReading) -> None:
    for name, wanted in LISTS:
        look = getattr(reading, name)
        whole = await look(wanted, Paging(limit=10_000))
        assert whole.next is None
        assert len(whole.items) > 7, name
        paged: list[Any] = []
        cursor = None
        for _ in range(len(whole.items)):
            page = await look(wanted, Paging(limit=7, cursor=cursor))
            paged += page.items
            if (cursor := page.next) is None:
                break
        assert paged == whole.items, name


@pytest.mark.parametrize(("name", "wanted"), LISTS)
async def test_a_forged_cursor_is_refused(database: Database, name: str, wanted: Any) -> None:
    reading = PgReading(database, SystemClock())
    for cursor in ("", "x", "-1", "9" * 40, "1.", ".1", "99999.1", "1.2.3", "²"):
        with pytest.raises(BadCursor):
            await getattr(reading, name)(wanted, Paging(cursor=cursor))


async def test_a_chaotic_fleet_is_found_by_every_filter(reading: PgReading) -> None:
    everything = Paging(limit=10_000)

    queued = (await reading.jobs(JobFilter(status=JobState.QUEUED), everything)).items
    assert {job.status for job in queued} == {JobState.QUEUED}
    [refused] = (await reading.jobs(JobFilter(refused=True), everything)).items
    assert refused.name == HOSTILE
    assert refused.pool is None
    mine = (await reading.jobs(JobFilter(account="INITECH", pool="linux-x64"), everything)).items
    assert {(job.account, job.pool) for job in mine} == {("initech", "linux-x64")}

    live = (await reading.runners(RunnerFilter(live=True), everything)).items
    assert {runner.gone_at for runner in live} == {None}
    gone = (await reading.runners(RunnerFilter(live=False), everything)).items
    assert {runner.state for runner in gone} == {RunnerState.GONE}
    assert all(runner.ending is not None for runner in gone)

    oom = (await reading.verdicts(VerdictFilter(ending=Ending.HOST_OOM), everything)).items
    assert oom
    assert {verdict.exit_code for verdict in oom} == {137}
    one = oom[0]
    same = VerdictFilter(abnormal=True, node=one.node, image=one.image, pool=one.pool)
    assert one in (await reading.verdicts(same, everything)).items

    [paused, *_] = (await reading.events(EventFilter(pool="macos-14"), everything)).items
    assert (paused.after, paused.actor) == ("paused", "operator:ana")
    noteworthy = (await reading.actions(ActionFilter(noteworthy=True), everything)).items
    assert {action.rule for action in noteworthy} == {"pod-gone", "silent", "suspect"}
    silent = (await reading.actions(ActionFilter(rule="silent"), everything)).items
    assert {action.rule for action in silent} == {"silent"}


async def test_a_runner_is_found_by_every_name_it_has(reading: PgReading) -> None:
    [line, *_] = (await reading.verdicts(VerdictFilter(ending=Ending.HOST_OOM), Paging())).items
    story = await reading.runner(line.runner)
    assert story is not None
    assert await reading.runner(line.pod) == story
    assert await reading.runner(story.names[0].name) == story
    assert await reading.runner("unknown") is None
    assert story.verdict == line
    assert story.log_tail is not None
    assert [job.id for job in story.jobs] == [line.job]
    assert list(story.steps) == [
        *("created", "heard", "claimed", "armed", "acknowledged", "said its job began", "busy"),
        "gone",
    ]
    assert [event.after for event in story.events] == [
        *("booting", "idle", "claimed", "armed", "running", "busy", "gone")
    ]
    assert story.vitals


async def test_a_jobs_story_has_its_runner(reading: PgReading) -> None:
    wanted = JobFilter(status=JobState.COMPLETED, conclusion="success")
    [line, *_] = (await reading.jobs(wanted, Paging())).items
    story = await reading.job(line.id)
    assert story is not None
    assert story.job == line
    own = [event.after for event in story.events if event.job == line.id]
    assert own == ["queued", "in_progress", "completed"]
    steps = [event.after for event in story.events if event.pod == line.pod]
    assert steps[:4] == ["claimed", "armed", "running", "busy"]
    assert steps[-1] == "gone"
    assert [each.runner.pod for each in story.runners] == [line.pod]
    assert await reading.job(line.id, host="github.example") is None
    assert await reading.job(1) is None


async def test_the_overview_counts_what_the_lists_have(reading: PgReading) -> None:
    overview = await reading.overview()
    queued = await reading.jobs(JobFilter(status=JobState.QUEUED), Paging(limit=10_000))
    assert overview.jobs[JobState.QUEUED] == len(queued.items)
    assert sum(queue.jobs for queue in overview.queues) + overview.refused == len(queued.items)
    live = await reading.runners(RunnerFilter(live=True), Paging(limit=10_000))
    assert sum(overview.runners.values()) == len(overview.cells) == len(live.items)
    assert overview.dead_deliveries == 1
    assert {(pause.what, pause.name) for pause in overview.pauses} == {
        ("pool", "macos-14"),
        ("account", "octocat"),
    }
    assert [backoff.name for backoff in overview.backoffs] == ["globex"]
    assert overview.to_jit is not None
    assert overview.oldest[0].name == HOSTILE
    assert all(
        action.rule != "pod-ended" or "cleanly" not in action.why for action in overview.actions
    )
    assert sum(pool.size for pool in await reading.pools()) == len(live.items)
    assert (await reading.trends()).queue[-1].depth == sum(queue.jobs for queue in overview.queues)


def test_a_queues_depth_is_counted_back_from_now() -> None:
    since = datetime(2026, 1, 5, 9, tzinfo=UTC)
    points = depths(
        since=since,
        until=since + 2.5 * TREND_STEP,
        came={since + TREND_STEP: 5, since + 2 * TREND_STEP: 1},
        went={since + 2 * TREND_STEP: 3},
        now=4,
    )
    assert [(point.depth, point.came, point.went) for point in points] == [
        (1, 0, 0),
        (6, 5, 0),
        (4, 1, 3),
    ]


async def test_no_read_takes_longer_than_two_seconds(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        named("reading"), "rule_counts", Query("SELECT pg_sleep(60), :since::timestamptz")
    )
    monkeypatch.setattr(reader, "_BEGIN", reader._BEGIN.replace("'2s'", "'50ms'"))
    reading = PgReading(database, World(database).clock)
    with pytest.raises(reader.TooSlow, match="ask for less"):
        await reading.rule_counts(since=World(database).clock.now())


async def test_nothing_can_be_written_by_looking(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        named("reading"), "rule_counts", Query("DELETE FROM events WHERE at < :since RETURNING id")
    )
    reading = PgReading(database, World(database).clock)
    with pytest.raises(StoreError, match="read-only"):
        await reading.rule_counts(since=World(database).clock.now())
