"""One request to GitHub with its credentials, budget, repetition and classification of failures.

Tokens are taken for each request, then the client sends it, and the error table classifies a failure.
A request is repeated only if the table says that this may help and its operation is safe to repeat; a
mint is sent once (I19). Credentials that GitHub no longer accepts are renewed once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from paddock.domain.github.budgets import Bucket, BudgetKey, BudgetSpent, costs
from paddock.domain.github.errors import (
    BackOff,
    Failure,
    GitHubError,
    Kind,
    Trouble,
    budget_spent,
    classify,
    message_of,
    not_configured,
    resets_in,
)
from paddock.domain.github.objects import AppKey, InstallationId, InstallationKey, Operation
from paddock.github import wire
from paddock.github.apps import Apps
from paddock.github.auth import AppSigner, InstallationTokens, Token
from paddock.github.budget import Budget, Remarks
from paddock.github.clock import HostClock
from paddock.github.connection import (
    ApiResponse,
    BadAnswer,
    RequestUnanswered,
    Transport,
    over_http,
)
from paddock.ports import Clock

#: Two more attempts: one right after a brief failure, one after e.g. a proxy has restarted.
REPEAT_AFTER_S: Final = (0.2, 1.0)
#: A runner group holds at most 10,000 runners, a hundred to a page. A longer list is an error.
MAX_PAGES: Final = 100

#: GitHub's names for the quotas a request may have counted against.
_RESOURCES: Final = {"core": Bucket.REST, "actions_runner_registration": Bucket.MINT}

CallerKey = AppKey | InstallationKey
#: Makes the transport for the address of a host's API.
Connect = Callable[[str], Transport]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """`what` describes the request in messages; `at` is the scope that it is about."""

    operation: Operation
    method: str
    path: str
    what: str
    at: BackOff
    params: Mapping[str, str | int] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """An answer and the token of its request, for a control read with the same token (I66)."""

    answer: ApiResponse
    token: Token


class Caller:
    def __init__(
        self, apps: Apps, *, clock: Clock, budget: Budget, connect: Connect | None = None
    ) -> None:
        self._apps = apps
        self._clock = clock
        self._budget = budget
        self._remarks = Remarks(budget, clock)
        self._times = {host: HostClock(host, clock) for host in apps.hosts}
        self._tokens = InstallationTokens(self._fetch_token, lambda who: self._times[who.host])
        self._signers = {
            app.key: AppSigner(app.key, app.private_key_file, self._times[app.host]) for app in apps
        }
        connect = connect or over_http()
        self._connections = {host: connect(url) for host, url in apps.hosts.items()}

    async def aclose(self) -> None:
        await self._tokens.aclose()
        await self._remarks.passed_on()
        for connection in self._connections.values():
            await connection.aclose()

    async def ask(
        self,
        who: CallerKey,
        request: ApiRequest,
        *,
        answers: Collection[int] = (),
        token: Token | None = None,
    ) -> Received:
        """Return an answer that is a success or has one of the statuses in `answers`, or raise
        `GitHubError`. If `token` is given, use only that one."""
        if _app(who) not in self._apps:
            raise GitHubError(not_configured(request.what, _app(who)))
        repeats = iter(REPEAT_AFTER_S)
        renewed = token is not None
        moved = False
        while True:
            used = token or await self._credential(who)
            outcome = await self._send(who, request, used)
            if isinstance(outcome, ApiResponse):
                if outcome.ok or outcome.status in answers:
                    return Received(answer=outcome, token=used)
                if outcome.moved and not moved and request.operation.repeatable:
                    # A repository was renamed. Its next webhook tells the new name, and may never come.
                    moved, request = True, _moved_to(request, outcome.moved)
                    continue
                if outcome.status == 401 and not renewed:
                    renewed = True
                    if isinstance(who, InstallationKey):
                        self._tokens.drop(who, used)
                    continue
            failure = await self._classified(who, request, outcome)
            wait = next(repeats, None)
            if not failure.retryable or wait is None:
                raise GitHubError(failure)
            await self._clock.sleep(wait)

    async def read(self, who: CallerKey, request: ApiRequest, kind: type[T]) -> T:
        received = await self.ask(who, request)
        return self.decode(request, received.answer, kind)

    async def pages(
        self, who: CallerKey, request: ApiRequest, kind: type[T], *, most: int
    ) -> tuple[list[T], bool]:
        """At most `most` pages, and whether the list is complete."""
        found: list[T] = []
        while True:
            answer = (await self.ask(who, request)).answer
            found.append(self.decode(request, answer, kind))
            if answer.next is None:
                return found, True
            if len(found) == most:
                return found, False
            request = replace(request, path=answer.next, params={})

    async def everything(self, who: CallerKey, request: ApiRequest, kind: type[T]) -> list[T]:
        """All pages, or a failure: an incomplete list proves nothing (I29)."""
        found, complete = await self.pages(who, request, kind, most=MAX_PAGES)
        if not complete:
            raise self.malformed(request, f"the list has more than {MAX_PAGES} pages")
        return found

    def decode(self, request: ApiRequest, answer: ApiResponse, kind: type[T]) -> T:
        try:
            return wire.decode(answer.body, kind)
        except BadAnswer as error:
            raise self.malformed(request, str(error), status=answer.status) from None

    def malformed(self, request: ApiRequest, why: str, *, status: int = 200) -> GitHubError:
        trouble = self._trouble(request, status=status, message=why, malformed=True)
        return GitHubError(classify(trouble, self._clock.now()))

    def not_found(self, request: ApiRequest) -> GitHubError:
        """For a 404 that a control read has proven."""
        trouble = self._trouble(request, status=404, proven=True)
        return GitHubError(classify(trouble, self._clock.now()))

    async def _credential(self, who: CallerKey) -> Token:
        if isinstance(who, InstallationKey):
            return await self._tokens.get(who)
        return self._signers[self._apps[who].key].jwt()

    async def _fetch_token(self, who: InstallationKey) -> Token:
        request = ApiRequest(
            operation=Operation.TOKEN,
            method="POST",
            path=f"/app/installations/{who.installation}/access_tokens",
            what=f"give a token for {who}",
            at=BackOff.ACCOUNT,
        )
        received = await self.ask(who.app_key, request, answers={404})
        if received.answer.status == 404:
            await self.ask(who.app_key, app_request(who.app_key), token=received.token)
            raise self.not_found(request)
        return self.decode(request, received.answer, wire.AccessToken).record()

    async def _send(
        self, who: CallerKey, request: ApiRequest, token: Token
    ) -> ApiResponse | Trouble:
        await self._pay(who, request)
        try:
            answer = await self._connections[who.host].send(
                request.method,
                request.path,
                token=token.value,
                params=request.params,
                body=request.body,
            )
        except RequestUnanswered as error:
            return self._trouble(request, status=None, message=str(error), sent=error.sent)
        except BadAnswer as error:
            return self._trouble(request, status=200, message=str(error), malformed=True)
        self._times[who.host].note(answer.headers)
        self._note(who, request, answer)
        return answer

    async def _classified(
        self, who: CallerKey, request: ApiRequest, outcome: ApiResponse | Trouble
    ) -> Failure:
        if isinstance(outcome, ApiResponse):
            outcome = self._trouble(
                request,
                status=outcome.status,
                message=message_of(outcome.body),
                headers=outcome.headers,
            )
        failure = classify(outcome, self._times[who.host].now())
        if failure.kind is Kind.SECONDARY_LIMIT:
            (points, _), _ = costs(request.operation, _app(who), _installation(who))
            await self._budget.observe(points, remaining=0, resets_in_s=failure.backoff_s)
        return failure

    async def _pay(self, who: CallerKey, request: ApiRequest) -> None:
        if request.operation is not Operation.MINT:
            await self._remarks.passed_on()
        for key, tokens in costs(request.operation, _app(who), _installation(who)):
            try:
                await self._budget.take(key, tokens)
            except BudgetSpent as error:
                # Token requests use the App's own budget. If one account must wait for its token, the
                # accounts that have a token need not back off.
                account = key.installation is not None or request.operation is Operation.TOKEN
                raise GitHubError(
                    budget_spent(
                        request.what,
                        backs_off=BackOff.ACCOUNT if account else BackOff.APP,
                        seconds=error.seconds,
                    )
                ) from None

    def _note(self, who: CallerKey, request: ApiRequest, answer: ApiResponse) -> None:
        remaining = answer.headers.get("x-ratelimit-remaining", "")
        if not remaining.isascii() or not remaining.isdecimal():
            return  # an Enterprise Server without rate limits sends no such header
        _, (key, _) = costs(request.operation, _app(who), _installation(who))
        if (resource := answer.headers.get("x-ratelimit-resource")) is not None:
            bucket = _RESOURCES.get(resource)
            if bucket is None:
                return
            key = BudgetKey(
                bucket=bucket,
                host=key.host,
                app=key.app,
                installation=_installation(who),
            )
        self._remarks.note(
            key,
            remaining=int(remaining),
            resets_in_s=resets_in(answer.headers, self._times[who.host].now()),
        )

    def _trouble(self, request: ApiRequest, **seen: Any) -> Trouble:
        return Trouble(operation=request.operation, at=request.at, where=request.what, **seen)


def app_request(app: AppKey) -> ApiRequest:
    return ApiRequest(
        operation=Operation.GET_APP,
        method="GET",
        path="/app",
        what=f"show {app}",
        at=BackOff.APP,
    )


def _moved_to(request: ApiRequest, address: str) -> ApiRequest:
    """A redirect may repeat the parameters."""
    return replace(request, path=address, params={} if "?" in address else request.params)


def _app(who: CallerKey) -> AppKey:
    return who.app_key if isinstance(who, InstallationKey) else who


def _installation(who: CallerKey) -> InstallationId | None:
    return who.installation if isinstance(who, InstallationKey) else None
