"""The terminal output while `paddock up` runs: each action of recovery and each abnormal ending when it
happens, and below them one line with the current state."""

from __future__ import annotations

import asyncio
from typing import Final

from rich.live import Live

from paddock.cli.output import console, show, text
from paddock.domain.reading.filters import ActionFilter, Paging, VerdictFilter
from paddock.domain.reading.overview import Overview
from paddock.domain.reading.rows import ActionLine, VerdictLine
from paddock.domain.recovery.table import RULES
from paddock.domain.states import JobState, RunnerState
from paddock.ports import Clock
from paddock.ports.errors import StoreError
from paddock.ports.reading import Reading

_EVERY: Final = 1.0
#: Seconds between lines without a terminal: in a log a line now and then is enough.
_EVERY_LINE: Final = 5.0
#: The most lines per second: in a storm the first few are enough.
_AT_ONCE: Final = 20

_AT_WORK: Final = (
    RunnerState.BOOTING,
    RunnerState.IDLE,
    RunnerState.CLAIMED,
    RunnerState.ARMED,
    RunnerState.RUNNING,
    RunnerState.BUSY,
    RunnerState.DONE,
    RunnerState.RETIRING,
)
#: Not printed: every healthy fleet has these each day.
_ROUTINE: Final = frozenset(rule.name for rule in RULES if rule.routine)
_STYLES: Final = {"chaos": "bold red", "recovery": "cyan", "ended": "yellow"}


class Screen:
    def __init__(self, reading: Reading, clock: Clock) -> None:
        self._reading = reading
        self._clock = clock
        self._last_action = 0
        self._told: set[object] = set()
        self._began = clock.now()

    def say(self, who: str, what: str) -> None:
        """Print a line that stays on the screen."""
        at = f"{self._clock.now():%H:%M:%S}  "
        show((at, "dim"), (f"{who:<9}", _STYLES.get(who, "")), f" {what}")

    async def follow(self) -> None:
        """Runs for ever."""
        await self._look()  # earlier actions and endings are not shown
        if not console.is_terminal:
            while True:
                await self._tell_news()
                show(await self._line())
                await asyncio.sleep(_EVERY_LINE)
        with Live(console=console, refresh_per_second=4, transient=True) as live:
            while True:
                await self._tell_news()
                live.update(text(await self._line(), style="bold"))
                await asyncio.sleep(_EVERY)

    async def _line(self) -> str:
        try:
            return described(await self._reading.overview())
        except StoreError as error:
            return error.message

    async def _tell_news(self) -> None:
        actions, verdicts = await self._look()
        news = [
            *((each.at, "recovery", _action(each)) for each in actions),
            *((each.written_at, "ended", _verdict(each)) for each in verdicts),
        ]
        for _, who, what in sorted(news)[:_AT_ONCE]:
            self.say(who, what)

    async def _look(self) -> tuple[list[ActionLine], list[VerdictLine]]:
        """Actions and verdicts since the last call."""
        page = Paging(limit=_AT_ONCE)
        try:
            actions = (await self._reading.actions(ActionFilter(), page)).items
            wanted = VerdictFilter(abnormal=True, since=self._began)
            verdicts = (await self._reading.verdicts(wanted, page)).items
        except StoreError:
            return [], []  # the state line shows the error
        fresh = [each for each in actions if each.id > self._last_action]
        self._last_action = max((each.id for each in fresh), default=self._last_action)
        ended = [each for each in verdicts if each.runner not in self._told]
        self._told.update(each.runner for each in ended)
        return [each for each in fresh if each.rule not in _ROUTINE], ended


def _action(action: ActionLine) -> str:
    about = action.pod or f"job {action.job}"
    done = "" if action.outcome == "done" else f", {action.outcome}"
    return f"{action.rule} ({action.action}{done}) {about}: {action.why}"


def _verdict(verdict: VerdictLine) -> str:
    return f"{verdict.pod} {verdict.ending}: {verdict.why}"


def described(seen: Overview) -> str:
    jobs = ", ".join(
        f"{seen.jobs.get(state, 0)} {state.replace('_', ' ')}"
        for state in (JobState.QUEUED, JobState.IN_PROGRESS)
    )
    runners = ", ".join(
        f"{count} {state}" for state in _AT_WORK if (count := seen.runners.get(state, 0))
    )
    parts = [
        f"jobs: {jobs}, {sum(seen.completed.values())} completed within the hour",
        f"runners: {runners or 'none yet'}",
    ]
    if seen.oldest_at is not None:
        waited = max(0.0, (seen.at - seen.oldest_at).total_seconds())
        parts.append(f"oldest waits {waited:.0f} s")
    if seen.to_jit is not None:
        parts.append(f"queued to JIT {seen.to_jit.p50 * 1000:.0f} ms")
    abnormal = sum(count for ending, count in seen.endings.items() if ending.abnormal)
    if abnormal:
        parts.append(f"{abnormal} abnormal endings")
    return "  |  ".join(parts)
