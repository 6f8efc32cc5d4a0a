"""The pages: reads the data of each and puts it into words. `templates` defines how it looks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from paddock.domain.github.deliveries import DeliveryState
from paddock.domain.reading.filters import (
    ActionFilter,
    BadCursor,
    DeliveryFilter,
    JobFilter,
    Paging,
    RunnerFilter,
    VerdictFilter,
)
from paddock.domain.recovery.evidence import Subject
from paddock.domain.runners.endings import Ending
from paddock.domain.states import RunnerState
from paddock.ports import Clock
from paddock.ports.reading import Reading
from paddock.web.access import Visitor
from paddock.web.actions import SAID
from paddock.web.api import NotFound, bounded, runner_name
from paddock.web.dashboard import pictures
from paddock.web.dashboard.attention import attention
from paddock.web.dashboard.charts import bar, shares
from paddock.web.dashboard.rendering import Renderer
from paddock.web.explanations import Explanations
from paddock.web.live import Live
from paddock.web.query_parameters import BadRequest, job_number, parse_query
from paddock.web.rules import Rules
from paddock.web.shown_settings import SettingLine

T = TypeVar("T")

#: The states of a living runner, in the order of its life.
LIVING: Final = tuple(state for state in RunnerState if state is not RunnerState.GONE)

#: The periods of the endings page, and the time per column.
_RANGES: Final = {
    "1h": (timedelta(hours=1), timedelta(minutes=2)),
    "24h": (timedelta(hours=24), timedelta(minutes=30)),
    "7d": (timedelta(days=7), timedelta(hours=4)),
}

PageHandler = Callable[[Request, Visitor], Awaitable[Response]]


class Pages:
    def __init__(
        self,
        *,
        renderer: Renderer,
        reading: Reading,
        live: Live,
        explanations: Explanations,
        rules: Rules,
        settings: Sequence[SettingLine],
        clock: Clock,
    ) -> None:
        self._renderer = renderer
        self._reading = reading
        self._live = live
        self._explanations = explanations
        self._rules = rules
        self._settings = settings
        self._clock = clock

    def pages(self) -> dict[str, PageHandler]:
        return {
            "/": self._overview,
            "/jobs": self._jobs,
            "/jobs/{job}": self._job,
            "/runners": self._runners,
            "/runners/{name}": self._runner,
            "/pools": self._pools,
            "/pools/{name}": self._pool,
            "/accounts": self._accounts,
            "/endings": self._endings,
            "/recovery": self._recovery,
            "/deliveries": self._deliveries,
            "/settings": self._shown_settings,
        }

    def _page(self, template: str, request: Request, visitor: Visitor, **shown: Any) -> Response:
        return self._renderer.page(
            template,
            now=self._clock.now(),
            visitor=visitor,
            path=request.url.path,
            theme=theme_of(request),
            query=dict(request.query_params),
            said_text=SAID.get(request.query_params.get("said", "")),
            **shown,
        )

    async def _overview(self, request: Request, visitor: Visitor) -> Response:
        seen, trends = await self._live.overview(), await self._live.trends()
        fleet: dict[str, list[Any]] = {}
        for cell in seen.cells:
            fleet.setdefault(cell.pool, []).append(cell)
        pools = {pool.name: pool for pool in await self._reading.pools()}
        done = sum(seen.completed.values())
        return self._page(
            "overview.html",
            request,
            visitor,
            seen=seen,
            notes=attention(seen),
            fleet=fleet,
            pools=pools,
            living=LIVING,
            completed=done,
            succeeded=seen.completed.get("success", 0),
            charts={
                "queue": pictures.queue_chart(trends),
                "jit": pictures.jit_chart(trends),
                "completed": pictures.completed_chart(trends),
            },
        )

    async def _jobs(self, request: Request, visitor: Visitor) -> Response:
        wanted, paging = _asked(request, JobFilter)
        page = await _read(self._explanations.list_jobs, wanted, paging)
        seen = await self._live.overview()
        return self._page(
            "jobs.html",
            request,
            visitor,
            page=page,
            wanted=wanted,
            seen=seen,
            more=_more(request, page.next),
            pools=await self._reading.pools(),
            accounts=await self._reading.accounts(),
        )

    async def _job(self, request: Request, visitor: Visitor) -> Response:
        number = job_number(request.path_params["job"])
        host = request.query_params.get("host")
        details = number is not None and await self._reading.job(
            number, host=bounded(host) if host else None
        )
        if not details:
            raise NotFound(
                "There is no such job: no webhook has reported it yet, it was not for us, or it was "
                "completed more than 30 days ago. `paddock why NUMBER` looks through the webhooks too."
            )
        return self._page(
            "job.html",
            request,
            visitor,
            details=details,
            job=details.job,
            told=self._explanations.tell(details),
        )

    async def _runners(self, request: Request, visitor: Visitor) -> Response:
        wanted, paging = _asked(request, RunnerFilter)
        if wanted.live is None and wanted.state is None:
            wanted = replace(wanted, live=True)
        page = await _read(self._reading.runners, wanted, paging)
        return self._page(
            "runners.html",
            request,
            visitor,
            page=page,
            wanted=wanted,
            seen=await self._live.overview(),
            living=LIVING,
            more=_more(request, page.next),
            pools=await self._reading.pools(),
        )

    async def _runner(self, request: Request, visitor: Visitor) -> Response:
        details = await self._reading.runner(runner_name(request.path_params["name"]))
        if details is None:
            raise NotFound(
                "There is no such runner. Its name is wrong, or it ended more than 30 days ago."
            )
        lived = pictures.spells(details, now=self._clock.now())
        return self._page(
            "runner.html",
            request,
            visitor,
            details=details,
            runner=details.runner,
            told=self._explanations.tell(details),
            life=pictures.life_line(lived),
            spells=[(state, until - at) for state, at, until in lived],
            vitals=pictures.vitals_charts(details.vitals),
        )

    async def _pools(self, request: Request, visitor: Visitor) -> Response:
        return self._page(
            "pools.html",
            request,
            visitor,
            pools=await self._reading.pools(),
            living=LIVING,
            shares=shares,
        )

    async def _pool(self, request: Request, visitor: Visitor) -> Response:
        details = await self._reading.pool(bounded(request.path_params["name"]))
        if details is None:
            raise NotFound("There is no such pool.")
        return self._page(
            "pool.html",
            request,
            visitor,
            details=details,
            pool=details.pool,
            living=LIVING,
            shares=shares,
            chart_=pictures.pool_chart(details.decisions, now=self._clock.now()),
        )

    async def _accounts(self, request: Request, visitor: Visitor) -> Response:
        accounts = await self._reading.accounts()
        heaviest = max((each.used.runners / each.weight for each in accounts), default=0.0)
        return self._page(
            "accounts.html",
            request,
            visitor,
            accounts=accounts,
            heaviest=heaviest,
            total=sum(each.used.runners for each in accounts),
            weights=sum(each.weight for each in accounts),
            bar=bar,
        )

    async def _endings(self, request: Request, visitor: Visitor) -> Response:
        chosen = request.query_params.get("range", "24h")
        if chosen not in _RANGES:
            raise BadRequest(f"`range` is one of {', '.join(_RANGES)}.")
        wanted, paging = _asked(request, VerdictFilter, "range")
        back, step = _RANGES[chosen]
        until = self._clock.now()
        since = until - back
        counts = await self._reading.endings(wanted, since=since, step=step)
        page = await _read(self._reading.verdicts, wanted, paging)
        by_class: Counter[Ending] = Counter()
        for each in counts:
            by_class[each.ending] += each.runners
        return self._page(
            "endings.html",
            request,
            visitor,
            chart_=pictures.endings_chart(counts, since=since, until=until, step=step),
            by_class=by_class,
            total=sum(by_class.values()),
            chosen=chosen,
            ranges=list(_RANGES),
            with_range=lambda name: _changed(request, range=name),
            with_ending=lambda name: _changed(request, ending=name),
            page=page,
            wanted=wanted,
            more=_more(request, page.next),
            pools=await self._reading.pools(),
            bar=bar,
        )

    async def _recovery(self, request: Request, visitor: Visitor) -> Response:
        wanted, paging = _asked(request, ActionFilter)
        if "noteworthy" not in request.query_params:
            wanted = replace(wanted, noteworthy=True)
        page = await _read(self._reading.actions, wanted, paging)
        rules = await self._rules.lines()
        groups = {subject: [rule for rule in rules if rule.about == subject] for subject in Subject}
        return self._page(
            "recovery.html",
            request,
            visitor,
            groups=groups,
            page=page,
            wanted=wanted,
            more=_more(request, page.next),
        )

    async def _deliveries(self, request: Request, visitor: Visitor) -> Response:
        wanted, paging = _asked(request, DeliveryFilter)
        page = await _read(self._reading.deliveries, wanted, paging)
        return self._page(
            "deliveries.html",
            request,
            visitor,
            page=page,
            wanted=wanted,
            states=list(DeliveryState),
            seen=await self._live.overview(),
            more=_more(request, page.next),
        )

    async def _shown_settings(self, request: Request, visitor: Visitor) -> Response:
        groups: dict[str, list[SettingLine]] = {}
        for setting in self._settings:
            table = setting.name.partition(".")[0] if "." in setting.name else ""
            groups.setdefault(table, []).append(setting)
        return self._page("settings.html", request, visitor, groups=groups)


def theme_of(request: Request) -> str:
    chosen = request.cookies.get("paddock_theme", "")
    return chosen if chosen in ("light", "dark") else ""


def _asked(request: Request, kind: type[T], *beside: str) -> tuple[T, Paging]:
    """The filter and the page. Forms send every field, so an empty one counts as missing. `beside`: the
    page's own parameters, and the name of a finished action."""
    given = [
        (name, value)
        for name, value in request.query_params.multi_items()
        if value and name not in (*beside, "said")
    ]
    return parse_query(given, kind)


async def _read(read: Callable[[T, Paging], Awaitable[Any]], wanted: T, paging: Paging) -> Any:
    try:
        return await read(wanted, paging)
    except BadCursor:
        raise BadRequest("The address of this page is broken; go back to its first.") from None


def _more(request: Request, cursor: str | None) -> str | None:
    """The address of the next page."""
    return None if cursor is None else _changed(request, cursor=cursor)


def _changed(request: Request, **changes: str) -> str:
    kept = {name: value for name, value in request.query_params.items() if name != "cursor"}
    return f"{request.url.path}?{urlencode({**kept, **changes})}"
