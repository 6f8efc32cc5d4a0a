"""The services that runners speak to, together: the routes below `/_runner`."""

from __future__ import annotations

from starlette.routing import Route

from paddock.fakes.github.broker import RunnerBroker
from paddock.fakes.github.feed import Feed
from paddock.fakes.github.model import FakeGitHub
from paddock.fakes.github.results import ResultsService
from paddock.fakes.github.run_service import RunService
from paddock.fakes.github.runner_auth import RunnerAuth
from paddock.fakes.github.runner_protocol import faulty


def routes(github: FakeGitHub) -> list[Route]:
    auth = RunnerAuth(github.world)
    services = (
        RunnerBroker(github, auth),
        RunService(github, auth),
        ResultsService(github, auth),
        Feed(github, auth),
    )
    return [
        Route(path, faulty(github.world, name, handler), methods=[method])
        for service in services
        for name, method, path, handler in service.handlers
    ]
