"""Logs go to standard error: as lines for people, or as JSON for a collector. Neither contains control
characters of foreign texts: lines escape them here, JSON is ASCII."""

from __future__ import annotations

import logging
from io import StringIO
from typing import TextIO, cast

import structlog
from structlog.typing import EventDict, ExcInfo

from paddock.cli.output import errors
from paddock.domain.plain_text import escaped, escaped_lines
from paddock.settings import LogFormat, Settings


def configure_logs(settings: Settings, *, untold: frozenset[str] = frozenset()) -> None:
    """`untold`: events that are not logged because the screen shows them."""

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
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", errors.file)),
    )


def _rendering(wanted: LogFormat) -> list[structlog.typing.Processor]:
    """Traces omit the values of variables: some are secrets."""
    match wanted:
        case LogFormat.JSON:
            traces = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
            return [
                structlog.processors.ExceptionRenderer(traces),
                structlog.processors.JSONRenderer(),
            ]
        case LogFormat.CONSOLE:
            return [
                _escape_fields,
                structlog.dev.ConsoleRenderer(
                    colors=errors.is_terminal, exception_formatter=_write_trace
                ),
            ]


def _escape_fields(_logger: object, _method: str, event: EventDict) -> EventDict:
    return {name: value if name == "exc_info" else _escaped(value) for name, value in event.items()}


def _escaped(value: object) -> object:
    """`str` makes plain strings of members of an enumeration. Other values are shown by their `repr`,
    which may contain characters that have no shape."""
    if isinstance(value, str):
        return escaped(str(value))
    shown = repr(value)
    safe = escaped(shown)
    return value if safe == shown else safe


def _write_trace(file: TextIO, trace: ExcInfo) -> None:
    """Indented, so that no line of an error's message looks like an event."""
    text = StringIO()
    structlog.dev.plain_traceback(text, trace)
    file.writelines(f"\n    {line}" for line in escaped_lines(text.getvalue().strip("\n")))
