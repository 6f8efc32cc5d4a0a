"""The words and shapes of the dashboard, without a browser."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, get_origin

import msgspec
import pytest

from paddock.domain.reading.overview import (
    Cell,
    LimitBypassLine,
    Overview,
    PauseLine,
    PoolVersionLine,
    QueueLine,
)
from paddock.domain.runners.endings import Ending
from paddock.domain.states import RunnerState
from paddock.web.dashboard import charts
from paddock.web.dashboard.attention import attention
from paddock.web.dashboard.formatting import brief, length, memory, plain, ticked

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0.0 s"), (9.96, "10 s"), (59.6, "1m 00s"), (3661, "1h 01m"), (90_061, "1d 01h")],
)
def test_lengths_are_as_exact_as_matters(seconds: float, said: str) -> None:
    assert length(seconds) == length(timedelta(seconds=seconds)) == said


def test_amounts_are_short() -> None:
    assert (brief(0.0891), brief(None), brief(12)) == ("89 ms", "–", "12 s")
    assert (memory(512), memory(16384), memory(1536)) == ("512 MiB", "16 GiB", "1.5 GiB")


def test_a_log_moves_no_cursor() -> None:
    log = "\x1b[31mred\x1b[0m\r\nnext\tline\x00\x9b <b>"
    assert plain(log) == "red\nnext    line\\u0000\\u009b &lt;b&gt;"


def test_commands_in_a_sentence_are_code_and_the_rest_is_text() -> None:
    assert ticked("run `paddock <x>` & see") == "run <code>paddock &lt;x&gt;</code> &amp; see"
    assert ticked("a lone ` tick <b>") == "a lone ` tick &lt;b&gt;"


def test_a_chart_says_in_words_what_it_shows_and_escapes_them() -> None:
    drawn = charts.plot(
        charts.area([(0, 1), (5, 3)], span=(0, 10), top=4, kind="queue"), label='"<three>"'
    )
    assert 'role="img" aria-label="&#34;&lt;three&gt;&#34;"' in drawn
    assert "M0.0 100L0.0 75.0L300.0 75.0L300.0 25.0L600.0 25.0L600.0 100Z" in drawn
    assert " style=" not in drawn


def test_scales_end_at_round_numbers() -> None:
    assert [charts.nice(value) for value in (0, 0.5, 7, 11, 55, 101)] == [1, 0.5, 8, 15, 60, 150]
    assert [charts.nice_length(value) for value in (0.2, 31, 4000)] == [1, 60, 7200]
    assert charts.scaled(1.0, 0.01, 100.0) == pytest.approx(0.5)


def _overview(**changes: Any) -> Overview:
    """The overview of an empty fleet, with `changes`."""
    empty: dict[Any, Any] = {dict: {}, list: [], int: 0}
    nothing = {
        field.name: empty.get(get_origin(field.type) or field.type)
        for field in msgspec.structs.fields(Overview)
    }
    return Overview(**{**nothing, "at": NOW, **changes})


def test_a_quiet_fleet_needs_no_operator() -> None:
    assert attention(_overview(endings={Ending.COMPLETED: 400})) == []


def _version(pool: str, *, ends_in: timedelta) -> PoolVersionLine:
    return PoolVersionLine(
        pool=pool,
        version="2.336.0",
        account="acme",
        registration_ends_at=None,
        runtime_ends_at=NOW + ends_in,
        refused_at=None,
        refused_until=None,
    )


def test_what_is_worst_comes_first() -> None:
    cell = Cell(
        pod="p",
        pool="linux",
        state=RunnerState.RUNNING,
        since=NOW,
        account=None,
        job=None,
        node=None,
        suspect=True,
    )
    notes = attention(
        _overview(
            debts=1,
            cells=[cell],
            refused=2,
            endings={Ending.HOST_OOM: 1},
            queues=[QueueLine(pool="x", account="a", jobs=1, oldest_at=NOW - timedelta(minutes=6))],
            pauses=[
                PauseLine(what="dispatch", name=None, at=NOW, by="operator:ana", why="a new disk"),
                PauseLine(what="pool", name="linux", at=NOW, by="operator:ana", why=None),
            ],
            dead_deliveries=1,
            runner_versions=[
                _version("linux", ends_in=timedelta(days=-1)),
                _version("arm", ends_in=timedelta(days=20)),
                _version("mac", ends_in=timedelta(days=30)),
            ],
            limit_bypasses=[
                LimitBypassLine(account="a", repository="a/api", runner="foreign", jobs=2)
            ],
        )
    )
    assert [(note.kind, note.text) for note in notes] == [
        ("bad", "All dispatch is paused by ana since 2026-01-05 09:00 UTC: a new disk."),
        (
            "bad",
            (
                "Pool linux has runner version 2.336.0, which GitHub has refused to acme since "
                "2026-01-04 09:00 UTC."
            ),
        ),
        ("bad", "1 delivery could not be applied and was set aside."),
        ("warn", "Pool linux is paused by ana since 2026-01-05 09:00 UTC."),
        (
            "warn",
            "Pool arm has runner version 2.336.0, which GitHub accepts until 2026-01-25 09:00 UTC.",
        ),
        ("warn", "2 jobs of a/api on foreign runners: its limits do not hold there."),
        ("warn", "2 queued jobs fit no pool."),
        ("warn", "The oldest job that a pool takes has waited for 6m 00s."),
        ("warn", "GitHub does not see 1 runner whose container is up."),
        ("warn", "1 runner ended abnormally in the last hour."),
        ("info", "1 runner record at GitHub may have to be removed."),
    ]
