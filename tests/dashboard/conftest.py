"""A real browser over a real server, each started once."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from paddock.store.database import Database
from paddock.store.embedded import EmbeddedPostgres
from paddock.store.store import PgStore
from paddock.system import SystemClock, SystemIds
from paddock.web.settings import DashboardSettings
from tests.conftest import TEMPLATE, fresh_database
from tests.support.serving import served

#: On a machine with much other load.
PATIENCE = 30_000
expect.set_options(timeout=PATIENCE)

#: Switches off the browser's own network traffic.
ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    # The host of another site's page, on this machine.
    "--host-resolver-rules=MAP evil.example 127.0.0.1",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Its event loop runs in this thread and prevents any other there. So it ends with the last test
    that needs it."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        if os.environ.get("PADDOCK_REQUIRE_BROWSER"):
            pytest.fail("PADDOCK_REQUIRE_BROWSER is set, and there is no chromium on the PATH.")
        pytest.skip("there is no chromium on the PATH; install one to test the dashboard")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield browser
        browser.close()


@dataclass
class Site:
    """A server that a browser opens, and its store, for changes that the page does not make."""

    url: str
    store: PgStore
    portal: BlockingPortal

    def do(self, work: Callable[..., Any], *args: Any) -> Any:
        return self.portal.call(work, *args)


@asynccontextmanager
async def _serving(
    server: EmbeddedPostgres, template: str, dashboard: DashboardSettings, *, is_open: bool
) -> AsyncIterator[tuple[str, PgStore]]:
    async with asynccontextmanager(fresh_database)(server, template=template) as url:
        database = await Database.connect(url)
        try:
            store = PgStore(
                database, clock=SystemClock(), ids=SystemIds(), actor="operator:a colleague"
            )
            async with served(database, dashboard=dashboard, open_to_this_machine=is_open) as site:
                yield site.url, store
        finally:
            await database.close()


@contextmanager
def serving(
    server: EmbeddedPostgres,
    template: str,
    dashboard: DashboardSettings | None = None,
    *,
    is_open: bool = True,
) -> Iterator[Site]:
    """In its own thread: the browser's tests block."""
    settings = dashboard or DashboardSettings(actions=True)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(
            _serving(server, template, settings, is_open=is_open)
        ) as (url, store),
    ):
        yield Site(url, store, portal)


@pytest.fixture(scope="session")
def bad_day(postgres: EmbeddedPostgres, chaotic_template: str) -> Iterator[Site]:
    with serving(postgres, chaotic_template) as site:
        yield site


@pytest.fixture(scope="session")
def first_day(postgres: EmbeddedPostgres) -> Iterator[Site]:
    """Without any history."""
    with serving(postgres, TEMPLATE) as site:
        yield site


class Strict:
    """Records the page's console errors, and its requests to other hosts."""

    def __init__(self, context: BrowserContext) -> None:
        self.complaints: list[str] = []
        context.on("page", self._watch)

    def _watch(self, page: Page) -> None:
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(f"threw {error}"))
        page.on(
            "request",
            lambda request: (
                None
                if "//127.0.0.1:" in request.url
                else self.complaints.append(f"asked {request.url}")
            ),
        )

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")


@contextmanager
def look(browser: Browser, **how: Any) -> Iterator[Page]:
    """A page of a fresh browser, which must report no errors."""
    context = browser.new_context(**{"viewport": {"width": 1360, "height": 900}, **how})
    context.set_default_timeout(PATIENCE)
    strict = Strict(context)
    try:
        yield context.new_page()
        assert strict.complaints == []
    finally:
        context.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with look(browser) as page:
        yield page
