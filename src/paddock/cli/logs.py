"""Logs go to standard error: as lines for people, or as JSON for a collector."""

from __future__ import annotations

import logging
import sys

import structlog
from structlog.typing import EventDict

from paddock.settings import LogFormat, Settings


def configure_logs(settings: Settings, *, untold: frozenset[str] = frozenset()) -> None:
    """`untold`: what the screen tells already."""

    def tell(_logger: object, _method: str, event: EventDict) -> EventDict:
        if event.get("event") in untold:
            raise structlog.DropEvent
        return event

    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    structlog.configure(
        processors=[
            tell,
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *_rendering(settings.log_format),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _rendering(wanted: LogFormat) -> list[structlog.typing.Processor]:
    """Traces without the values of variables, of which some are secrets."""
    match wanted:
        case LogFormat.JSON:
            traces = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
            return [
                structlog.processors.ExceptionRenderer(traces),
                structlog.processors.JSONRenderer(),
            ]
        case LogFormat.CONSOLE:
            return [
                structlog.dev.ConsoleRenderer(
                    colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
                )
            ]
