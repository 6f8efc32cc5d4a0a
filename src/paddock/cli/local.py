"""The fleet of `paddock up`: runners as processes of this machine."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from paddock.fleet.local.fleet import FAKE_RUNNER, GRACE, LocalFleet, Programs
from paddock.fleet.local.installation import Installation
from paddock.fleet.local.settings import NO_CGROUP
from paddock.fleet.local.shares import NoCgroup, cgroup_for_runners, give_back
from paddock.settings import Settings
from paddock.system import SystemClock, SystemIds


class LocalRunners:
    """The directory of the runners, and their limits."""

    def __init__(
        self, settings: Settings, *, environment: Mapping[str, str], grace: float = GRACE
    ) -> None:
        self.root = settings.data_dir.expanduser().absolute() / "runners"
        given = settings.local.runner
        self._installed = Installation(given) if given else None
        self._environment = environment
        self._grace = grace
        self._fleet: LocalFleet | None = None
        self._ours: Path | None = None
        #: Why runners have no limits; empty if they have limits.
        self.unlimited_because = ""
        self._cgroup = self._find_cgroup(settings.local.cgroup)

    @property
    def limited(self) -> bool:
        return self._cgroup is not None

    @property
    def described(self) -> str:
        what = self._installed.described if self._installed else "processes of this machine"
        if self.limited:
            return f"{what}, with their pool's memory as limit"
        return f"{what}, without limits ({self.unlimited_because})"

    async def fleet(self) -> LocalFleet:
        if self._fleet is None:
            self._fleet = LocalFleet(
                self.root,
                Programs.of_agent(),
                clock=SystemClock(),
                ids=SystemIds(),
                runner=self._installed or FAKE_RUNNER,
                environment=self._environment,
                cgroup_parent=self._cgroup,
                grace=self._grace,
            )
            await self._fleet.open()
        return self._fleet

    async def stop(self) -> None:
        """Stop all runners, also those of an earlier process. The fleet that started them must do this:
        only it knows of supervisors that have not begun yet."""
        await (await self.fleet()).stop_all()
        if self._ours is not None:
            give_back(self._ours)

    def _find_cgroup(self, wanted: str | None) -> Path | None:
        if wanted == NO_CGROUP:
            self.unlimited_because = "[local] cgroup is none"
            return None
        if wanted is not None:
            return Path(wanted)
        try:
            # Each data directory is a fleet of its own.
            name = hashlib.sha256(str(self.root).encode()).hexdigest()[:10]
            self._ours = cgroup_for_runners(name)
        except NoCgroup as reason:
            self.unlimited_because = str(reason)
        return self._ours


@asynccontextmanager
async def local_runners(
    settings: Settings, *, environment: Mapping[str, str], grace: float = GRACE
) -> AsyncIterator[LocalRunners]:
    runners = LocalRunners(settings, environment=environment, grace=grace)
    try:
        yield runners
    finally:
        await runners.stop()
