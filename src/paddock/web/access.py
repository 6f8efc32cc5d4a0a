"""Who may read the dashboard and the API, and who may act.

`paddock up` is open to the machine it runs on, but not to foreign web pages in a browser on that
machine: such a page can point its own name at 127.0.0.1, so the requested host name is checked.
Elsewhere a visitor needs a token or an authenticating proxy. An action needs a setting, a token of the
page that sent it, and a browser that says that the page is ours.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from starlette.requests import HTTPConnection

from paddock.listener import hostname, is_loopback, parsed_address, requested_host
from paddock.ports import Clock, Ids
from paddock.ports.operators import SessionStore
from paddock.web.settings import DashboardSettings

SESSION_COOKIE: Final = "paddock_session"
#: A working day: a browser that is open overnight must log in again.
SESSION_LENGTH: Final = timedelta(hours=12)

#: Names are shown, and stored as the actor of events.
_LONGEST_NAME: Final = 100


@dataclass(frozen=True, slots=True)
class Visitor:
    """A person or program that may read. `name` is recorded as the actor; `csrf` proves that a form is
    from a page of this visitor's."""

    name: str
    csrf: str
    may_act: bool
    #: Whether the visitor has a session that can be ended.
    has_session: bool = False


class AccessDenied(Exception):
    """The request is not allowed; the sentence says why. `may_log_in`: the token would allow it."""

    def __init__(self, status: int, sentence: str, *, may_log_in: bool = False) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.may_log_in = may_log_in


@dataclass(frozen=True, slots=True)
class _Session:
    id: UUID
    ends_at: datetime


class Access:
    def __init__(
        self,
        settings: DashboardSettings,
        *,
        open_to_this_machine: bool,
        secret: bytes,
        store: SessionStore,
        clock: Clock,
        ids: Ids,
    ) -> None:
        """`secret` is the same for all replicas: a form of one replica may be sent to another."""
        self._settings = settings
        self.open_to_this_machine = open_to_this_machine
        self._token = settings.token.get_secret_value() if settings.token else None
        self._store = store
        self._clock = clock
        self._ids = ids
        # The key depends on the token: changing the token ends all sessions.
        self._key = hmac.digest(
            self._token.encode() if self._token else secret, b"paddock dashboard", "sha256"
        )

    @property
    def may_log_in(self) -> bool:
        return self._token is not None

    async def admit(self, request: HTTPConnection) -> Visitor:
        self.check_host(request)
        if (name := self._named_by_proxy(request)) is not None:
            return self._visitor(f"operator:{name}")
        if self._bears_token(request):
            return self._visitor("operator:api")
        session = self._session(request)
        if session and not await self._store.is_session_ended(session.id):
            return self._visitor("operator:dashboard", has_session=True)
        if self.open_to_this_machine and is_loopback(_peer(request)) and not _is_forwarded(request):
            return self._visitor("operator:dashboard")
        raise self._refusal()

    def _refusal(self) -> AccessDenied:
        if self._token is not None:
            return AccessDenied(
                401,
                "Log in, or send the token as `Authorization: Bearer TOKEN`.",
                may_log_in=True,
            )
        if self._settings.proxy_header is not None:
            return AccessDenied(403, "Only users that the authenticating proxy names have access.")
        return AccessDenied(
            403,
            "The dashboard admits no user yet: set PADDOCK_DASHBOARD_TOKEN, or name an authenticating "
            "proxy in PADDOCK_DASHBOARD_PROXY_HEADER and PADDOCK_DASHBOARD_PROXY_NETWORKS.",
        )

    def check_action(self, request: HTTPConnection, visitor: Visitor, token: str) -> None:
        """Raises `AccessDenied` unless actions are allowed and the request came from our own page."""
        if not visitor.may_act:
            raise AccessDenied(
                403, "The dashboard only shows: PADDOCK_DASHBOARD_ACTIONS is not set."
            )
        self.check_origin(request)
        if not hmac.compare_digest(token.encode(), visitor.csrf.encode()):
            raise AccessDenied(403, "That page is too old, or not ours: load it again.")

    @staticmethod
    def check_origin(request: HTTPConnection) -> None:
        site = request.headers.get("sec-fetch-site")
        origin = request.headers.get("origin")
        # A browser sends at least one of these with a form. `Origin` is compared by name and port
        # alone: a proxy may have ended TLS.
        own = _authority(requested_host(request.headers))
        same = site == "same-origin" if site else own is not None and _authority(origin) == own
        if not same:
            raise AccessDenied(403, "Another site sent this request, or its origin is unknown.")

    def begin_session(self, token: str) -> str | None:
        """The cookie for a visitor with the right token; otherwise `None`."""
        if self._token is None or not _same(token, self._token):
            return None
        ends = int((self._clock.now() + SESSION_LENGTH).timestamp())
        said = f"{ends}.{self._ids.uuid().hex}"
        return f"{said}.{self._sign('session', said)}"

    async def end_session(self, request: HTTPConnection) -> None:
        """End the session: copies of its cookie become invalid."""
        if session := self._session(request):
            await self._store.end_session(session.id, ends_at=session.ends_at)

    def _session(self, request: HTTPConnection) -> _Session | None:
        """The session by the cookie's content and signature: a forged cookie costs no query."""
        said, _, signature = request.cookies.get(SESSION_COOKIE, "").rpartition(".")
        if self._token is None or not _same(signature, self._sign("session", said)):
            return None
        ends, _, session = said.partition(".")
        ends_at = datetime.fromtimestamp(int(ends), UTC)
        return _Session(UUID(session), ends_at) if self._clock.now() < ends_at else None

    def _bears_token(self, request: HTTPConnection) -> bool:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        return self._token is not None and scheme.lower() == "bearer" and _same(token, self._token)

    def _named_by_proxy(self, request: HTTPConnection) -> str | None:
        header = self._settings.proxy_header
        if header is None:
            return None
        named = request.headers.getlist(header)
        peer = parsed_address(_peer(request))
        if (
            len(named) != 1
            or peer is None
            or not any(peer in net for net in self._settings.networks)
        ):
            return None
        name = "".join(each for each in named[0].strip() if each.isprintable())
        return name[:_LONGEST_NAME] or None

    def check_host(self, request: HTTPConnection) -> None:
        name = hostname(requested_host(request.headers))
        if self._settings.hosts:
            if name not in self._settings.hosts and not (
                self.open_to_this_machine and is_loopback(name)
            ):
                raise AccessDenied(403, "This is not the name paddock is reached by.")
        elif self.open_to_this_machine and not is_loopback(name):
            raise AccessDenied(
                403,
                "paddock is open to this machine alone, by the names localhost and 127.0.0.1; "
                "PADDOCK_DASHBOARD_HOSTS would add others.",
            )

    def _visitor(self, name: str, *, has_session: bool = False) -> Visitor:
        return Visitor(
            name=name,
            csrf=self._sign("form", name),
            may_act=self._settings.actions,
            has_session=has_session,
        )

    def _sign(self, purpose: str, what: str) -> str:
        return hmac.new(self._key, f"{purpose}\n{what}".encode(), hashlib.sha256).hexdigest()


def _same(one: str, other: str) -> bool:
    """Compare in constant time: the duration reveals nothing about the token."""
    return hmac.compare_digest(one.encode(), other.encode())


def _peer(request: HTTPConnection) -> str:
    return request.client.host if request.client else ""


def _is_forwarded(request: HTTPConnection) -> bool:
    """A proxy on this machine may forward requests from other machines."""
    return any(name == "forwarded" or name.startswith("x-forwarded-") for name in request.headers)


def _authority(address: str | None) -> str | None:
    """`localhost:8787` of `http://localhost:8787`: the part that `Host` also contains."""
    if not address:
        return None
    return address.rpartition("://")[2].partition("/")[0].lower()
