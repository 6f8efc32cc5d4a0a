"""One request to one GitHub host, sent once, answered or not.

This module only limits durations, sizes and connections. If no answer comes, it distinguishes a request
that was never sent from one that GitHub may have carried out.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import httpx2

import paddock
from paddock.domain.recovery.stale_claim import MINT_GIVEN_UP

#: For TCP and TLS. GitHub answers these in milliseconds; after this it counts as unreachable.
CONNECT_TIMEOUT_S: Final = 5.0
#: GitHub itself gives up on a request after 10 s and says so; after that no answer will come.
READ_TIMEOUT_S: Final = 15.0
WRITE_TIMEOUT_S: Final = 5.0
#: For a free connection of our own pool. All are busy only if GitHub as a whole is slow.
POOL_TIMEOUT_S: Final = 5.0
#: The other limits are per read. This one ends an answer that arrives byte by byte. It is defined with
#: a claim's timing, which follows from it.
TOTAL_TIMEOUT_S: Final = MINT_GIVEN_UP.total_seconds()
#: GitHub allows 100 requests at a time; two replicas share that.
MAX_CONNECTIONS: Final = 50
KEEPALIVE_S: Final = 20.0
#: A hundred jobs with all their steps are some 2 MiB.
MAX_BODY_BYTES: Final = 16 * 1024 * 1024

#: The oldest version that GitHub still supports, and the only one that Enterprise Servers know.
API_VERSION: Final = "2022-11-28"
#: The method stays the same: GitHub has not executed the request.
_REDIRECTS: Final = frozenset({301, 302, 307, 308})


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiResponse:
    """`headers` have lower-case names. `next` is the address of the next page, `moved` where a redirect
    sends the request; both are on the same host."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    next: str | None = None
    moved: str | None = None

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


class RequestUnanswered(Exception):
    """`sent` is false only if GitHub cannot have received the request."""

    def __init__(self, why: str, *, sent: bool) -> None:
        super().__init__(why)
        self.sent = sent


class BadAnswer(Exception):
    """An answer that cannot be used; the message is the reason."""


# If one of these is raised, no part of the request was sent.
_NOT_SENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
)


def tls_context() -> ssl.SSLContext:
    """The system's certificates, or those named by SSL_CERT_FILE or SSL_CERT_DIR."""
    try:
        return httpx2.create_ssl_context()
    except OSError as error:
        raise ValueError(
            "the certificates named by SSL_CERT_FILE or SSL_CERT_DIR cannot be read"
            f" ({error.strerror or error}); correct or unset the variable"
        ) from error


class Transport(Protocol):
    """How requests reach a host and answers come back."""

    async def send(
        self,
        method: str,
        path: str,
        *,
        token: str,
        params: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> ApiResponse:
        """`path` begins with a slash, or is the `next` of an earlier answer."""
        ...

    async def aclose(self) -> None: ...


class HostConnection:
    """A host's API. Proxies come from HTTPS_PROXY, HTTP_PROXY and NO_PROXY as usual."""

    def __init__(self, api_url: str, *, tls: ssl.SSLContext) -> None:
        self._api_url = httpx2.URL(api_url)
        self._http = httpx2.AsyncClient(
            headers={
                "Accept": "application/vnd.github+json",
                "User-Agent": f"paddock/{paddock.__version__}",
                "X-GitHub-Api-Version": API_VERSION,
            },
            verify=tls,
            timeout=httpx2.Timeout(
                connect=CONNECT_TIMEOUT_S,
                read=READ_TIMEOUT_S,
                write=WRITE_TIMEOUT_S,
                pool=POOL_TIMEOUT_S,
            ),
            limits=httpx2.Limits(
                max_connections=MAX_CONNECTIONS,
                max_keepalive_connections=MAX_CONNECTIONS,
                keepalive_expiry=KEEPALIVE_S,
            ),
            follow_redirects=False,
        )

    async def send(
        self,
        method: str,
        path: str,
        *,
        token: str,
        params: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> ApiResponse:
        """`path` begins with a slash, or is the `next` of an earlier answer."""
        url = f"{self._api_url}{path}" if path.startswith("/") else path
        try:
            async with (
                asyncio.timeout(TOTAL_TIMEOUT_S),
                self._http.stream(
                    method,
                    url,
                    params=dict(params) if params else None,
                    json=body,
                    headers={"Authorization": f"Bearer {token}"},
                ) as response,
            ):
                return ApiResponse(
                    status=response.status_code,
                    headers={name.lower(): value for name, value in response.headers.items()},
                    body=await _read(response),
                    next=self._next(response),
                    moved=self._moved(response),
                )
        except _NOT_SENT as error:
            raise RequestUnanswered(_why(error), sent=False) from error
        except httpx2.HTTPError as error:
            raise RequestUnanswered(_why(error), sent=True) from error
        except TimeoutError as error:
            why = f"no complete answer within {TOTAL_TIMEOUT_S:.0f} s"
            raise RequestUnanswered(why, sent=True) from error

    async def aclose(self) -> None:
        await self._http.aclose()

    def _next(self, response: httpx2.Response) -> str | None:
        """The next page, if it is on the same host: a token is sent to no other host."""
        link = response.links.get("next", {}).get("url")
        if link is None:
            return None
        url = response.url.join(link)
        if not self._is_of_this_api(url):
            raise BadAnswer("its next page is said to be on another host")
        return str(url)

    def _moved(self, response: httpx2.Response) -> str | None:
        """Where a renamed repository is now. A redirect to another host is not followed, because a
        token is sent to no other host."""
        location = response.headers.get("location")
        if response.status_code not in _REDIRECTS or location is None:
            return None
        url = response.url.join(location)
        return str(url) if self._is_of_this_api(url) else None

    def _is_of_this_api(self, url: httpx2.URL) -> bool:
        own = self._api_url
        same = (url.scheme, url.host, url.port) == (own.scheme, own.host, own.port)
        return same and url.path.startswith(own.path.rstrip("/") + "/")


def over_http() -> Callable[[str], Transport]:
    tls = tls_context()
    return lambda api_url: HostConnection(api_url, tls=tls)


async def _read(response: httpx2.Response) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise BadAnswer(f"it is larger than {MAX_BODY_BYTES // 1024 // 1024} MiB")
    return bytes(body)


def _why(error: httpx2.HTTPError) -> str:
    return str(error) or type(error).__name__
