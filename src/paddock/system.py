"""The real `Clock` and `Ids`."""

from __future__ import annotations

import asyncio
import secrets
import time
from datetime import UTC, datetime
from uuid import UUID

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # no vowels, so that no words appear


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class SystemIds:
    def uuid(self) -> UUID:
        """A UUIDv7 (RFC 9562): 48 bits of milliseconds, then randomness."""
        value = (time.time_ns() // 1_000_000 & (1 << 48) - 1) << 80
        value |= secrets.randbits(80)
        value = value & ~(0xF << 76) | 0x7 << 76
        value = value & ~(0x3 << 62) | 0x2 << 62
        return UUID(int=value)

    def suffix(self, length: int) -> str:
        return "".join(secrets.choice(_SUFFIX_ALPHABET) for _ in range(length))

    def secret(self) -> str:
        return secrets.token_urlsafe(32)
