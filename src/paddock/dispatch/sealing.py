"""Encryption of stored JITs: until it is acknowledged, a JIT is a credential in the database.

Authenticated encryption under a named key, bound to the runner and the delivery: a JIT copied into
another row cannot be unsealed. The first key seals, all keys unseal. To change the key, put a new one
first, and remove the old one when no JIT is sealed with it any more.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from paddock.domain.ids import RunnerId
from paddock.domain.runners.handover import SealedJit

KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12


class CannotUnseal(Exception):
    """The key is missing, or the stored data was not sealed for this runner and delivery."""


class Sealer:
    def __init__(self, keys: Iterable[bytes]) -> None:
        self._keys = {_name(key): AESGCM(key) for key in keys}
        if not self._keys:
            raise ValueError("sealing needs a key")
        self._current = next(iter(self._keys))

    def seal(self, jit: str, *, runner: RunnerId, delivery: UUID) -> SealedJit:
        # A random nonce: two are the same only after one key has sealed some billions of JITs.
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._keys[self._current].encrypt(nonce, jit.encode(), _bound(runner, delivery))
        return SealedJit(sealed=nonce + sealed, key=self._current)

    def unseal(self, jit: SealedJit, *, runner: RunnerId, delivery: UUID) -> str:
        key = self._keys.get(jit.key)
        if key is None:
            raise CannotUnseal(f"it was sealed with key {jit.key}, which is not among the keys")
        nonce, sealed = jit.sealed[:_NONCE_BYTES], jit.sealed[_NONCE_BYTES:]
        try:
            return key.decrypt(nonce, sealed, _bound(runner, delivery)).decode()
        except (InvalidTag, ValueError):
            raise CannotUnseal("what is stored is not what was sealed for this runner") from None


def read_key(text: str) -> bytes:
    """A key from the settings: 32 bytes in base64."""
    try:
        key = base64.b64decode(text, validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise ValueError(
            f"a sealing key is {KEY_BYTES} bytes in base64: make one with "
            f"`head -c {KEY_BYTES} /dev/urandom | base64`"
        )
    return key


def _name(key: bytes) -> str:
    return hashlib.sha256(b"paddock sealing key" + key).hexdigest()[:12]


def _bound(runner: RunnerId, delivery: UUID) -> bytes:
    return runner.bytes + delivery.bytes
