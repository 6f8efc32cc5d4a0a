"""Who may read and who may act: tokens, sessions, proxies, host names, forms of other sites."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
import structlog
from pydantic import SecretStr, ValidationError
from starlette.requests import HTTPConnection

from paddock.store.database import Database
from paddock.web.access import Access, AccessDenied
from paddock.web.settings import DashboardSettings
from tests.support.exchange import exchange, request
from tests.support.serving import Served, client_of, served

TOKEN = "correct horse battery staple"

PAGES = ("/", "/jobs", "/runners", "/pools", "/accounts", "/endings", "/recovery", "/deliveries")
BEARER = {"authorization": f"Bearer {TOKEN}"}


#: Servers with different rules of access. Each is started once.
SITES = {
    "closed": (DashboardSettings(), False),
    "token": (DashboardSettings(token=SecretStr(TOKEN)), False),
    "another replica": (DashboardSettings(token=SecretStr(TOKEN)), False),
    "proxy": (
        DashboardSettings(
            actions=True, proxy_header="X-Forwarded-User", proxy_networks="127.0.0.0/8"
        ),
        False,
    ),
    "other proxy": (
        DashboardSettings(proxy_header="X-Forwarded-User", proxy_networks="10.0.0.0/8"),
        False,
    ),
    "named": (DashboardSettings(token=SecretStr(TOKEN), hosts="paddock.example.org"), False),
    "open": (DashboardSettings(), True),
    "acting": (DashboardSettings(actions=True), True),
}


@pytest.fixture(scope="module")
async def sites(chaotic: Database) -> AsyncIterator[Mapping[str, Served]]:
    async with AsyncExitStack() as stack:
        yield {
            name: await stack.enter_async_context(
                served(chaotic, dashboard=settings, open_to_this_machine=is_open)
            )
            for name, (settings, is_open) in SITES.items()
        }


Enter = Callable[[str], Served]


@pytest.fixture
async def enter(sites: Mapping[str, Served]) -> AsyncIterator[Enter]:
    """A site, with a fresh browser."""
    async with AsyncExitStack() as stack:
        clients = {
            name: await stack.enter_async_context(client_of(site.url))
            for name, site in sites.items()
        }
        yield lambda name: replace(sites[name], client=clients[name])


async def status(site: Served, path: str, **headers: str) -> int:
    return (await site.client.get(path, headers=headers)).status_code


async def test_serve_lets_no_visitor_in_until_an_operator_is_named(enter: Enter) -> None:
    site = enter("closed")
    for path in (*PAGES, "/settings", "/nothing"):
        answer = await site.client.get(path)
        assert answer.status_code == 403, path
        assert "PADDOCK_DASHBOARD_TOKEN" in answer.text
        assert "linux-x64" not in answer.text
    for path in ("/api/v1/jobs", "/api/v1/settings", "/api/v1/stream", "/api/v1/nothing"):
        assert await status(site, path) == 403
    assert await status(site, "/healthz") == 200


async def test_a_token_lets_programs_in(enter: Enter) -> None:
    site = enter("token")
    refused = await site.client.get("/api/v1/jobs")
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    assert await status(site, "/api/v1/jobs", authorization=f"Bearer {TOKEN}") == 200
    for wrong in (f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", "Bearer x"):
        assert await status(site, "/api/v1/jobs", authorization=wrong) == 401, wrong


async def log_in(site: Served, token: str, **headers: str) -> httpx2.Response:
    return await site.client.post(
        "/login?next=/jobs%3Fstatus%3Dqueued",
        data={"token": token},
        headers={"sec-fetch-site": "same-origin", **headers},
    )


async def test_a_token_lets_people_in_and_back_to_where_they_wanted(enter: Enter) -> None:
    site = enter("token")
    sent = await site.client.get("/jobs?status=queued")
    assert (sent.status_code, sent.headers["location"]) == (
        303,
        "/login?next=/jobs%3Fstatus%3Dqueued",
    )
    wrong = await log_in(site, "wrong")
    assert wrong.status_code == 401
    assert "set-cookie" not in wrong.headers
    entered = await log_in(site, TOKEN)
    assert (entered.status_code, entered.headers["location"]) == (303, "/jobs?status=queued")
    cookie = entered.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert TOKEN not in cookie
    assert await status(site, "/jobs") == 200
    assert await status(site, "/api/v1/jobs") == 200
    await site.client.post("/logout", headers={"sec-fetch-site": "same-origin"})
    assert await status(site, "/jobs") == 303


async def test_wrong_tokens_do_not_fill_the_log(enter: Enter) -> None:
    site = enter("token")
    began = time.monotonic()
    with structlog.testing.capture_logs() as logged:
        for _ in range(100):
            assert (await log_in(site, "wrong")).status_code == 401
        await asyncio.sleep(1)
        await log_in(site, "wrong")
    lines = [each for each in logged if each["event"] == "login.failed"]
    assert len(lines) <= time.monotonic() - began + 1
    assert lines[-1]["address"] == "127.0.0.1"
    assert sum(each["attempts"] for each in lines) >= 101


async def test_a_copied_session_ends_with_the_logout_at_every_replica(enter: Enter) -> None:
    one, other = enter("token"), enter("another replica")
    async with client_of(one.url) as client, client_of(one.url) as second:
        copy, colleague = replace(one, client=client), replace(one, client=second)
        cookie = (await log_in(one, TOKEN)).cookies["paddock_session"]
        await log_in(colleague, TOKEN)
        for site in (copy, other):
            site.client.cookies.set("paddock_session", cookie)
            assert await status(site, "/api/v1/jobs") == 200
        left = await one.client.post("/logout", headers={"sec-fetch-site": "same-origin"})
        assert left.status_code == 303
        for site in (copy, other):
            assert site.client.cookies["paddock_session"] == cookie
            assert await status(site, "/api/v1/jobs") == 401
            assert await status(site, "/jobs") == 303
            assert (await act(site, "pause-pool", csrf="x")).status_code == 303
        assert await status(colleague, "/api/v1/jobs") == 200
        again = await copy.client.post("/logout", headers={"sec-fetch-site": "same-origin"})
        assert again.status_code == 303
    await log_in(one, TOKEN)
    assert await status(one, "/api/v1/jobs") == 200


async def test_only_sessions_of_ours_are_kept_as_ended(enter: Enter) -> None:
    """Any client can send any cookie and ask to end its session."""
    site = enter("token")
    cookie = (await log_in(site, TOKEN)).cookies["paddock_session"]
    ended = "SELECT id FROM ended_sessions ORDER BY id"
    before = await site.rows(ended)
    for made_up in (cookie[:-1], cookie.replace(".", "1.", 1), "x", ""):
        site.client.cookies.clear()
        site.client.cookies.set("paddock_session", made_up)
        await site.client.post("/logout", headers={"sec-fetch-site": "same-origin"})
    assert await site.rows(ended) == before


async def test_another_site_cannot_end_a_session(enter: Enter) -> None:
    site = enter("token")
    await log_in(site, TOKEN)
    refused = await site.client.post("/logout", headers={"sec-fetch-site": "cross-site"})
    assert refused.status_code == 403
    assert await status(site, "/api/v1/jobs") == 200


async def test_behind_tls_the_session_stays_there(enter: Enter) -> None:
    site = enter("token")
    entered = await log_in(site, TOKEN, **{"x-forwarded-proto": "https"})
    assert "; secure" in entered.headers["set-cookie"].lower()


async def test_a_session_cannot_be_made_up_or_prolonged(enter: Enter) -> None:
    site = enter("token")
    cookie = (await log_in(site, TOKEN)).cookies["paddock_session"]
    ends, session, signature = cookie.split(".")
    site.client.cookies.clear()
    for made_up in (
        f"{int(ends) + 1}.{session}.{signature}",
        f"{ends}.{session[:-1]}x.{signature}",
        f"{ends}.{session}.{'0' * 64}",
        f"{ends}.{session}.",
        f"{ends}.{signature}",
        "",
        ".",
        "..",
        f"².{session}.{signature}",
    ):
        sent = {"cookie": f"paddock_session={made_up}".encode()}
        answer = await site.client.get("/api/v1/jobs", headers=sent)  # type: ignore[arg-type]
        assert answer.status_code == 401, made_up


@pytest.mark.parametrize(
    "elsewhere", ["https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:1", ""]
)
async def test_no_visitor_is_sent_to_another_site(enter: Enter, elsewhere: str) -> None:
    site = enter("token")
    entered = await site.client.post(
        "/login",
        params={"next": elsewhere},
        data={"token": TOKEN},
        headers={"sec-fetch-site": "same-origin"},
    )
    assert entered.headers["location"] == "/"


async def test_a_proxy_on_this_machine_is_not_this_machine(enter: Enter) -> None:
    site = enter("open")
    for name in ("x-forwarded-for", "forwarded", "x-forwarded-host"):
        assert await status(site, "/jobs", **{name: "203.0.113.7"}) == 403


async def test_a_proxy_is_believed_only_from_where_it_is(enter: Enter) -> None:
    site = enter("proxy")
    assert await status(site, "/jobs") == 403
    assert await status(site, "/jobs", **{"x-forwarded-user": "ana"}) == 200
    assert await status(site, "/jobs", **{"x-forwarded-user": ""}) == 403
    site = enter("other proxy")
    assert await status(site, "/jobs", **{"x-forwarded-user": "ana"}) == 403


async def status_with_hosts(site: Served, *hosts: str) -> int:
    """A client library sends one Host header only."""
    address = urlsplit(site.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    lines = [
        "GET /jobs HTTP/1.1",
        *(f"Host: {host}" for host in hosts),
        "Connection: close",
        "",
        "",
    ]
    writer.write("\r\n".join(lines).encode())
    line = await reader.readline()
    writer.close()
    return int(line.split()[1])


async def test_up_is_open_to_this_machine_by_its_own_names_only(enter: Enter) -> None:
    """Another site that points its name at 127.0.0.1 is not let in by the browser it runs in."""
    site = enter("open")
    for name in ("localhost", "localhost:8787", "127.0.0.1", "127.8.8.8:1", "[::1]:8787"):
        assert await status(site, "/jobs", host=name) == 200, name
    for name in (
        *("evil.example", "evil.example:8787", "127.0.0.1.evil.example", "", "[", "x@y"),
        *(
            "x@127.0.0.1",
            "127.0.0.1#.evil.example",
            "127.0.0.1/.evil.example",
            "127.0.0.1?",
            "0.0.0.0",
        ),
        *("localhost.", "[::]", "127.1", "2130706433"),
    ):
        assert await status(site, "/jobs", host=name) == 403, name
        assert await status(site, "/api/v1/jobs", host=name) == 403, name
    assert await status_with_hosts(site, "127.0.0.1", "127.0.0.1:8787") == 403
    assert await status_with_hosts(site, "127.0.0.1") == 200
    site = enter("named")
    assert await status(site, "/api/v1/jobs", **BEARER, host="Paddock.example.org:443") == 200
    assert await status(site, "/api/v1/jobs", **BEARER, host="evil.example") == 403


async def test_up_answers_nothing_under_a_name_that_is_not_its_own(enter: Enter) -> None:
    """A page that points its own name at this machine reads neither metrics nor descriptions."""
    site = enter("open")
    for path in ("/metrics", "/openapi.json", "/healthz", "/static/paddock.css", "/login"):
        assert await status(site, path) in (200, 303), path
        for name in ("attacker.example", "127.0.0.1.attacker.example", ""):
            assert await status(site, path, host=name) == 403, path
    webhook = await site.post({}, event="ping")
    assert webhook.status_code == 200
    site = enter("named")
    for path in ("/metrics", "/healthz", "/readyz"):
        assert await status(site, path, host="10.0.0.7:8787") == 200, path


async def act(
    site: Served, action: str, *, csrf: str | None = None, **sent: Any
) -> httpx2.Response:
    headers = sent.pop("headers", {"sec-fetch-site": "same-origin"})
    if csrf is None:
        csrf = await form_token(site)
    form = {"name": "linux-x64", "why": "a test", "back": "/pools/linux-x64", "csrf": csrf, **sent}
    return await site.client.post(f"/actions/{action}", data=form, headers=headers)


async def form_token(site: Served) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]+)"', (await site.client.get("/accounts")).text)
    assert found is not None
    return found[1]


async def test_what_may_be_done_is_done_and_signed(enter: Enter) -> None:
    site = enter("acting")
    done = await act(site, "pause-pool")
    assert (done.status_code, done.headers["location"]) == (
        303,
        "/pools/linux-x64?said=pause-pool",
    )
    assert "The pool is paused" in (await site.client.get(done.headers["location"])).text
    again = await act(site, "pause-pool")
    assert again.headers["location"] == "/pools/linux-x64?said=nothing"
    assert (await act(site, "resume-pool")).status_code == 303
    assert (await act(site, "pause-account", name="github.com/acme")).status_code == 303
    assert (await act(site, "resume-account", name="acme")).status_code == 303
    assert (await act(site, "pause-dispatch")).status_code == 303
    assert (await act(site, "resume-dispatch")).status_code == 303
    rows = await site.rows(
        "SELECT actor, after, why FROM events WHERE actor = 'operator:dashboard' ORDER BY id"
    )
    assert [tuple(row) for row in rows] == [
        ("operator:dashboard", "paused", "a test"),
        ("operator:dashboard", "resumed", "a test"),
        ("operator:dashboard", "paused", "a test"),
        ("operator:dashboard", "resumed", "a test"),
        ("operator:dashboard", "dispatch paused", "a test"),
        ("operator:dashboard", "dispatch resumed", "a test"),
    ]


async def test_a_runner_is_retired_by_whom_the_proxy_names(enter: Enter) -> None:
    site = enter("proxy")
    site.client.headers["x-forwarded-user"] = "ana"
    idle = (await site.client.get("/api/v1/runners?state=idle&limit=1")).json()["items"][0]
    done = await act(site, "retire-runner", name=idle["pod"], back=f"/runners/{idle['pod']}")
    assert done.status_code == 303
    after = (await site.client.get(f"/api/v1/runners/{idle['pod']}")).json()
    assert after["runner"]["state"] == "retiring"
    assert after["events"][-1]["actor"] == "operator:ana"
    gone = (await site.client.get("/api/v1/runners?live=false&limit=1")).json()["items"][0]
    refused = await act(site, "retire-runner", name=gone["pod"])
    assert refused.status_code == 409
    assert "nothing left to retire" in refused.text


async def test_looking_is_all_unless_a_setting_says_otherwise(enter: Enter) -> None:
    site = enter("open")
    assert "/actions/" not in (await site.client.get("/accounts")).text
    refused = await act(site, "pause-pool", csrf="x")
    assert refused.status_code == 403
    assert "PADDOCK_DASHBOARD_ACTIONS" in refused.text


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://["},
        {},
    ],
)
async def test_no_other_site_can_have_something_done(enter: Enter, headers: dict[str, str]) -> None:
    site = enter("acting")
    assert (await act(site, "pause-pool", headers=headers)).status_code == 403
    assert (await act(site, "pause-pool", csrf="0" * 64)).status_code == 403
    assert (await act(site, "pause-pool", csrf="é")).status_code == 403
    own = {"origin": site.url}
    assert (await act(site, "pause-pool", headers=own)).status_code == 303


def test_a_request_without_a_host_proves_no_origin() -> None:
    with pytest.raises(AccessDenied):
        Access.check_origin(HTTPConnection({"type": "http", "headers": []}))


async def test_a_form_of_another_is_no_form_of_mine(enter: Enter) -> None:
    site = enter("proxy")
    site.client.headers["x-forwarded-user"] = "ana"
    anas = await form_token(site)
    site.client.headers["x-forwarded-user"] = "bob"
    assert (await act(site, "pause-pool", csrf=anas)).status_code == 403


async def test_rubbish_is_refused_in_a_sentence(enter: Enter) -> None:
    site = enter("acting")
    assert (await act(site, "explode")).status_code == 409
    assert (await act(site, "pause-pool", name="unknown")).status_code == 409
    assert (await act(site, "pause-pool", name="\x00")).status_code == 409
    assert (await act(site, "pause-pool", why="x" * 20_000)).status_code == 413
    assert (await site.client.get("/actions/pause-pool")).status_code == 405


async def test_every_page_forbids_what_is_not_its_own(enter: Enter) -> None:
    site = enter("open")
    for path in (*PAGES, "/nothing", "/static/paddock.css", "/api/v1/jobs", "/api/v1/nothing"):
        headers = (await site.client.get(path)).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'"), path
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize(("name", "path"), [("token", "/login"), ("acting", "/actions/pause-pool")])
async def test_a_form_that_does_not_arrive_is_no_error(enter: Enter, name: str, path: str) -> None:
    """Each would have been logged as a bug, with a trace of forty lines."""
    site = enter(name)
    sent = request(path, b"token=guessed", [("Sec-Fetch-Site", "same-origin")])
    with structlog.testing.capture_logs() as logged:
        await exchange(site.url, sent[:-4], whole=False)
        await site.client.get("/login")
    assert not [each for each in logged if each["log_level"] == "error"]


async def test_what_strangers_wrote_is_only_text(enter: Enter) -> None:
    """Names of jobs, notes and logs, on every page that shows them."""
    site = enter("open")
    [job] = (await site.client.get("/api/v1/jobs?refused=true")).json()["items"]
    [oom] = (await site.client.get("/api/v1/endings?ending=host-oom&limit=1")).json()["items"]
    seen = 0
    for path in (
        *("/", "/jobs?refused=true", f"/jobs/{job['id']}", f"/runners/{oom['pod']}"),
        *("/deliveries?state=dead", "/jobs?repository=<script>alert(1)</script>"),
    ):
        text = (await site.client.get(path)).text
        assert "<script>alert" not in text, path
        assert "<b>error" not in text
        assert "<at all>" not in text
        seen += text.count("&lt;script&gt;alert")
    assert seen >= 4


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"token": "short"}, "could be guessed"),
        ({"proxy_header": "X-User"}, "go together"),
        ({"proxy_networks": "10.0.0.0/8"}, "go together"),
        ({"proxy_header": "X-User", "proxy_networks": "ten"}, "is no network"),
        ({"proxy_header": "X User", "proxy_networks": "10.0.0.1"}, "pattern"),
    ],
)
def test_settings_that_would_let_every_visitor_in_are_refused(
    settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValidationError, match=said):
        DashboardSettings(**settings)
