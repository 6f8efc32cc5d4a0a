"""Pictures to look at, of every page in both themes and on a phone: `make screenshots` writes them.

With PADDOCK_SCREENSHOTS set they go to that folder; otherwise there is nothing to do here.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal
from playwright.sync_api import Browser

from paddock.domain.runners.endings import Ending
from paddock.store.database import Database
from paddock.store.embedded import EmbeddedPostgres
from paddock.web.settings import DashboardSettings
from tests.conftest import stage
from tests.dashboard.conftest import Site, look, serving
from tests.dashboard.test_pages import EMPTY, walk
from tests.support import scenes

FOLDER = os.environ.get("PADDOCK_SCREENSHOTS")
pytestmark = pytest.mark.skipif(FOLDER is None, reason="`make screenshots` makes them")

VIEWS = (("light", 1360), ("dark", 1360), ("light", 390))
SCENES: dict[str, Callable[[Database], Awaitable[object]]] = {
    "empty": scenes.empty,
    "busy": partial(scenes.busy, minutes=62, rate=12),
    "chaotic": partial(scenes.chaotic, minutes=62, rate=12),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("scene", SCENES)
def test_pages_are_pictured(browser: Browser, postgres: EmbeddedPostgres, scene: str) -> None:
    assert FOLDER is not None
    folder = Path(FOLDER) / scene
    folder.mkdir(parents=True, exist_ok=True)
    with start_blocking_portal() as portal:
        template = portal.call(stage, postgres, f"pictured_{scene}", SCENES[scene])
    with serving(postgres, template, DashboardSettings()) as site:
        for theme, width in VIEWS:
            viewport = {"width": width, "height": 850}
            with look(browser, color_scheme=theme, viewport=viewport) as page:
                paths = walk(page, site) if scene == "chaotic" else list(EMPTY)
                for path in paths:
                    if path == "/nothing":
                        continue
                    page.goto(f"{site.url}{path}")
                    name = path.strip("/").replace("/", "-").replace("?", "-") or "overview"
                    page.screenshot(path=folder / f"{name}-{theme}-{width}.png", full_page=True)
        if scene == "chaotic":
            _for_readers(browser, site, folder.parent)


def _for_readers(browser: Browser, site: Site, folder: Path) -> None:
    """The three in docs/pictures."""
    viewport = {"width": 1280, "height": 840}
    with look(browser, color_scheme="light", viewport=viewport) as page:
        page.goto(site.url)
        page.screenshot(path=folder / "overview.png")
        page.goto(f"{site.url}/jobs?status=queued&account=initech&pool=linux-x64")
        page.locator("tbody a[href^='/jobs/']").first.click()
        page.screenshot(
            path=folder / "job.png", clip={"x": 0, "y": 0, "width": 1280, "height": 520}
        )
    with look(browser, color_scheme="dark", viewport=viewport) as page:
        page.goto(f"{site.url}/endings?ending={Ending.HOST_OOM}&pool=linux-x64")
        page.locator("tbody a[href^='/runners/']").first.click()
        page.screenshot(
            path=folder / "runner.png",
            full_page=True,
            clip={"x": 0, "y": 0, "width": 1280, "height": 1090},
        )
