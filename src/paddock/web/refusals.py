"""Logs refusals without letting them fill a disk.

Every host on the internet can reach the webhook's address. The first refusal of each kind is logged at
once; those of the next minute become one line with their number.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from paddock.web.answers import WebhookRefusal

_log = structlog.get_logger()

#: Short enough to show when refusals ended, long enough to keep the log readable.
SUMMARY_EVERY: Final = 60.0


class RefusalLog:
    def __init__(self) -> None:
        self._more: dict[WebhookRefusal, int] = {}

    def note(self, refusal: WebhookRefusal, why: str) -> None:
        """`why` says what was wrong, and quotes neither payload nor secret."""
        if refusal in self._more:
            self._more[refusal] += 1
            return
        self._more[refusal] = 0
        _log.warning("webhook.refused", reason=refusal, why=why)
        asyncio.get_running_loop().call_later(SUMMARY_EVERY, self._summarise, refusal)

    def _summarise(self, refusal: WebhookRefusal) -> None:
        more = self._more.pop(refusal)
        if more:
            _log.warning(
                "webhook.refused_more", reason=refusal, more=more, seconds=int(SUMMARY_EVERY)
            )
