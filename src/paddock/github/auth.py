"""Authentication at GitHub: an App by a signed JWT, an installation by its access token.

A token lasts an hour and is cached until shortly before its end: a burst of a hundred mints must not
begin with a hundred requests for the same token. A failed request is never cached (I9): the next
caller asks again.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import jwt
import structlog
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from paddock.domain.github.errors import GitHubError, Kind, key_unreadable
from paddock.domain.github.objects import AppKey, InstallationKey
from paddock.ports import Clock

#: How far our clock may be ahead of GitHub's: GitHub refuses a JWT issued in its future.
JWT_BACKDATED: Final = timedelta(seconds=60)
#: GitHub refuses a JWT that is valid for more than 10 minutes by GitHub's clock.
JWT_LIFETIME: Final = timedelta(minutes=10)
#: A token is replaced this long before its end, so that no token expires while a request is under way,
#: or while GitHub is briefly unable to issue a new one.
REFRESH_EARLY: Final = timedelta(minutes=5)
#: After a failed refresh an old token is still used if it lasts at least this much longer.
USABLE_REST: Final = timedelta(minutes=1)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A credential with its end. `repr` omits its value, so no log contains it."""

    value: str = field(repr=False)
    expires_at: datetime


class AppSigner:
    """Signs JWTs with an App's private key.

    The key file is read for every JWT (a few each minute at most), so a new key is in use at once
    and without a restart. If the file cannot be used although a key is already known, an operator is
    probably replacing the file: the known key is used until the new one can be read.
    """

    def __init__(self, app: AppKey, private_key_file: Path, clock: Clock) -> None:
        self._app = app
        self._file = private_key_file
        self._clock = clock
        self._digest = b""
        self._key: RSAPrivateKey | None = None

    def jwt(self) -> Token:
        issued = self._clock.now() - JWT_BACKDATED
        expires = issued + JWT_LIFETIME
        claims = {
            "iss": str(self._app.app),
            "iat": int(issued.timestamp()),
            "exp": int(expires.timestamp()),
        }
        return Token(
            value=jwt.encode(claims, self._read_key(), algorithm="RS256"), expires_at=expires
        )

    def _read_key(self) -> RSAPrivateKey:
        try:
            pem = self._file.read_bytes()
            digest = hashlib.sha256(pem).digest()
            if self._key is None or digest != self._digest:
                self._key, self._digest = _parse(pem), digest
        except (OSError, ValueError) as error:
            why = f"the private key in {self._file} cannot be used: {_reason(error)}"
            if self._key is None:
                raise GitHubError(key_unreadable(f"sign as {self._app}", why)) from None
            _log.warning("github.key_kept", app=str(self._app), why=why)
        return self._key


@functools.lru_cache(maxsize=16)
def _parse(pem: bytes) -> RSAPrivateKey:
    """Parse the key once per file: validating its numbers takes a tenth of a second."""
    try:
        key = load_pem_private_key(pem, password=None)
    except TypeError:
        raise ValueError("it is protected by a password") from None
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError("it is not a private key in PEM format") from None
    if not isinstance(key, RSAPrivateKey):
        raise ValueError("it is not an RSA key")  # noqa: TRY004 (the file is wrong, not the caller)
    return key


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


class InstallationTokens:
    """The installations' tokens. Each is fetched by one request at a time, shared by all callers."""

    def __init__(
        self,
        fetch: Callable[[InstallationKey], Awaitable[Token]],
        clock_of: Callable[[InstallationKey], Clock],
    ) -> None:
        """`clock_of`: the host's clock, because the host dates the ends of its tokens by it."""
        self._fetch = fetch
        self._clock_of = clock_of
        self._tokens: dict[InstallationKey, Token] = {}
        self._flights: dict[InstallationKey, asyncio.Task[Token]] = {}

    async def get(self, who: InstallationKey) -> Token:
        known = self._tokens.get(who)
        if known and self._rest(who, known) > REFRESH_EARLY:
            return known
        try:
            # Shielded: a caller that is cancelled must not cancel the request for the others.
            return await asyncio.shield(self._flight(who))
        except GitHubError as error:
            passing = error.failure.kind in (Kind.SERVER_ERROR, Kind.NO_ANSWER)
            known = self._tokens.get(who)
            if passing and known and self._rest(who, known) > USABLE_REST:
                return known
            raise

    def drop(self, who: InstallationKey, token: Token) -> None:
        """Forget a token GitHub no longer accepts, unless it has been replaced meanwhile."""
        if self._tokens.get(who) == token:
            del self._tokens[who]

    async def aclose(self) -> None:
        for flight in self._flights.values():
            flight.cancel()
        await asyncio.gather(*self._flights.values(), return_exceptions=True)

    def _rest(self, who: InstallationKey, token: Token) -> timedelta:
        return token.expires_at - self._clock_of(who).now()

    def _flight(self, who: InstallationKey) -> asyncio.Task[Token]:
        if (flight := self._flights.get(who)) is None:
            flight = asyncio.create_task(self._fetch_and_keep(who))
            self._flights[who] = flight
            flight.add_done_callback(lambda done: self._landed(who, done))
        return flight

    async def _fetch_and_keep(self, who: InstallationKey) -> Token:
        token = await self._fetch(who)
        self._tokens[who] = token
        return token

    def _landed(self, who: InstallationKey, flight: asyncio.Task[Token]) -> None:
        del self._flights[who]
        if not flight.cancelled():
            flight.exception()  # marked as retrieved, even if all waiting callers were cancelled
