"""What a Pod says of its runner's version is checked, and a version's first end decides."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from paddock.domain.reading.overview import PoolVersionLine
from paddock.domain.runners.versions import LONGEST, RunnerVersion, VersionSchedule, runner_version

MARCH = datetime(2026, 3, 16, tzinfo=UTC)
MAY = datetime(2026, 5, 16, tzinfo=UTC)


@pytest.mark.parametrize("text", ["2.336.0", " 2.336.0\n", "999999.999999.999999"])
def test_a_version_is_three_numbers(text: str) -> None:
    assert runner_version(text) == text.strip()
    assert len(text.strip()) <= LONGEST


@pytest.mark.parametrize(
    "text",
    [
        "",
        "latest",
        "2.336",
        "v2.336.0",
        "2.336.0-rc.1",
        "2.336.0\x1b[2J",
        "2.336.0\n2.337.0",
        "2.336.0/../../orgs",
        "٢.٣٣٦.٠",
        "2.336." + "0" * 1000,
    ],
)
def test_any_other_text_is_an_unknown_version(text: str) -> None:
    assert runner_version(text) is None


@pytest.mark.parametrize(
    ("registration", "runtime", "first"),
    [(None, None, None), (MARCH, None, MARCH), (None, MAY, MAY), (MAY, MARCH, MARCH)],
)
def test_the_first_end_is_the_earlier_date(
    registration: datetime | None, runtime: datetime | None, first: datetime | None
) -> None:
    schedule = VersionSchedule(
        version=RunnerVersion("2.330.0"),
        registration_ends_at=registration,
        runtime_ends_at=runtime,
    )
    assert schedule.first_end == first


@pytest.mark.parametrize(
    ("runtime", "jobs"), [(None, "get jobs."), (MAY, "get jobs until 2026-05-16 00:00 UTC.")]
)
def test_an_end_of_registration_that_is_over_is_not_announced(
    runtime: datetime | None, jobs: str
) -> None:
    line = PoolVersionLine(
        pool="linux",
        version="2.330.0",
        account="acme",
        registration_ends_at=MARCH,
        runtime_ends_at=runtime,
        refused_at=None,
        refused_until=None,
    )
    now = MARCH + timedelta(days=1)
    assert not line.is_refused(now)
    said = line.sentence(now)
    assert "has registered no new runners to acme since 2026-03-16 00:00 UTC" in said
    assert said.endswith(jobs)
