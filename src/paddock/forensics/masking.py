"""Secrets in a runner's last words.

A log tail is kept for weeks and shown to people who may read a job's end, not its credentials. GitHub
masks what it knows in its own logs; what a dying runner prints on its console nobody has masked. What
is masked in vain costs a word of evidence, what is not costs a credential: the patterns are broad.
"""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "***"

_SECRETS: Final = re.compile(
    "|".join(
        (
            # GitHub's tokens: personal, OAuth, user, server (installations') and refresh.
            r"\bgh[pousr]_[A-Za-z0-9_]{8,}",
            r"\bgithub_pat_[A-Za-z0-9_]{8,}",
            # Registration and removal tokens of runners: 29 characters of base 32.
            r"\bA[A-Z2-7]{28}\b",
            # A JIT is base64 of JSON, and so are the parts of a JWT: both begin with `{"`.
            r"\beyJ[A-Za-z0-9_+/=.-]{24,}",
            # Anything long enough to be a key, a certificate or a part of a JIT that was cut.
            r"(?<![A-Za-z0-9+/=_-])[A-Za-z0-9+/_-]{120,}={0,2}",
        )
    )
)
#: A word that says what follows.
_ANNOUNCED: Final = re.compile(
    r"(?i)\b(bearer|basic|remoteauth|(?:x-access-)?token|password|secret|jitconfig)\b"
    r"((?:['\"]?\s*[:=]\s*['\"]?|\s+)(?:(?:bearer|basic|remoteauth|token)\s+)?)"
    r"([^\s'\",;]{16,})"
)
_IN_A_URL: Final = re.compile(r"(://[^/\s:@]*:)[^/\s@]+(@)")


def mask(text: str) -> str:
    text = _IN_A_URL.sub(rf"\g<1>{MASK}\g<2>", text)
    text = _ANNOUNCED.sub(rf"\g<1>\g<2>{MASK}", text)
    return _SECRETS.sub(MASK, text)
