"""Renders templates to pages.

A job's author may have chosen any text on a page: a job's name, a label, a runner's log. So all text is
escaped, and the browser is told to load and run only our own files.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from importlib import resources
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import Response

import paddock
from paddock.domain.pauses import describe_pause
from paddock.domain.plain_text import escaped
from paddock.domain.runners.endings import Ending
from paddock.domain.states import JobState, RunnerState
from paddock.web.dashboard import formatting

_FILES: Final = resources.files("paddock.web.dashboard").joinpath("static")
_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
#: A year, the longest that caches keep a file; another version has another address.
_FOR_EVER: Final = "public, max-age=31536000, immutable"

HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}

NAVIGATION: Final = (
    ("/", "Overview"),
    ("/jobs", "Jobs"),
    ("/runners", "Runners"),
    ("/pools", "Pools"),
    ("/accounts", "Accounts"),
    ("/endings", "Endings"),
    ("/recovery", "Recovery"),
    ("/deliveries", "Deliveries"),
    ("/settings", "Settings"),
)


class Static:
    """Our own files, under addresses that change with their content."""

    def __init__(self) -> None:
        self._contents = {file.name: file.read_bytes() for file in _FILES.iterdir()}

    def url(self, name: str) -> str:
        digest = hashlib.sha256(self._contents[name]).hexdigest()[:12]
        return f"/static/{name}?{digest}"

    def response(self, name: str) -> Response | None:
        content = self._contents.get(name)
        if content is None:
            return None
        kind = _TYPES["." + name.rpartition(".")[2]]
        return Response(content, media_type=kind, headers={"cache-control": _FOR_EVER})


class Renderer:
    def __init__(self, static: Static) -> None:
        self._templates = Environment(
            loader=PackageLoader("paddock.web.dashboard"),
            autoescape=True,
            undefined=StrictUndefined,
            # Texts may be chosen by others: invisible and reordering characters are made visible.
            finalize=lambda value: escaped(value) if type(value) is str else value,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.globals |= {
            "static": static.url,
            "navigation": NAVIGATION,
            "version": paddock.__version__,
            "length": formatting.length,
            "brief": formatting.brief,
            "age": formatting.age,
            "clock": formatting.clock,
            "memory": formatting.memory,
            "cpus": formatting.cpus,
            "count": formatting.count,
            "describe_pause": describe_pause,
            "RunnerState": RunnerState,
            "JobState": JobState,
            "Ending": Ending,
        }
        self._templates.filters |= {
            "plain": formatting.plain,
            "ticked": formatting.ticked,
            "shown": formatting.shown,
        }

    def page(self, template: str, *, now: datetime, status: int = 200, **shown: Any) -> Response:
        text = self._templates.get_template(template).render(now=now, **shown)
        return Response(
            text, status_code=status, media_type="text/html", headers={"cache-control": "no-store"}
        )
