"""The read API: all data as JSON, in pages.

Each list is one row of `LISTS`. Its filters are the fields of a type. Decoding, refusals and the
description in `/openapi.json` are all made from that type, so they always agree.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final
from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from paddock.domain.reading.details import JobDetails, RunnerDetails
from paddock.domain.reading.filters import (
    ActionFilter,
    BadCursor,
    DeliveryFilter,
    EventFilter,
    JobFilter,
    Page,
    Paging,
    RunnerFilter,
    VerdictFilter,
)
from paddock.domain.reading.rows import (
    ActionLine,
    DeliveryLine,
    EventLine,
    JobCheck,
    JobLine,
    MintLine,
    ReadModel,
    RunnerLine,
    VerdictLine,
    VitalsLine,
)
from paddock.github.webhooks import JSON_TYPE
from paddock.ports.reading import Reading
from paddock.stories import Story
from paddock.web.answers import RETRY_AFTER, Problem
from paddock.web.explanations import Explanations
from paddock.web.live import Live
from paddock.web.query_parameters import BadRequest, job_number, only, parse_query
from paddock.web.rules import Rules
from paddock.web.shown_settings import SettingLine

ROOT: Final = "/api/v1"
STREAM_TYPE: Final = "text/event-stream"

_NUMBER: Final = "[0-9]{1,18}"
_UUID: Final = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


class ReasonLine(ReadModel, frozen=True, kw_only=True):
    """One sentence each: the reason for the present state, and what must happen next."""

    why: str
    next: str


class JobAnswer(ReadModel, frozen=True, kw_only=True):
    """A job with all that is known of it, oldest first."""

    job: JobLine
    events: list[EventLine]
    actions: list[ActionLine]
    #: Those that executed it or were claimed for it.
    runners: list[RunnerLine]
    check: JobCheck | None
    told: ReasonLine

    @staticmethod
    def of(details: JobDetails, told: ReasonLine) -> JobAnswer:
        job = details.job
        return JobAnswer(
            job=job,
            events=[each for each in details.events if each.job == job.id],
            actions=[each for each in details.actions if each.job == job.id],
            runners=[each.runner for each in details.own_runners],
            check=details.check,
            told=told,
        )


class RunnerAnswer(ReadModel, frozen=True, kw_only=True):
    """A runner with all that is known of it, oldest first."""

    runner: RunnerLine
    #: When it reached each step of its life that it has reached.
    steps: dict[str, datetime]
    retire_reason: str | None
    names: list[MintLine]
    events: list[EventLine]
    actions: list[ActionLine]
    jobs: list[JobLine]
    verdict: VerdictLine | None
    log_tail: str | None
    vitals: list[VitalsLine]
    told: ReasonLine

    @staticmethod
    def of(details: RunnerDetails, told: ReasonLine) -> RunnerAnswer:
        return RunnerAnswer(
            runner=details.runner,
            steps=details.steps,
            retire_reason=details.retire_reason,
            names=details.names,
            events=details.events,
            actions=details.actions,
            jobs=[job for job in details.jobs if details.executed(job)],
            verdict=details.verdict,
            log_tail=details.log_tail,
            vitals=details.vitals,
            told=told,
        )


Read = Callable[[Reading, Explanations, Any, Paging], Awaitable[Page[Any]]]
Look = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class List:
    """A list that is read page by page. `cursor` is the pattern of its pages' cursors."""

    path: str
    summary: str
    read: Read
    wanted: type[Any]
    line: type[ReadModel]
    cursor: str = _NUMBER


LISTS: Final = (
    List(
        path="/jobs",
        summary="Jobs",
        read=lambda _, explanations, wanted, paging: explanations.list_jobs(wanted, paging),
        wanted=JobFilter,
        line=JobLine,
        cursor=rf"[0-9]{{1,4}}\.{_NUMBER}",
    ),
    List(
        path="/runners",
        summary="Runners",
        read=lambda reading, _, wanted, paging: reading.runners(wanted, paging),
        wanted=RunnerFilter,
        line=RunnerLine,
        cursor=_UUID,
    ),
    List(
        path="/endings",
        summary="How runners ended",
        read=lambda reading, _, wanted, paging: reading.verdicts(wanted, paging),
        wanted=VerdictFilter,
        line=VerdictLine,
        cursor=rf"[0-9]{{1,15}}\.{_UUID}",
    ),
    List(
        path="/events",
        summary="Every step of jobs and runners, and what operators changed",
        read=lambda reading, _, wanted, paging: reading.events(wanted, paging),
        wanted=EventFilter,
        line=EventLine,
    ),
    List(
        path="/recovery/actions",
        summary="What recovery did",
        read=lambda reading, _, wanted, paging: reading.actions(wanted, paging),
        wanted=ActionFilter,
        line=ActionLine,
    ),
    List(
        path="/deliveries",
        summary="Webhook deliveries",
        read=lambda reading, _, wanted, paging: reading.deliveries(wanted, paging),
        wanted=DeliveryFilter,
        line=DeliveryLine,
    ),
)


class NotFound(Exception):
    """The requested object does not exist; the argument is a sentence."""


class Api:
    def __init__(
        self,
        *,
        reading: Reading,
        live: Live,
        explanations: Explanations,
        rules: Rules,
        settings: Sequence[SettingLine],
    ) -> None:
        self._reading = reading
        self._live = live
        self._explanations = explanations
        self._rules = rules
        self._settings = settings

    def looks(self) -> dict[str, Look]:
        """The handlers, by path."""
        return {
            f"{ROOT}/overview": self._overview,
            f"{ROOT}/trends": self._trends,
            **{f"{ROOT}{each.path}": self._list(each) for each in LISTS},
            f"{ROOT}/jobs/{{job}}": self._job,
            f"{ROOT}/runners/{{name}}": self._runner,
            f"{ROOT}/pools": self._pools,
            f"{ROOT}/pools/{{name}}": self._pool,
            f"{ROOT}/accounts": self._accounts,
            f"{ROOT}/recovery/rules": self._all_rules,
            f"{ROOT}/settings": self._all_settings,
            f"{ROOT}/stream": self._stream,
        }

    def _list(self, listed: List) -> Look:
        async def look(request: Request) -> Response:
            wanted, paging = parse_query(request.query_params.multi_items(), listed.wanted)
            try:
                return json_response(
                    await listed.read(self._reading, self._explanations, wanted, paging)
                )
            except BadCursor:
                raise BadRequest(
                    "`cursor` is the `next` of the page before, and this one is not."
                ) from None

        return look

    async def _overview(self, request: Request) -> Response:
        only(request.query_params.multi_items())
        return json_response(await self._live.overview())

    async def _trends(self, request: Request) -> Response:
        only(request.query_params.multi_items())
        return json_response(await self._live.trends())

    async def _job(self, request: Request) -> Response:
        given = only(request.query_params.multi_items(), "host")
        number = job_number(request.path_params["job"])
        details = number is not None and await self._reading.job(number, host=_host(given))
        if not details:
            raise NotFound("There is no such job, or it was completed more than 30 days ago.")
        return json_response(JobAnswer.of(details, _told(self._explanations.tell(details))))

    async def _runner(self, request: Request) -> Response:
        only(request.query_params.multi_items())
        details = await self._reading.runner(runner_name(request.path_params["name"]))
        if details is None:
            raise NotFound("There is no such runner, or it ended more than 30 days ago.")
        return json_response(RunnerAnswer.of(details, _told(self._explanations.tell(details))))

    async def _pools(self, request: Request) -> Response:
        only(request.query_params.multi_items())
        return json_response(Page(items=await self._reading.pools()))

    async def _pool(self, request: Request) -> Response:
        only(request.query_params.multi_items())
        details = await self._reading.pool(bounded(request.path_params["name"]))
        if details is None:
            raise NotFound("There is no such pool.")
        return json_response(details)

    async def _accounts(self, request: Request) -> Response:
        only(request.query_params.multi_items())
        return json_response(Page(items=await self._reading.accounts()))

    async def _all_rules(self, request: Request) -> Response:
        only(request.query_params.multi_items())
        return json_response(Page(items=await self._rules.lines()))

    async def _all_settings(self, request: Request) -> Response:
        only(request.query_params.multi_items())
        return json_response(Page(items=list(self._settings)))

    async def _stream(self, request: Request) -> Response:
        only(request.query_params.multi_items())
        return StreamingResponse(
            await self._live.watch(),
            media_type=STREAM_TYPE,
            # Without this nginx would buffer events until it has a page full of them.
            headers={"cache-control": "no-store", "x-accel-buffering": "no"},
        )


def _told(story: Story) -> ReasonLine:
    return ReasonLine(why=story.why, next=story.next)


def _host(given: dict[str, str]) -> str | None:
    return bounded(given["host"]) if "host" in given else None


def bounded(text: str) -> str:
    """The text; "" if it cannot be a name: too long, or with a NUL, which PostgreSQL cannot store."""
    return "" if len(text) > 256 or "\x00" in text else text


def runner_name(text: str) -> str | UUID:
    try:
        return UUID(text)
    except ValueError:
        return bounded(text)


def json_response(content: msgspec.Struct) -> Response:
    return Response(
        msgspec.json.encode(content),
        media_type=JSON_TYPE,
        headers={"cache-control": "no-store"},
    )


def problem(status: int, sentence: str) -> Response:
    headers = {"cache-control": "no-store"}
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["retry-after"] = str(RETRY_AFTER)
    if status == HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"
    return Response(
        msgspec.json.encode(Problem(sentence)),
        status_code=status,
        media_type=JSON_TYPE,
        headers=headers,
    )
