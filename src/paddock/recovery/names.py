"""Looking for a Pod at GitHub by the names it may have there.

A Pod of which no row tells a name (its row is older than it, or there is none) may be registered all
the same: names are made from the Pod's name and count upwards from one. In every scope that its pool
serves each is asked for, a few at a time; an answer is good for a while, a failure is none (I29).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from paddock.domain.github import Absent, RunnerRecord
from paddock.domain.github_errors import GitHubError
from paddock.domain.ids import KeyId
from paddock.domain.names import PodName, RunnerName, runner_name
from paddock.domain.pods import Pod
from paddock.domain.recovery import FoundRecord, KeyPlace
from paddock.ports import Clock, GitHub, Store

#: A claim that is given up and made again takes the next name; nobody has needed a fourth.
GENERATIONS: Final = 3
#: Within this all scopes of a large pool have had their turn.
_GOOD_FOR: Final = timedelta(minutes=10)
#: Requests for one Pod in one round.
_AT_ONCE: Final = 10
_REMEMBERED: Final = 10_000

_Asked = tuple[str, KeyId, int]
Found = tuple[FoundRecord, RunnerRecord]


class Names:
    def __init__(self, *, store: Store, github: GitHub, clock: Clock) -> None:
        self._store = store
        self._github = github
        self._clock = clock
        self._absent: dict[_Asked, datetime] = {}

    async def look_for(self, pod: Pod, *, after: int = 0) -> list[Found] | None:
        """The records there are, of generations above `after`; `None` while not every scope has
        answered."""
        keys = await self._store.keys_of_pool(pod.pool)
        places = await self._store.key_places(keys)
        if len(places) < len(keys):
            return None  # a scope nobody can ask may hold it
        found: list[Found] = []
        left = _AT_ONCE
        for key in sorted(places):
            for generation in range(after + 1, after + 1 + GENERATIONS):
                asked = (pod.uid, key, generation)
                if self._known_absent(asked):
                    continue
                if left == 0:
                    return None
                left -= 1
                record = await self._ask(pod.name, places[key], generation)
                if record is None:
                    return None
                if isinstance(record, Absent):
                    self._remember(asked)
                else:
                    found.append((_found(key, pod.name, generation, record), record))
        return found

    async def _ask(
        self, pod: PodName, place: KeyPlace, generation: int
    ) -> RunnerRecord | Absent | None:
        try:
            return await self._github.find_runner(
                place.who, place.scope, name=runner_name(pod, generation)
            )
        except GitHubError:
            return None

    def _known_absent(self, asked: _Asked) -> bool:
        at = self._absent.get(asked)
        return at is not None and self._clock.now() - at < _GOOD_FOR

    def _remember(self, asked: _Asked) -> None:
        if len(self._absent) >= _REMEMBERED:
            del self._absent[next(iter(self._absent))]
        self._absent[asked] = self._clock.now()


def _found(key: KeyId, pod: PodName, generation: int, record: RunnerRecord) -> FoundRecord:
    return FoundRecord(
        key=key,
        name=RunnerName(runner_name(pod, generation)),
        generation=generation,
        github_id=record.id,
    )
