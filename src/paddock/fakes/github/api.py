"""GitHub's REST API over the model: routes, permissions, limits, and injected faults.

One function from request to reply, without I/O: the HTTP server and the simulator both call it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import format_datetime
from typing import Any, Literal
from urllib.parse import urlencode, urlsplit

from paddock.fakes.github import answers
from paddock.fakes.github.accounts import Accounts
from paddock.fakes.github.answers import ErrorResponse, Reply, Request
from paddock.fakes.github.auth import Auth
from paddock.fakes.github.faults import FaultKind
from paddock.fakes.github.hooks import Hooks
from paddock.fakes.github.jobs import Jobs
from paddock.fakes.github.limits import CORE, MINT, Limits
from paddock.fakes.github.records import Account, App, Installation, Repository, Token
from paddock.fakes.github.runners import Runners
from paddock.fakes.github.truth import RecordedCall
from paddock.fakes.github.world import World

_MAX_PER_PAGE = 100
_API_VERSION = "2022-11-28"

#: Injected faults that replace a whole answer.
ERRORS = frozenset(FaultKind) - {
    FaultKind.REQUEST_LOST,
    FaultKind.REPLY_LOST,
    FaultKind.BUSY_UNSEEN,
    FaultKind.BUSY_DELETED,
    FaultKind.CONFLICT,
}
#: GitHub counts the requests of an installation's token for that installation, and those of an App's
#: own key for the App.
LIMITS = frozenset({FaultKind.RATE_LIMIT, FaultKind.SECONDARY_LIMIT})


@dataclass(slots=True)
class Parts:
    world: World
    hooks: Hooks
    jobs: Jobs
    runners: Runners
    accounts: Accounts
    auth: Auth
    limits: Limits


Who = Literal["app", "installation"]


@dataclass(frozen=True, slots=True)
class Route:
    name: str
    method: str
    pattern: re.Pattern[str]
    template: str
    who: Who
    #: The required permission, and whether to write: ("actions", "read").
    permission: tuple[str, str] | None
    handler: Callable[[Call], Reply]


@dataclass(slots=True)
class Call:
    """One request, with all that its handler may need."""

    parts: Parts
    request: Request
    route: Route
    params: dict[str, str]
    _app: App | None = None
    _token: Token | None = None
    rate_headers: dict[str, str] = field(default_factory=dict)

    @property
    def world(self) -> World:
        return self.parts.world

    @property
    def app(self) -> App:
        assert self._app is not None
        return self._app

    @property
    def token(self) -> Token:
        assert self._token is not None
        return self._token

    def authenticate(self) -> None:
        if self.route.who == "app":
            self._app = self.parts.auth.app(self.request.headers)
        else:
            self._token = self.parts.auth.token(self.request.headers)
            self._app = self._token.installation.app

    def number(self, name: str) -> int:
        text = self.params[name]
        if not text.isdigit():
            raise answers.not_found()
        return int(text)

    def body(self) -> dict[str, Any]:
        body = self.request.body
        if body is None:
            return {}
        if not isinstance(body, dict):
            raise ErrorResponse(400, "Body should be a JSON object")
        return body

    def organization(self) -> Account:
        """The organisation in the path, if this token may access it."""
        account = self.world.account(self.params["org"])
        if account is None or account.type != "Organization":
            raise answers.not_found()
        if self.token.installation.account is not account:
            raise answers.not_found()
        self._may_enter(account)
        return account

    def repository(self) -> Repository:
        """The repository in the path, if this token covers it."""
        full_name = f"{self.params['owner']}/{self.params['repo']}"
        repository = self.world.repository(full_name)
        if repository is None:
            raise answers.not_found()
        covered = self.token.installation.covers(repository) and (
            self.token.repositories is None or repository.id in self.token.repositories
        )
        if not covered:
            # What the token may not see is answered as absent; what it sees and may not use is
            # refused.
            visible = self.request.method != "GET" and (
                repository.owner is self.token.installation.account
            )
            raise answers.not_accessible() if visible else answers.not_found()
        self._may_enter(repository.owner)
        return repository

    def _may_enter(self, account: Account) -> None:
        if account.ip_not_permitted:
            raise answers.ip_not_permitted(account.login)
        if self.route.permission is not None:
            name, level = self.route.permission
            has = self.token.permissions.get(name)
            if has is None or (level == "write" and has == "read"):
                raise answers.not_accessible()

    def installation(self) -> Installation:
        """The App's installation whose id is in the path."""
        found = self.world.installations.get(self.number("installation_id"))
        if found is None or found.removed or found.app is not self.app:
            raise answers.not_found()
        return found

    def take(self, kind: FaultKind) -> bool:
        return (
            self.world.take_injected(
                frozenset({kind}),
                route=self.route.name,
                owner=owner_of(self),
                path=self.request.path,
            )
            is not None
        )

    def page(self, items: list[Any], default: int = 30) -> tuple[list[Any], dict[str, str]]:
        per_page = min(_positive(self.request.query.get("per_page"), default), _MAX_PER_PAGE)
        number = _positive(self.request.query.get("page"), 1)
        last = max(1, -(-len(items) // per_page))
        links: dict[str, int] = {}
        if number > 1:
            links |= {"prev": number - 1, "first": 1}
        if number < last:
            links |= {"next": number + 1, "last": last}
        start = (number - 1) * per_page
        return items[start : start + per_page], self.link(
            {rel: {"page": str(page)} for rel, page in links.items()}
        )

    def link(self, links: dict[str, dict[str, str]]) -> dict[str, str]:
        if not links:
            return {}
        # Of the address that was asked: runners may reach the fake at another.
        origin = urlsplit(self.world.api_url)
        host = self.request.headers.get("host", origin.netloc)
        base = f"{origin.scheme}://{host}{origin.path}{self.request.path}"
        return {
            "link": ", ".join(
                f'<{base}?{urlencode(dict(self.request.query) | query)}>; rel="{rel}"'
                for rel, query in links.items()
            )
        }


def _positive(text: str | None, default: int) -> int:
    return int(text) if text and text.isdigit() and int(text) > 0 else default


def owner_of(call: Call) -> str | None:
    """The account that the path or the token names."""
    for name in ("org", "owner", "username"):
        if name in call.params:
            return call.params[name]
    if call.params.get("installation_id", "").isdigit():
        found = call.world.installations.get(int(call.params["installation_id"]))
        return found.account.login if found else None
    token = call.world.tokens.get(call.request.headers.get("authorization", "").partition(" ")[2])
    return token.installation.account.login if token else None


class Routes:
    """Filled by the modules that hold the handlers."""

    def __init__(self) -> None:
        self.all: list[Route] = []

    def add(
        self,
        method: str,
        template: str,
        *,
        who: Who = "installation",
        permission: tuple[str, str] | None = None,
    ) -> Callable[[Callable[[Call], Reply]], Callable[[Call], Reply]]:
        def register(handler: Callable[[Call], Reply]) -> Callable[[Call], Reply]:
            pattern = re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", template) + "$")
            name = handler.__name__
            self.all.append(Route(name, method, pattern, template, who, permission, handler))
            return handler

        return register


class Api:
    def __init__(self, parts: Parts, routes: list[Route]) -> None:
        self._parts = parts
        self._routes = routes
        self._by_method: dict[str, list[Route]] = {}
        for route in routes:
            self._by_method.setdefault(route.method, []).append(route)

    def answer(self, request: Request) -> Reply:
        world = self._parts.world
        world.advance()
        call = self._route(request)
        reply = self._answer(call) if call else answers.not_found().reply()
        reply.latency = world.draw(world.faults.latency)
        reply.headers = {
            **(call.rate_headers if call else {}),
            "date": format_datetime(world.time, usegmt=True),
            "x-github-api-version-selected": _API_VERSION,
            "x-github-media-type": "github.v3; format=json",
            "x-github-request-id": world.ids.hex(24).upper(),
        } | reply.headers
        world.truth.answers.append(
            RecordedCall(
                world.time, request.method, request.path, reply.status, reply.body, reply.lost
            )
        )
        return reply

    def _route(self, request: Request) -> Call | None:
        for route in self._by_method.get(request.method, []):
            if found := route.pattern.match(request.path):
                return Call(self._parts, request, route, found.groupdict())
        return None

    def _answer(self, call: Call) -> Reply:
        world = self._parts.world
        if call.take(FaultKind.REQUEST_LOST) or world.chance(
            world.faults.request_lost, "request_lost"
        ):
            return Reply(0, lost=True)
        try:
            self._maybe_fail(call)
            call.authenticate()
            self._spend(call)
            reply = call.route.handler(call)
        except ErrorResponse as refusal:
            reply = refusal.reply()
        reply.lost = call.take(FaultKind.REPLY_LOST) or world.chance(
            world.faults.reply_lost, "reply_lost"
        )
        return reply

    def _spend(self, call: Call) -> None:
        route = call.route
        if route.name == "rate_limit":
            return
        limits, app = self._parts.limits, call.app
        mint = route.name.startswith("mint_")
        owner = app if route.who == "app" else call.token.installation
        bucket = limits.bucket(MINT if mint else CORE, owner)
        who = f"App ID {app.id}" if owner is app else f"installation ID {owner.id}"
        try:
            limits.spend(
                bucket, who=who, owner=owner, endpoint=route.template, method=call.request.method
            )
        finally:
            call.rate_headers = bucket.headers()

    def _maybe_fail(self, call: Call) -> None:
        world = self._parts.world
        owner = owner_of(call)
        counted_for = None if call.route.who == "app" else owner
        route, path = call.route.name, call.request.path
        kind = world.take_injected(
            ERRORS - LIMITS, route=route, owner=owner, path=path
        ) or world.take_injected(LIMITS, route=route, owner=counted_for, path=path)
        if kind is not None:
            raise self._refusal(kind, call, owner or "octo-org")
        if world.chance(world.faults.server_error, "server_error"):
            raise answers.server_error(world.dice.choice((500, 502, 503)))

    def _refusal(self, kind: FaultKind, call: Call, owner: str) -> ErrorResponse:
        world = self._parts.world
        reset = str(int(world.later(600).timestamp()))
        resource = MINT if call.route.name.startswith("mint_") else CORE
        exhausted = {
            "x-ratelimit-limit": str(world.quotas.core),
            "x-ratelimit-remaining": "0",
            "x-ratelimit-used": str(world.quotas.core),
            "x-ratelimit-reset": reset,
            "x-ratelimit-resource": resource,
        }
        refusals: dict[FaultKind, Callable[[], ErrorResponse]] = {
            FaultKind.SUSPENDED: answers.suspended,
            FaultKind.RUNNERS_DISABLED: answers.runners_disabled,
            FaultKind.ACTIONS_DISABLED: answers.actions_disabled,
            FaultKind.IP_NOT_PERMITTED: lambda: answers.ip_not_permitted(owner),
            FaultKind.NOT_ACCESSIBLE: answers.not_accessible,
            FaultKind.MAX_RUNNERS: lambda: answers.max_runners(1, world.quotas.runners_per_group),
            FaultKind.RATE_LIMIT: lambda: answers.rate_limited("installation ID 1", exhausted),
            FaultKind.SECONDARY_LIMIT: lambda: answers.secondary_limited(60),
            FaultKind.NOT_FOUND: answers.not_found,
            FaultKind.BAD_CREDENTIALS: answers.bad_credentials,
            FaultKind.NAME_EXISTS: answers.name_exists,
            FaultKind.INVALID: lambda: answers.invalid("name is invalid"),
            FaultKind.SERVER_ERROR: lambda: answers.server_error(500),
            FaultKind.BAD_GATEWAY: lambda: answers.server_error(502),
            FaultKind.UNAVAILABLE: lambda: answers.server_error(503),
        }
        return refusals[kind]()
