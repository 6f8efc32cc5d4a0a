"""The charts of each page, from the data that the page has read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

from paddock.domain.reading.details import RunnerDetails
from paddock.domain.reading.overview import TREND_STEP, LatencyPoint, Trends
from paddock.domain.reading.rows import DecisionLine, EndingCount, VitalsLine
from paddock.domain.runners.endings import Ending
from paddock.web.dashboard.charts import (
    Chart,
    area,
    decades,
    level,
    line,
    nice,
    nice_length,
    plot,
    scaled,
    seconds,
    segments,
    stacks,
    stepped,
)
from paddock.web.dashboard.formatting import brief, count, length, memory

#: Conclusions from bottom to top: success, failure, the rest.
OUTCOMES: Final = ("success", "failure", "other")

_MIB: Final = 2**20
#: A claim and a mint together take no less. Medians and waits are decades apart, so both are drawn on a
#: logarithmic scale.
_LEAST_JIT: Final = 0.01
#: Seconds. Samples are five seconds apart; a rate over less time than this is meaningless.
_LEAST_STEP: Final = 0.001
#: A point covers five minutes and is drawn at their middle.
_MIDDLE: Final = 2.5 * TREND_STEP


def queue_chart(trends: Trends) -> Chart:
    span = seconds(trends.since), seconds(trends.until)
    points = [(seconds(point.at), float(point.depth)) for point in trends.queue]
    most = max((point.depth for point in trends.queue), default=0)
    top = nice(max(1, most))
    label = (
        f"Jobs that waited in the last hour: {points[-1][1]:.0f} now, {most} at most."
        if points
        else "No job waited in the last hour."
    )
    return Chart(
        svg=plot(area(points, span=span, top=top, kind="queue"), label=label),
        label=label,
        top=f"{top:g}",
        left="1 h ago",
        right="now",
        is_empty=not any(point.came or point.depth for point in trends.queue),
    )


def jit_chart(trends: Trends) -> Chart:
    span = seconds(trends.since), seconds(trends.until)
    most = max((point.p99 for point in trends.to_jit), default=0.0)
    top = nice_length(most)
    found = trends.to_jit

    def drawn(value: Callable[[LatencyPoint], float]) -> list[tuple[float, float]]:
        return [
            (seconds(point.at + _MIDDLE), scaled(value(point), _LEAST_JIT, top)) for point in found
        ]

    label = (
        f"Time to JIT in the last hour: median {brief(found[-1].p50)} and 99th percentile "
        f"{brief(found[-1].p99)} in its last five minutes, at most {brief(most)}."
        if found
        else "No JIT was minted in the last hour."
    )
    return Chart(
        svg=plot(
            decades(_LEAST_JIT, top),
            line(drawn(lambda point: point.p99), span=span, top=1.0, kind="p99"),
            line(drawn(lambda point: point.p50), span=span, top=1.0, kind="p50"),
            label=label,
        ),
        label=label,
        top=brief(top),
        left="1 h ago",
        right="now",
        is_empty=not found,
    )


def completed_chart(trends: Trends) -> Chart:
    steps = int((trends.until - trends.since) / TREND_STEP) + 1
    columns: list[Counter[str]] = [Counter() for _ in range(steps)]
    for point in trends.completed:
        place = int((point.at - trends.since) / TREND_STEP)
        kind = point.conclusion if point.conclusion in OUTCOMES else "other"
        if 0 <= place < steps:
            columns[place][kind] += point.jobs
    most = max((sum(column.values()) for column in columns), default=0)
    total: Counter[str] = sum(columns, Counter())
    label = (
        f"Jobs completed in the last hour: {total['success']} succeeded, {total['failure']} failed, "
        f"{total['other']} others."
    )
    return Chart(
        svg=plot(stacks(columns, OUTCOMES, top=nice(max(1, most))), label=label),
        label=label,
        top=f"{nice(max(1, most)):g} a minute",
        left="1 h ago",
        right="now",
        is_empty=not total,
    )


def endings_chart(
    counts: Sequence[EndingCount], *, since: datetime, until: datetime, step: timedelta
) -> Chart:
    steps = max(1, -int(-((until - since) / step) // 1))
    columns: list[Counter[str]] = [Counter() for _ in range(steps)]
    for each in counts:
        place = int((each.at - since) / step)
        if 0 <= place < steps:
            columns[place][f"ending-{each.ending}"] += each.runners
    most = max((sum(column.values()) for column in columns), default=0)
    order = [f"ending-{ending}" for ending in Ending]
    total = sum(each.runners for each in counts)
    abnormal = sum(each.runners for each in counts if each.ending.abnormal)
    label = f"Runners that ended, {length(step)} a column: {total}, {abnormal} of them abnormally."
    return Chart(
        svg=plot(stacks(columns, order, top=nice(max(1, most))), label=label),
        label=label,
        top=f"{nice(max(1, most)):g}",
        left=f"{length(until - since)} ago",
        right="now",
        is_empty=not total,
    )


def pool_chart(decisions: Sequence[DecisionLine], *, now: datetime) -> Chart:
    """`decisions`: newest first."""
    past = list(reversed(decisions))
    span = (seconds(past[0].at) if past else 0.0), seconds(now)
    most = max((max(each.wanted, each.target) for each in past), default=0)
    top = nice(max(1, most))
    targets = [(seconds(each.at), float(each.target)) for each in past]
    wanted = [(seconds(each.at), float(each.wanted)) for each in past]
    label = f"The pool's target: {past[-1].target} now, {most} at most." if past else "No decision."
    return Chart(
        svg=plot(
            area(targets, span=span, top=top, kind="target"),
            stepped(wanted, span=span, top=top, kind="wanted"),
            label=label,
        ),
        label=label,
        top=f"{top:g}",
        left=f"{length(now - past[0].at)} ago" if past else "",
        right="now",
        is_empty=len(past) < 2,
    )


Spell = tuple[str, datetime, datetime]


def spells(details: RunnerDetails, *, now: datetime) -> list[Spell]:
    """The states of the runner, each with its start and end."""
    steps = [(event.after, event.at) for event in details.events]
    ends = [at for _, at in steps[1:]] + [details.runner.gone_at or now]
    return [
        (state, at, max(at, until))
        for (state, at), until in zip(steps, ends, strict=True)
        if state != "gone"
    ]


def life_line(lived: Sequence[Spell]) -> Chart:
    told = ", ".join(f"{state} for {length(until - at)}" for state, at, until in lived)
    label = f"Its life: {told}." if told else "Nothing is known of its life."
    parts = [(seconds(at), seconds(until), f"state-{state}") for state, at, until in lived]
    span = (parts[0][0], parts[-1][1]) if parts else (0.0, 0.0)
    return Chart(
        svg=plot(segments(parts, span=span), label=label), label=label, top="", is_empty=not parts
    )


def vitals_charts(vitals: Sequence[VitalsLine]) -> list[tuple[str, Chart]]:
    """Memory, CPU and pressure, over the time that was measured."""
    if len(vitals) < 2:
        return []
    span = vitals[0].at, vitals[-1].at
    right = length(vitals[-1].at - vitals[0].at)
    return [
        ("Memory", _memory_chart(vitals, span, right)),
        ("CPU", _cpu_chart(vitals, span, right)),
        ("Pressure", _pressure_chart(vitals, span, right)),
    ]


def _memory_chart(vitals: Sequence[VitalsLine], span: tuple[float, float], right: str) -> Chart:
    used = [(each.at, each.memory_used) for each in vitals if each.memory_used is not None]
    limit = next((each.memory_limit for each in reversed(vitals) if each.memory_limit), None)
    most = max((value for _, value in used), default=0.0)
    top = limit * 1.04 if limit else nice(most or 1.0)
    label = f"Memory: {memory(most / _MIB)} at most" + (
        f", of a limit of {memory(limit / _MIB)}." if limit else "."
    )
    return Chart(
        svg=plot(
            area(used, span=span, top=top, kind="memory"),
            *([level(limit, top=top, kind="limit")] if limit else []),
            label=label,
        ),
        label=label,
        top=memory((limit or top) / _MIB),
        left="0",
        right=right,
        is_empty=not used,
    )


def _cpu_chart(vitals: Sequence[VitalsLine], span: tuple[float, float], right: str) -> Chart:
    points = []
    for before, after in pairwise(vitals):
        if before.cpu_seconds is None or after.cpu_seconds is None:
            continue
        if after.at - before.at < _LEAST_STEP:
            continue
        used = (after.cpu_seconds - before.cpu_seconds) / (after.at - before.at)
        points.append((after.at, max(0.0, used)))
    most = max((value for _, value in points), default=0.0)
    top = nice(most or 1.0)
    label = f"CPUs in use: {most:.1f} at most."
    return Chart(
        svg=plot(area(points, span=span, top=top, kind="cpu"), label=label),
        label=label,
        top=count(int(top), "CPU") if top >= 1 else f"{top:g} CPU",
        left="0",
        right=right,
        is_empty=not points,
    )


def _pressure_chart(vitals: Sequence[VitalsLine], span: tuple[float, float], right: str) -> Chart:
    kinds = {
        "memory": [(each.at, each.memory_pressure) for each in vitals],
        "cpu": [(each.at, each.cpu_pressure) for each in vitals],
        "io": [(each.at, each.io_pressure) for each in vitals],
    }
    drawn = {
        kind: [(at, value) for at, value in points if value is not None]
        for kind, points in kinds.items()
    }
    most = max((value for points in drawn.values() for _, value in points), default=0.0)
    top = min(100.0, nice(max(10.0, most)))
    peaks = ", ".join(
        f"{kind} {max(value for _, value in points):.0f}%"
        for kind, points in drawn.items()
        if points
    )
    label = f"Share of time in which something had to wait, at most: {peaks or 'not measured'}."
    return Chart(
        svg=plot(
            *(
                line(points, span=span, top=top, kind=f"pressure-{kind}")
                for kind, points in drawn.items()
            ),
            label=label,
        ),
        label=label,
        top=f"{top:g}%",
        left="0",
        right=right,
        is_empty=not any(drawn.values()),
    )
