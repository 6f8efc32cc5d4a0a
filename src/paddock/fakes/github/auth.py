"""Who calls: an App with its JWT, or an installation with its token."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import jwt

from paddock.fakes.github import answers
from paddock.fakes.github.answers import ErrorResponse
from paddock.fakes.github.records import App, Installation, Token
from paddock.fakes.github.world import World

#: "The time must be no more than 10 minutes into the future."
_MAX_JWT_SECONDS = 600
_KEPT_TOKENS = 20_000


@dataclass(slots=True)
class Auth:
    world: World
    # Checking a signature is most of what a call costs, and an App repeats its JWT for minutes.
    _verified: dict[tuple[str, tuple[str, ...]], Mapping[str, Any]] = field(default_factory=dict)

    def app(self, headers: Mapping[str, str]) -> App:
        encoded = _bearer(headers)
        try:
            claims = jwt.decode(encoded, options={"verify_signature": False})
        except jwt.InvalidTokenError:
            raise ErrorResponse(401, "A JSON web token could not be decoded") from None
        app = self._issuer(claims)
        self._check_signature(encoded, app)
        self._check_times(claims)
        return app

    def _issuer(self, claims: Mapping[str, Any]) -> App:
        issuer = str(claims.get("iss", ""))
        for app in self.world.apps.values():
            if issuer in (str(app.id), app.client_id):
                return app
        raise ErrorResponse(404, "Integration not found")

    def _check_signature(self, encoded: str, app: App) -> None:
        known = (encoded, app.public_keys)
        if known in self._verified:
            return
        # Times are checked against the model's clock, not the machine's.
        options = {"verify_exp": False, "verify_iat": False, "verify_nbf": False}
        for key in app.public_keys:
            try:
                claims = jwt.decode(encoded, key, algorithms=["RS256"], options=options)  # type: ignore[arg-type]
            except jwt.InvalidTokenError:
                continue
            if len(self._verified) > 1_000:
                self._verified.clear()
            self._verified[known] = claims
            return
        raise ErrorResponse(401, "A JSON web token could not be decoded")

    def _check_times(self, claims: Mapping[str, Any]) -> None:
        now = self.world.time.timestamp()
        issued, expires = claims.get("iat"), claims.get("exp")
        if not isinstance(issued, int | float) or issued > now:
            raise ErrorResponse(
                401,
                "'Issued at' claim ('iat') must be an Integer representing the time that the "
                "assertion was issued",
            )
        if not isinstance(expires, int | float) or expires <= now:
            raise ErrorResponse(
                401,
                "'Expiration time' claim ('exp') must be a numeric value representing the future "
                "time at which the assertion expires",
            )
        if expires > now + _MAX_JWT_SECONDS or expires > issued + _MAX_JWT_SECONDS + 60:
            raise ErrorResponse(401, "'Expiration time' claim ('exp') is too far in the future")

    def issue(
        self,
        installation: Installation,
        *,
        permissions: Mapping[str, str] | None = None,
        repositories: Iterable[int] | None = None,
    ) -> Token:
        world = self.world
        token = Token(
            value="ghs_" + world.ids.text(36),
            installation=installation,
            expires_at=world.time + timedelta(seconds=world.timing.token_for),
            permissions=dict(installation.permissions if permissions is None else permissions),
            repositories=None if repositories is None else frozenset(repositories),
        )
        world.tokens[token.value] = token
        while len(world.tokens) > _KEPT_TOKENS:
            del world.tokens[next(iter(world.tokens))]
        return token

    def token(self, headers: Mapping[str, str]) -> Token:
        token = self.world.tokens.get(_bearer(headers))
        if token is None or token.expires_at <= self.world.time or token.installation.removed:
            raise answers.bad_credentials()
        if token.installation.suspended_at is not None:
            if self.world.faults.suspended_is_404:
                raise answers.not_found()
            raise answers.suspended()
        return token


def _bearer(headers: Mapping[str, str]) -> str:
    kind, _, value = headers.get("authorization", "").partition(" ")
    if kind.lower() not in ("bearer", "token") or not value:
        raise ErrorResponse(401, "Requires authentication")
    return value.strip()
