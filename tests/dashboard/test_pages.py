"""The pages in a real browser: they render, update themselves, link to one another, and are
accessible."""

from __future__ import annotations

import re
from functools import partial

import pytest
from playwright.sync_api import Browser, Page, expect
from pydantic import SecretStr

from paddock.domain.plain_text import escaped
from paddock.domain.runners.endings import Ending
from paddock.store.embedded import EmbeddedPostgres
from paddock.web.dashboard.formatting import length
from paddock.web.settings import DashboardSettings
from tests.dashboard.accessibility import problems, unseen_focus
from tests.dashboard.conftest import Site, look, serving
from tests.support.scenes import HOSTILE

pytestmark = pytest.mark.slow

PAGES = (
    *("/", "/jobs", "/runners", "/runners?live=false", "/pools", "/pools/linux-x64", "/accounts"),
    *("/endings", "/recovery", "/deliveries", "/settings", "/nothing"),
)
EMPTY = {
    "/": "paddock pools apply FILE",
    "/jobs": "runs-on",
    "/runners": "paddock pools apply FILE",
    "/pools": "paddock pools apply FILE",
    "/accounts": "Install the GitHub App",
    "/endings": "No runner has ended yet",
    "/recovery": "Nothing had to be recovered yet",
    "/deliveries": "/webhooks/github",
}


def walk(page: Page, site: Site) -> list[str]:
    """Every kind of page there is, also those of one job and of one runner."""
    page.goto(f"{site.url}/jobs?refused=true")
    refused = page.locator("tbody a[href^='/jobs/']").first.get_attribute("href")
    page.goto(f"{site.url}/endings?ending={Ending.HOST_OOM}")
    dead = page.locator("tbody a[href^='/runners/']").first.get_attribute("href")
    page.goto(f"{site.url}/endings?pool=macos-14")
    unpressed = page.locator("tbody a[href^='/runners/']").first.get_attribute("href")
    assert refused
    assert dead
    assert unpressed
    return [*PAGES, refused, dead, unpressed]


@pytest.mark.parametrize(("theme", "width"), [("light", 1360), ("dark", 320)])
def test_every_page_is_accessible(browser: Browser, bad_day: Site, theme: str, width: int) -> None:
    found = {}
    viewport = {"width": width, "height": 900}
    with look(browser, color_scheme=theme, viewport=viewport) as page:
        for path in walk(page, bad_day):
            if path == "/nothing":
                continue  # the browser notes a 404 as an error
            page.goto(f"{bad_day.url}{path}")
            if there := problems(page):
                found[path] = there
    assert found == {}


def test_the_focus_is_seen_wherever_it_goes(page: Page, bad_day: Site) -> None:
    for path in ("/", "/pools/linux-x64"):
        page.goto(f"{bad_day.url}{path}")
        assert unseen_focus(page, steps=20) == []


def test_the_first_stop_skips_to_the_content(page: Page, bad_day: Site) -> None:
    page.goto(bad_day.url)
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()


def test_arrows_walk_over_the_fleet(page: Page, bad_day: Site) -> None:
    page.goto(bad_day.url)
    cells = page.locator("[data-cells]").first.locator("a")
    cells.first.focus()
    page.keyboard.press("ArrowRight")
    expect(cells.nth(1)).to_be_focused()
    page.keyboard.press("End")
    expect(cells.last).to_be_focused()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/runners/"))


def test_where_there_is_nothing_it_says_what_to_do(page: Page, first_day: Site) -> None:
    for path, what in EMPTY.items():
        page.goto(f"{first_day.url}{path}")
        expect(page.locator("main")).to_contain_text(what)
        assert problems(page) == [], path


def test_pages_renew_themselves_when_something_moves(page: Page, bad_day: Site) -> None:
    page.goto(f"{bad_day.url}/pools/linux-x64")
    expect(page.locator("[data-live-says]")).to_have_text("live")
    pool = bad_day.do(bad_day.store.find_pool, "linux-x64")
    bad_day.do(partial(bad_day.store.pause_pool, pool, why="a test"))
    try:
        expect(page.locator("#title")).to_contain_text("paused")
        expect(page.locator("#events")).to_contain_text("operator:a colleague")
    finally:
        bad_day.do(partial(bad_day.store.resume_pool, pool, why="a test"))
    expect(page.locator("#title")).not_to_contain_text("paused")


def test_renewal_can_be_stopped_and_leaves_the_focus_alone(page: Page, bad_day: Site) -> None:
    page.goto(bad_day.url)
    cell = page.locator("[data-cells] a").nth(2)
    cell.focus()
    chosen = cell.get_attribute("id")
    renewed = page.locator("main[data-renewed]")
    bad_day.do(partial(bad_day.store.pause_dispatch, why="a test"))
    try:
        expect(renewed).to_have_count(1)
        expect(page.locator("#attention")).to_contain_text("All dispatch is paused")
        expect(page.locator(f"[id='{chosen}']")).to_be_focused()
        page.locator("[data-live-switch]").click()
        expect(page.locator("[data-live-says]")).to_have_text("paused")
    finally:
        bad_day.do(partial(bad_day.store.resume_dispatch, why="a test"))
    page.reload()
    expect(page.locator("[data-live-says]")).to_have_text("paused")


def test_filters_and_links_lead_on(page: Page, bad_day: Site) -> None:
    page.goto(f"{bad_day.url}/jobs")
    page.get_by_role("link", name=re.compile("^completed")).click()
    expect(page).to_have_url(re.compile("status=completed"))
    page.get_by_label("Pool").select_option("linux-x64")
    page.get_by_label("Conclusion").select_option("success")
    page.get_by_role("button", name="Filter").click()
    expect(page).to_have_url(re.compile("status=completed.*pool=linux-x64.*conclusion=success"))
    rows = page.locator("tbody tr")
    expect(rows.first).to_contain_text("success")
    assert all("linux-x64" in text for text in rows.all_inner_texts())
    rows.last.locator("td").nth(1).locator("a").click()  # long enough ago to be over
    expect(page.locator(".story")).to_contain_text("completed")
    page.locator("#runners tbody a").first.click()
    expect(page.locator("#verdict")).to_contain_text("It ended by itself after its job")


def test_older_pages_follow(page: Page, bad_day: Site) -> None:
    page.goto(f"{bad_day.url}/jobs?limit=5")
    first = page.locator("tbody").inner_text()
    page.get_by_role("link", name="Older").click()
    expect(page).to_have_url(re.compile("cursor="))
    assert page.locator("tbody").inner_text() != first
    page.get_by_role("link", name="First page").click()


def test_an_abnormal_end_is_shown_with_its_evidence(page: Page, bad_day: Site) -> None:
    page.goto(f"{bad_day.url}/endings?ending={Ending.HOST_OOM}")
    page.locator("tbody a[href^='/runners/']").first.click()
    expect(page.locator("#verdict")).to_contain_text("OOMKilled")
    expect(page.locator("#vitals svg[role=img]")).to_have_count(3)
    expect(page.locator("#log pre")).to_contain_text(escaped(HOSTILE))
    expect(page.locator("#life .legend li")).not_to_have_count(0)


def test_a_strangers_code_is_marked(page: Page, bad_day: Site) -> None:
    page.goto(f"{bad_day.url}/jobs?refused=true")
    expect(page.locator("tbody tr")).to_contain_text("not trusted")
    page.locator("tbody a[href^='/jobs/']").first.click()
    expect(page.locator("#facts")).to_contain_text("its code comes from the fork mallory/api")


def test_a_runner_that_measured_nothing_says_so(page: Page, bad_day: Site) -> None:
    page.goto(f"{bad_day.url}/runners?state=idle")
    page.locator("tbody a[href^='/runners/']").first.click()
    expect(page.locator("#vitals")).to_contain_text("They are measured while a job runs.")
    expect(page.locator(".story")).to_contain_text("asks for work")


def test_a_theme_is_kept(browser: Browser, bad_day: Site) -> None:
    with look(browser, color_scheme="dark") as page:
        page.goto(bad_day.url)
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.locator("[data-theme-switch]").click()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark
        page.reload()
        assert page.locator("html").get_attribute("data-theme") == "light"
        page.locator("[data-theme-switch]").click()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark


def test_what_may_be_done_is_asked_once_more_and_said(page: Page, bad_day: Site) -> None:
    page.goto(f"{bad_day.url}/pools/linux-arm64")
    page.get_by_role("textbox", name="Why").fill("new image")
    page.once("dialog", lambda dialog: dialog.dismiss())
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#title")).not_to_contain_text("paused")
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".said")).to_contain_text("The pool is paused")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".said")).to_contain_text("gives out runners again")


def test_the_browser_counts_ages_as_the_server_does(page: Page, bad_day: Site) -> None:
    page.goto(f"{bad_day.url}/pools")
    for seconds in (0, 0.04, 9.94, 9.96, 11, 59.4, 59.6, 61, 3599.7, 3601, 86_399.9, 90_061):
        assert page.evaluate(f"lengthOf({seconds})") == length(seconds)


def test_pages_work_without_scripts(browser: Browser, bad_day: Site) -> None:
    with look(browser, java_script_enabled=False) as page:
        page.goto(bad_day.url)
        expect(page.locator("#fleet a.cell").first).to_be_visible()
        page.locator("nav").get_by_role("link", name="Endings").click()
        expect(page.locator("h1")).to_have_text("How runners ended")


def test_a_visitor_with_the_token_gets_in(
    browser: Browser, postgres: EmbeddedPostgres, chaotic_template: str
) -> None:
    token = "a token that is long enough"
    settings = DashboardSettings(token=SecretStr(token))
    with (
        serving(postgres, chaotic_template, settings, is_open=False) as site,
        look(browser) as page,
    ):
        page.goto(f"{site.url}/pools/linux-x64")
        assert problems(page) == []
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Log in").click()
        expect(page.locator("h1")).to_have_text("linux-x64")
        expect(page.locator("[data-live-says]")).to_have_text("live")
        page.get_by_role("button", name="log out").click()
        expect(page.get_by_label("Token")).to_be_visible()
