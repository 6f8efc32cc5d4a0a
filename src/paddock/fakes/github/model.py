"""The fake GitHub: one model, in the simulator's process or behind an HTTP server.

It is synchronous and deterministic: the same seed and the same calls at the same times give the same
ids, the same order and the same faults. It does nothing by itself: every call first plays the events
that are due (`advance`). What it *says* (`request`, webhooks) and what is *true* (`truth`) are kept
apart.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime

from paddock.fakes.github import api_actions, api_app
from paddock.fakes.github.accounts import Accounts
from paddock.fakes.github.answers import Reply, Request
from paddock.fakes.github.api import Api, Parts, Route
from paddock.fakes.github.auth import Auth
from paddock.fakes.github.faults import FaultKind, Faults, Injected, Quotas, Timing
from paddock.fakes.github.hooks import Hooks
from paddock.fakes.github.jobs import Jobs
from paddock.fakes.github.limits import Limits
from paddock.fakes.github.records import Installation, Runner
from paddock.fakes.github.runners import Runners
from paddock.fakes.github.truth import Truth
from paddock.fakes.github.uploads import Uploads
from paddock.fakes.github.world import World


class FakeGitHub:
    def __init__(
        self,
        *,
        now: Callable[[], datetime],
        rng: random.Random,
        api_url: str = "http://127.0.0.1:8800",
        html_url: str | None = None,
        faults: Faults | None = None,
        timing: Timing | None = None,
        quotas: Quotas | None = None,
        epoch: int = 0,
    ) -> None:
        self._world = World(
            now=now,
            rng=rng,
            api_url=api_url,
            html_url=html_url or api_url,
            faults=faults or Faults(),
            timing=timing or Timing(),
            quotas=quotas or Quotas(),
            epoch=epoch,
        )
        #: What runners uploaded for their jobs.
        self.uploads = Uploads()
        hooks = Hooks(self._world)
        jobs = Jobs(self._world, hooks)
        self._parts = Parts(
            world=self._world,
            hooks=hooks,
            jobs=jobs,
            runners=Runners(self._world, jobs),
            accounts=Accounts(self._world, hooks, jobs),
            auth=Auth(self._world),
            limits=Limits(self._world),
        )
        self._api = Api(self._parts, self.routes)

    @property
    def routes(self) -> list[Route]:
        return [*api_app.routes.all, *api_actions.routes.all]

    # Each of these properties first plays the events that are due: its caller acts now.

    @property
    def accounts(self) -> Accounts:
        """What users do in GitHub's settings."""
        self.advance()
        return self._parts.accounts

    @property
    def jobs(self) -> Jobs:
        """What workflows and their authors do."""
        self.advance()
        return self._parts.jobs

    @property
    def runners(self) -> Runners:
        """The runner's side: the fake's own protocol, and runners that are not paddock's."""
        self.advance()
        return self._parts.runners

    @property
    def hooks(self) -> Hooks:
        """Where webhooks go."""
        self.advance()
        return self._parts.hooks

    @property
    def world(self) -> World:
        """The records themselves: for harnesses and checkers."""
        self.advance()
        return self._world

    @property
    def truth(self) -> Truth:
        return self._world.truth

    @property
    def next_due(self) -> datetime | None:
        """When the model next has an event of its own."""
        return self._world.schedule.next_due

    def advance(self) -> None:
        """Plays everything that is due by now."""
        self._world.advance()

    def request(self, request: Request) -> Reply:
        """One call of the REST API."""
        return self._api.answer(request)

    def token_for(self, installation: Installation) -> str:
        """A token without the JWT, for callers in the same process."""
        self.advance()
        return self._parts.auth.issue(installation).value

    def set_faults(self, faults: Faults) -> None:
        self._world.faults = faults

    def inject(
        self,
        kind: FaultKind,
        *,
        route: str | None = None,
        owner: str | None = None,
        path: str | None = None,
        times: int | None = 1,
        seconds: float | None = None,
    ) -> Injected:
        """Hit the next `times` calls that match; with `times=None`, all within `seconds`. What is
        returned counts down the calls that it hits; with `times` set to 0 it hits no more.

        A whole scope that answers 404: `inject(FaultKind.NOT_FOUND, owner=…, times=None,
        seconds=…)`.
        """
        self.advance()
        if times is None and seconds is None:
            raise ValueError("A fault without an end: give `times` or `seconds`.")
        until = None if seconds is None else self._world.later(seconds)
        fault = Injected(kind, route=route, owner=owner, path=path, times=times, until=until)
        self._world.injected.append(fault)
        return fault

    def runner_named(self, name: str) -> Runner | None:
        """The record of that name, in any scope."""
        return next((one for one in self._world.runners.values() if one.name == name), None)
