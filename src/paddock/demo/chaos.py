"""One incident after the other, and how paddock found and repaired each: `paddock up --demo chaos`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

import msgspec

from paddock.demo.incidents import INCIDENTS, Case, Incident, IncidentContext, IncidentOver
from paddock.domain.recovery.thresholds import Thresholds
from paddock.ports.reading import Reading
from paddock.stories import Story, tell

#: Between two incidents: enough time to read about the last one.
_GAP: Final = 2.0
#: Between two rounds of all incidents.
_PEACE: Final = 20.0
_LOOK: Final = 1.0
_OVER: Final = ("completed", "gone")
#: GitHub's last webhook may still be on its way.
_EXPLAINED_WITHIN: Final = 60.0


class ChaosLine(msgspec.Struct, frozen=True, kw_only=True):
    """What happened, as a line of the record file beside the data."""

    at: datetime
    what: Literal["harm", "explained", "over"]
    incident: str
    case: Case
    #: Seconds since the harm.
    after: float = 0.0
    story: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chaos:
    around: IncidentContext
    reading: Reading
    thresholds: Thresholds
    #: Prints for people: the incident's name, and a sentence about it.
    say: Callable[[str, str], None]
    #: The record for programs: a `ChaosLine` per line.
    record: Path
    incidents: Sequence[Incident] = tuple(INCIDENTS)

    async def run(self) -> None:
        """Runs incidents for ever."""
        await self.around.idle()
        while True:
            async with asyncio.TaskGroup() as group:
                for incident in self.incidents:
                    group.create_task(self._happen(incident), name=incident.name)
                    await asyncio.sleep(_GAP)
            await asyncio.sleep(_PEACE)

    async def _happen(self, incident: Incident) -> None:
        cases: list[Case] = []
        began = 0.0

        def harmed(case: Case) -> None:
            nonlocal began
            began = self.around.clock.monotonic()
            cases.append(case)
            subject = f"job {case.job}" if case.job is not None else str(case.pod)
            self.say(incident.name, f"{incident.tells} ({incident.source}; {subject})")
            self._write(ChaosLine(at=self._now(), what="harm", incident=incident.name, case=case))

        explaining: asyncio.Task[None] | None = None
        harm = asyncio.ensure_future(incident.harm(self.around, harmed))
        try:
            while not harm.done():
                await asyncio.wait({harm}, timeout=_LOOK)
                if explaining is None and cases:
                    explaining = asyncio.create_task(self._meanwhile(incident, cases[0]))
            await harm
        except IncidentOver:
            return
        finally:
            harm.cancel()
            if explaining is not None:
                explaining.cancel()
        for case in cases:
            story = await self._afterwards(case)
            after = self.around.clock.monotonic() - began
            self.say(incident.name, f"over after {after:.0f} s: {story}")
            self._write(
                ChaosLine(
                    at=self._now(),
                    what="over",
                    incident=incident.name,
                    case=case,
                    after=after,
                    story=story,
                )
            )

    async def _meanwhile(self, incident: Incident, case: Case) -> None:
        """Writes, once, the reason that a waiting job's story gives."""
        wanted = case.meanwhile
        while wanted is not None:
            for story in await self._stories(case):
                if wanted in story.why:
                    self.say(incident.name, f"why it waits: {story.why}")
                    self._write(
                        ChaosLine(
                            at=self._now(),
                            what="explained",
                            incident=incident.name,
                            case=case,
                            story=story.why,
                        )
                    )
                    return
            await asyncio.sleep(_LOOK)

    async def _afterwards(self, case: Case) -> str:
        """The Pod's story; if there is none, the job's."""
        deadline = self.around.clock.monotonic() + _EXPLAINED_WITHIN
        while True:
            stories = await self._stories(case)
            told = [" ".join((each.why, *each.remarks)) for each in reversed(stories)]
            found = next((each for each in told if (case.afterwards or "") in each), None)
            known = found is not None and all(each.state in _OVER for each in stories)
            if known or self.around.clock.monotonic() > deadline:
                return found or (told[0] if told else "nothing is known of it")
            await asyncio.sleep(_LOOK)

    async def _stories(self, case: Case) -> list[Story]:
        """The job's story, then the Pod's: the one read later is shown."""
        names = [str(name) for name in (case.job, case.pod) if name is not None]
        found = [each for name in names for each in await self.reading.find(name)]
        return [tell(each, now=self._now(), thresholds=self.thresholds) for each in found]

    def _now(self) -> datetime:
        return self.around.clock.now()

    def _write(self, line: ChaosLine) -> None:
        with self.record.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")
