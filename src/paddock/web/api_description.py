"""The read API's part of `/openapi.json`, from the types that decode queries and encode answers."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

import msgspec

from paddock.domain.reading.details import PoolDetails
from paddock.domain.reading.filters import LONGEST_PAGE, PAGE, Number, Page, Text
from paddock.domain.reading.overview import Overview, Trends
from paddock.domain.reading.rows import AccountLine, PoolLine, RuleLine
from paddock.github.webhooks import JSON_TYPE
from paddock.web.answers import Problem
from paddock.web.api import LISTS, ROOT, STREAM_TYPE, JobAnswer, List, RunnerAnswer
from paddock.web.live import Pulse
from paddock.web.query_parameters import kinds_of
from paddock.web.shown_settings import SettingLine

_REF: Final = "#/components/schemas/{name}"

#: Possible for every request: bad request, not allowed, or the database does not answer.
_REFUSALS: Final = (400, 401, 403, 503)

_WHOLE: Final[dict[str, tuple[str, Any]]] = {
    "/overview": ("What there is at this moment", Overview),
    "/trends": ("How the last hour went", Trends),
    "/pools": ("Pools, with their sizes and why they have them", Page[PoolLine]),
    "/accounts": ("Accounts, with what they use and may use", Page[AccountLine]),
    "/recovery/rules": ("The rules of recovery, and what each did in the last day", Page[RuleLine]),
    "/settings": ("The settings in force, without secrets", Page[SettingLine]),
}
_ONE: Final[dict[str, tuple[str, str, Any, Any]]] = {
    "/jobs/{job}": ("A job with all that is known of it", "job", Number, JobAnswer),
    "/runners/{name}": (
        "A runner with all that is known of it, by its id or any name it had",
        "name",
        Text,
        RunnerAnswer,
    ),
    "/pools/{name}": ("A pool with its decisions and who waits for it", "name", Text, PoolDetails),
}


def described_types() -> tuple[Any, ...]:
    return (
        Pulse,
        *(kind for _, kind in _WHOLE.values()),
        *(kind for *_, kind in _ONE.values()),
        *(_page_of(each) for each in LISTS),
    )


def described() -> dict[str, Any]:
    return {
        **{f"{ROOT}{each.path}": {"get": _list(each)} for each in LISTS},
        **{f"{ROOT}{path}": {"get": _get(*what)} for path, what in _WHOLE.items()},
        **{f"{ROOT}{path}": {"get": _one(path, *what)} for path, what in _ONE.items()},
        f"{ROOT}/stream": {"get": _stream()},
    }


def _page_of(listed: List) -> Any:
    return Page[listed.line]  # type: ignore[name-defined]


def _list(listed: List) -> dict[str, Any]:
    return {
        **_get(f"{listed.summary}, newest first", _page_of(listed)),
        "parameters": [
            *_filters(listed.wanted),
            _query(
                "limit",
                {"type": "integer", "minimum": 1, "maximum": LONGEST_PAGE, "default": PAGE},
                "So many at most",
            ),
            _query(
                "cursor",
                {"type": "string", "pattern": f"^{listed.cursor}$"},
                "The `next` of the page before",
            ),
        ],
    }


def _filters(kind: type[Any]) -> list[dict[str, Any]]:
    return [
        _query(name, _plain(each), f"Only those of this {name}")
        for name, each in kinds_of(kind).items()
    ]


def _plain(kind: Any) -> dict[str, Any]:
    """The schema, with enumerations written out."""
    [schema], components = msgspec.json.schema_components([kind], ref_template=_REF)
    if "$ref" in schema:
        schema = components[schema["$ref"].rpartition("/")[2]]
    return {name: value for name, value in schema.items() if name != "title"}


def _query(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": description, "schema": schema}


def _one(path: str, summary: str, name: str, kind: Any, answer: Any) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": _plain(kind)},
    ]
    if path.startswith("/jobs"):
        parameters.append(
            _query("host", _plain(Text), "The GitHub host, where two know the number")
        )
    described = _get(summary, answer)
    described["responses"]["404"] = _response(404, Problem)
    return {**described, "parameters": parameters}


def _stream() -> dict[str, Any]:
    [pulse], _ = msgspec.json.schema_components([Pulse], ref_template=_REF)
    described = _get("Server-sent events: a `pulse` now, and whenever something moved", Pulse)
    described["responses"]["200"]["content"] = {
        STREAM_TYPE: {"schema": {"type": "string", "contentSchema": pulse}}
    }
    return described


def _get(summary: str, answer: Any) -> dict[str, Any]:
    return {
        "summary": summary,
        "security": [{"operator": []}],
        "responses": {
            "200": _response(200, answer),
            **{str(status): _response(status, Problem) for status in _REFUSALS},
        },
    }


def _response(status: int, kind: Any) -> dict[str, Any]:
    [schema], _ = msgspec.json.schema_components([kind], ref_template=_REF)
    return {
        "description": HTTPStatus(status).phrase,
        "content": {JSON_TYPE: {"schema": schema}},
    }
