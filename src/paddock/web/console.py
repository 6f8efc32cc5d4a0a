"""The dashboard and the read API together. Every request is authorised, then answered or refused in a
sentence. Every response has the headers that keep a browser from trusting other sites."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl, quote, urlsplit

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from paddock.ports import Clock
from paddock.ports.errors import StoreError
from paddock.ports.operators import OperatorStore
from paddock.store.reading.reader import TooSlow
from paddock.web.access import SESSION_COOKIE, SESSION_LENGTH, Access, AccessDenied, Visitor
from paddock.web.actions import CannotAct, act
from paddock.web.api import ROOT, Api, Look, NotFound, problem
from paddock.web.dashboard.pages import PageHandler, Pages, theme_of
from paddock.web.dashboard.rendering import HEADERS, Renderer, Static
from paddock.web.live import Live, TooManyViewers
from paddock.web.log_limit import LogLimit
from paddock.web.query_parameters import BadRequest

_log = structlog.get_logger()

#: Pages and answers in preparation at the same time; each may need one of few connections.
MOST_AT_ONCE: Final = 32
#: The dashboard's forms have some hundred bytes.
_MOST_FORM: Final = 8 * 1024

_NOT_NOW: Final = "paddock cannot read its database now; the log says why. Try again in a moment."


class Console:
    def __init__(
        self,
        *,
        access: Access,
        api: Api,
        pages: Pages,
        renderer: Renderer,
        static: Static,
        live: Live,
        store: OperatorStore,
        clock: Clock,
    ) -> None:
        self.access = access
        self._api = api
        self._pages = pages
        self._renderer = renderer
        self._static = static
        self._store = store
        self._clock = clock
        self.live = live
        self._under_way = 0
        self._failed_logins = LogLimit(clock)

    @property
    def routes(self) -> list[Route]:
        return [
            *(Route(path, self._answered(look)) for path, look in self._api.looks().items()),
            *(Route(path, self._shown(page)) for path, page in self._pages.pages().items()),
            Route("/login", self._login, methods=["GET", "POST"]),
            Route("/logout", self._logout, methods=["POST"]),
            Route("/actions/{action}", self._act, methods=["POST"]),
            Route("/static/{name}", self._file),
        ]

    async def not_found(self, request: Request, _: Exception) -> Response:
        """The answer for an unknown path, for every visitor."""
        if request.url.path.startswith(f"{ROOT}/"):
            return await self._answered(_no_answer)(request)
        return await self._shown(_no_page)(request)

    def _answered(self, look: Look) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                await self.access.admit(request)
                response = await self._limited(lambda: look(request))
            except AccessDenied as refused:
                response = problem(refused.status, refused.sentence)
            except Exception as error:
                response = problem(*_told(error))
            return _secured(response)

        return endpoint

    def _shown(self, page: PageHandler) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            visitor = None
            try:
                visitor = await self.access.admit(request)
                response = await self._limited(lambda: page(request, visitor))
            except AccessDenied as refused:
                response = self._turned_away(request, refused)
            except Exception as error:
                response = self._failed(request, visitor, *_told(error))
            return _secured(response)

        return endpoint

    async def _limited(self, answer: Callable[[], Awaitable[Response]]) -> Response:
        if self._under_way >= MOST_AT_ONCE:
            raise TooManyViewers
        self._under_way += 1
        try:
            return await answer()
        finally:
            self._under_way -= 1

    def _turned_away(self, request: Request, refused: AccessDenied) -> Response:
        if refused.may_log_in:
            back = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return RedirectResponse(f"/login?next={quote(back)}", status_code=303)
        return self._failed(request, None, refused.status, refused.sentence)

    def _failed(
        self, request: Request, visitor: Visitor | None, status: int, sentence: str
    ) -> Response:
        return self._renderer.page(
            "error.html",
            now=self._clock.now(),
            status=status,
            visitor=visitor,
            path=request.url.path,
            theme=theme_of(request),
            phrase=HTTPStatus(status).phrase,
            sentence=sentence,
        )

    async def _login(self, request: Request) -> Response:
        if not self.access.may_log_in:
            return _secured(RedirectResponse("/", status_code=303))
        back = _own_path(request.query_params.get("next"))
        wrong = False
        if request.method == "POST":
            try:
                self.access.check_host(request)
                self.access.check_origin(request)
                form = await _form(request)
            except AccessDenied as refused:
                return _secured(self._failed(request, None, refused.status, refused.sentence))
            session = self.access.begin_session(form.get("token", "").strip())
            if session is not None:
                _log.info("login.succeeded", address=request.client and request.client.host)
                return _secured(_entered(request, back, session))
            if attempts := self._failed_logins.count():
                address = request.client and request.client.host
                _log.warning("login.failed", address=address, attempts=attempts)
            wrong = True
        return _secured(
            self._renderer.page(
                "login.html",
                now=self._clock.now(),
                status=401 if wrong else 200,
                visitor=None,
                path="/login",
                theme=theme_of(request),
                wrong=wrong,
                back=back,
            )
        )

    async def _logout(self, request: Request) -> Response:
        try:
            self.access.check_origin(request)
            await self.access.end_session(request)
        except AccessDenied as refused:
            return _secured(self._failed(request, None, refused.status, refused.sentence))
        except StoreError as error:
            return _secured(self._failed(request, None, *_told(error)))
        response = RedirectResponse("/", status_code=303)
        response.delete_cookie(SESSION_COOKIE, path="/")
        return _secured(response)

    async def _act(self, request: Request) -> Response:
        visitor = None
        try:
            visitor = await self.access.admit(request)
            form = await _form(request)
            self.access.check_action(request, visitor, form.get("csrf", ""))
            action = request.path_params["action"]
            done = await act(
                self._store,
                action,
                name=form.get("name", "")[:256].replace("\x00", ""),
                why=form.get("why", "").replace("\x00", ""),
                actor=visitor.name,
            )
        except AccessDenied as refused:
            return _secured(self._turned_away(request, refused))
        except CannotAct as error:
            return _secured(self._failed(request, visitor, 409, str(error)))
        except Exception as error:
            return _secured(self._failed(request, visitor, *_told(error)))
        said = action if done else "nothing"
        back = _own_path(form.get("back"))
        return _secured(RedirectResponse(f"{back.partition('?')[0]}?said={said}", status_code=303))

    async def _file(self, request: Request) -> Response:
        found = self._static.response(request.path_params["name"])
        return _secured(found or problem(404, "There is no such file."))


async def _no_page(_: Request, __: Visitor) -> Response:
    raise NotFound("There is no such page.")


async def _no_answer(_: Request) -> Response:
    raise NotFound("There is nothing here; /openapi.json says what there is.")


def _told(error: Exception) -> tuple[int, str]:
    match error:
        case BadRequest():
            return 400, str(error)
        case NotFound():
            return 404, str(error)
        case TooManyViewers():
            return 503, "Too many concurrent requests; retry shortly."
        case TooSlow():
            return 503, error.message
        case StoreError():
            _log.warning("console.failed", error=error.message)
            return 503, _NOT_NOW
        case _:
            _log.error("console.failed", exc_info=error)
            return 500, "paddock failed to make this; its log says how."


def _secured(response: Response) -> Response:
    response.headers.update(HEADERS)
    return response


def _entered(request: Request, back: str, session: str) -> Response:
    response = RedirectResponse(back, status_code=303)
    response.set_cookie(
        SESSION_COOKIE,
        session,
        max_age=int(SESSION_LENGTH.total_seconds()),
        path="/",
        httponly=True,
        samesite="strict",
        # A proxy that ends TLS says so in this header. A client that forges it only makes its own
        # cookie stricter.
        secure=request.headers.get("x-forwarded-proto", request.url.scheme) == "https",
    )
    return response


def _own_path(text: str | None) -> str:
    """A path of ours to return to, never another site's."""
    if not text or not text.startswith("/") or text.startswith(("//", "/\\")):
        return "/"
    parts = urlsplit(text)
    if parts.scheme or parts.netloc or not text.isprintable():
        return "/"
    return text


async def _form(request: Request) -> dict[str, str]:
    read = b""
    try:
        async for chunk in request.stream():
            read += chunk
            if len(read) > _MOST_FORM:
                raise AccessDenied(413, "That is no form of ours.")
    except ClientDisconnect:
        raise AccessDenied(400, "The form did not arrive.") from None
    return dict(parse_qsl(read.decode("utf-8", "replace"), keep_blank_values=True))
