"""A page whose server is gone says so and looks so; it recovers when the server is back."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from playwright.sync_api import Browser, Page, expect

from paddock.store.database import Database
from paddock.store.embedded import EmbeddedPostgres
from tests.conftest import TEMPLATE, fresh_database
from tests.dashboard.conftest import PATIENCE
from tests.support.replicas import Replica, paddock_serve
from tests.support.scenes import Scene
from tools.ports import free_port

pytestmark = pytest.mark.slow

TOKEN = "a-token-for-a-test-of-the-dashboard"
#: A page looks for itself after 25 s without news.
LONG = 3 * PATIENCE
#: The directory for screenshots.
FOLDER = os.environ.get("PADDOCK_SCREENSHOTS")


@dataclass
class Paddock:
    """A `paddock serve` that can be killed and started again at the same address."""

    postgres: EmbeddedPostgres
    portal: BlockingPortal
    database: str
    directory: Path
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def serve(self) -> AbstractContextManager[Replica]:
        """Killed without a shutdown at the end of the block."""
        return self.portal.wrap_async_context_manager(
            paddock_serve(
                self.directory,
                self.database,
                listen=f"127.0.0.1:{self.port}",
                environment={"PADDOCK_DASHBOARD_TOKEN": TOKEN},
            )
        )

    def tell(self, *statements: str) -> None:
        """To the database server."""
        self.portal.call(_tell, self.postgres.url_of("postgres"), statements)


async def _tell(url: str, statements: tuple[str, ...]) -> None:
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


@asynccontextmanager
async def _calm(postgres: EmbeddedPostgres) -> AsyncIterator[str]:
    """Pools and accounts, without any trouble."""
    async for url in fresh_database(postgres, template=TEMPLATE):
        database = await Database.connect(url)
        scene = Scene(database)
        await scene.begin()
        await scene.populate()
        await database.close()
        yield url


@pytest.fixture
def paddock(postgres: EmbeddedPostgres, directory: Path) -> Iterator[Paddock]:
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(_calm(postgres)) as url,
    ):
        yield Paddock(postgres, portal, url, directory, free_port())


@contextmanager
def looking(browser: Browser, *, width: int = 1280) -> Iterator[Page]:
    """Without the fixture that fails on console errors: a browser logs an error for a missing
    server."""
    context = browser.new_context(
        viewport={"width": width, "height": 840},
        extra_http_headers={"authorization": f"Bearer {TOKEN}"},
    )
    try:
        yield context.new_page()
    finally:
        context.close()


def picture(page: Page, name: str) -> None:
    if FOLDER is not None:
        page.screenshot(path=Path(FOLDER) / f"{name}.png")


def is_grey(page: Page) -> bool:
    found = page.locator("#attention").evaluate("each => getComputedStyle(each).filter")
    return "grayscale" in str(found)


@pytest.mark.parametrize("width", [1280, 390])
def test_a_server_that_is_gone_is_noticed_and_so_is_its_return(
    browser: Browser, paddock: Paddock, width: int
) -> None:
    with looking(browser, width=width) as page:
        with paddock.serve():
            page.goto(paddock.url)
            expect(page.locator("#attention")).to_contain_text("Nothing needs you")
            expect(page.locator("[data-live-says]")).to_have_text("live")
            banner = page.get_by_role("alert")
            expect(banner).to_have_count(0)
            assert not is_grey(page)
        expect(banner).to_contain_text("No connection to the server since")
        expect(banner).to_be_in_viewport()
        assert is_grey(page)
        expect(page.locator("[data-live-says]")).to_have_text("not connected")
        picture(page, f"lost-{width}")
        page.mouse.wheel(0, 10_000)
        expect(banner).to_be_in_viewport()
        with paddock.serve():
            expect(banner).to_have_count(0, timeout=LONG)
            assert not is_grey(page)
            expect(page.locator("[data-live-says]")).to_have_text("live")
            picture(page, f"found-{width}")


def quiet(page: Page) -> None:
    """It has been renewed after its first pulse, and sends no request until the next pulse."""
    expect(page.locator("main[data-renewed]")).to_have_count(1)


def test_a_server_that_hangs_is_noticed(browser: Browser, paddock: Paddock) -> None:
    with paddock.serve() as replica, looking(browser) as page:
        page.goto(paddock.url)
        quiet(page)
        replica.process.send_signal(signal.SIGSTOP)
        banner = page.get_by_role("alert")
        expect(banner).to_contain_text("No connection to the server since", timeout=LONG)
        replica.process.send_signal(signal.SIGCONT)
        expect(banner).to_have_count(0, timeout=LONG)


def test_a_database_that_is_gone_is_noticed_though_the_server_answers(
    browser: Browser, paddock: Paddock
) -> None:
    name = urlsplit(paddock.database).path.strip("/")
    with paddock.serve(), looking(browser) as page:
        page.goto(paddock.url)
        quiet(page)
        banner = page.get_by_role("alert")
        paddock.tell(
            f"ALTER DATABASE {name} ALLOW_CONNECTIONS false",
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'",
        )
        expect(banner).to_contain_text("No connection to the server since", timeout=LONG)
        assert is_grey(page)
        paddock.tell(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        expect(banner).to_have_count(0, timeout=LONG)
        assert not is_grey(page)


@contextmanager
def only_errors(port: int) -> Iterator[None]:
    """A proxy's answer while it has no server."""

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(502)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", port), Proxy) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def test_a_page_comes_back_though_a_proxy_answered_for_the_server_that_was_gone(
    browser: Browser, paddock: Paddock
) -> None:
    """A browser never reopens a stream that was answered with an error."""
    with looking(browser) as page:
        with paddock.serve():
            page.goto(paddock.url)
            expect(page.locator("[data-live-says]")).to_have_text("live")
        banner = page.get_by_role("alert")
        with only_errors(paddock.port):
            expect(banner).to_contain_text("No connection to the server since")
        opened: list[str] = []
        page.on("response", lambda answer: opened.append(answer.url) if answer.ok else None)
        with paddock.serve():
            expect(banner).to_have_count(0, timeout=LONG)
            for _ in range(LONG // 100):
                if f"{paddock.url}/api/v1/stream" in opened:
                    break
                page.wait_for_timeout(100)
            else:
                pytest.fail(f"its stream stays closed; it asked for {set(opened)}")
