"""The keys that sign the cluster's tokens, to detect forged tokens without asking the API server.

Only a review accepts a token: a signature does not show that a Pod was deleted. So keys only reject,
and only after a review has confirmed a token that they verify: a key set that does not belong to the
Pods' tokens must not lock the Pods out. Without keys, reviews decide, within their limits.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import Any, Final

import jwt
import msgspec
import structlog

from paddock.fleet.kube.api import KubeApi, KubeCall, NonResource
from paddock.ports import Clock, FleetUnavailable

_log = structlog.get_logger()

_KEYS: Final = KubeCall("get", NonResource("/openid/v1/jwks"))
#: A token that names an unknown key causes another read of the keys, but no more often than this: a
#: forged token can name any key. A Pod whose key is new asks several times within its first minute.
READ_EVERY: Final = 10.0

_signatures: Final = jwt.PyJWS()


class Signature(Enum):
    VERIFIED = auto()
    FORGED = auto()
    UNDECIDED = auto()


class KeySet(msgspec.Struct, frozen=True):
    keys: list[dict[str, Any]] = []


class TokenKeys:
    def __init__(self, api: KubeApi, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._reading = asyncio.Lock()
        #: Keys by id. Kept when a later read fails.
        self._keys: dict[str, jwt.PyJWK] = {}
        self._read_at: float | None = None
        #: Why the last read failed.
        self._failure: str | None = None
        self._confirmed = False

    def check(self, token: str, key_id: str) -> Signature:
        """Check against the keys of the last read. `UNDECIDED`: `refresh` or a review may decide."""
        if (key := self._keys.get(key_id)) is not None:
            if _signed(token, key):
                return Signature.VERIFIED
        elif self._is_due() or self._failure is not None:
            return Signature.UNDECIDED
        return Signature.FORGED if self._confirmed else Signature.UNDECIDED

    def confirm(self) -> None:
        """Record that a review accepted a token that these keys verify."""
        self._confirmed = True

    async def refresh(self) -> None:
        """Read the keys if that is due. Concurrent callers wait for the same answer."""
        async with self._reading:
            if not self._is_due():
                return
            try:
                await self._read()
            finally:
                self._read_at = self._clock.monotonic()

    def _is_due(self) -> bool:
        return self._read_at is None or self._clock.monotonic() - self._read_at >= READ_EVERY

    async def _read(self) -> None:
        try:
            keys = _usable(await self._api.get(_KEYS, KeySet))
        except FleetUnavailable as error:
            self._failed(str(error))
            return
        if not keys:
            self._failed("Kubernetes' key set has no key that can be used.")
            return
        if self._failure is not None or keys.keys() != self._keys.keys():
            _log.info("token_keys.read", key_ids=sorted(keys))
        self._keys, self._failure = keys, None

    def _failed(self, failure: str) -> None:
        if self._failure is None:
            _log.warning("token_keys.unreadable", error=failure)
        self._failure = failure


def _usable(found: KeySet) -> dict[str, jwt.PyJWK]:
    keys = {}
    for each in found.keys:
        try:
            key = jwt.PyJWK(each)
        except jwt.PyJWTError:
            continue  # of a kind unknown here: tokens that name it name an unknown key
        if isinstance(key.key_id, str):
            keys[key.key_id] = key
    return keys


def _signed(token: str, key: jwt.PyJWK) -> bool:
    try:
        _signatures.decode(token, key)
    except (jwt.InvalidTokenError, RecursionError):  # PyJWT before 2.14 raises the second
        return False
    return True
