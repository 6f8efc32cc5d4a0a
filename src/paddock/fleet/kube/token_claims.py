"""A token's own claims, checked before the API server is asked about the token.

The bearer chooses the claims. They can show that a review would reject the token, and never that it
would accept it. Without this check every forged token would cost a request to the API server.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from paddock.domain.pods.pod import Audience

#: The audiences named in the Pod's template and in the review; a token for any other is not for us.
AUDIENCES: Final[Mapping[str, Audience]] = {
    "paddock.dev/dispatch": Audience.DISPATCH,
    "paddock.dev/vitals": Audience.VITALS,
}
#: By how much our clock may be ahead of the API server's, which itself allows a minute. A kubelet
#: replaces tokens long before their end, so no Pod depends on it.
CLOCK_LEEWAY: Final = timedelta(minutes=5)
_PARTS: Final = 3


class Rejection(StrEnum):
    """Why a token is not a Pod's. The API server was asked only for `REVIEW`."""

    MALFORMED = "malformed"
    AUDIENCE = "audience"
    ACCOUNT = "account"
    EXPIRED = "expired"
    SIGNATURE = "signature"
    REVIEW = "review"
    REPEATED = "repeated"  # a review rejected it a moment ago


@dataclass(frozen=True, slots=True)
class TokenClaims:
    key_id: str
    expires_at: datetime


class _Header(msgspec.Struct, frozen=True):
    kid: str = ""


class _Payload(msgspec.Struct, frozen=True):
    aud: str | list[str]
    sub: str
    exp: float


def screened(token: str, *, service_account: str, now: datetime) -> TokenClaims | Rejection:
    """The token's claims, or why a review would reject it."""
    try:
        header, payload, _ = map(_decoded, _parts(token))
        key_id = msgspec.json.decode(header, type=_Header).kid
        said = msgspec.json.decode(payload, type=_Payload)
        expires_at = datetime.fromtimestamp(said.exp, UTC)
    except (ValueError, OverflowError, OSError, RecursionError):
        return Rejection.MALFORMED
    if only_audience([said.aud] if isinstance(said.aud, str) else said.aud) is None:
        return Rejection.AUDIENCE
    if said.sub != service_account:
        return Rejection.ACCOUNT
    if expires_at + CLOCK_LEEWAY <= now:
        return Rejection.EXPIRED
    return TokenClaims(key_id, expires_at)


def only_audience(names: Sequence[str]) -> Audience | None:
    """Exactly one audience: job code can read the vitals token, and with a token for both it could ask
    for work (I21)."""
    ours = {AUDIENCES[name] for name in names if name in AUDIENCES}
    return ours.pop() if len(ours) == 1 else None


def _parts(token: str) -> Sequence[str]:
    parts = token.split(".", _PARTS)
    if len(parts) != _PARTS:
        raise ValueError("a JWT has three parts")
    return parts


def _decoded(part: str) -> bytes:
    padding = "=" * (-len(part) % 4)
    return base64.b64decode(part + padding, altchars=b"-_", validate=True)
