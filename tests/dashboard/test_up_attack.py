"""A page of another site, in a real browser, against a real `paddock up` on the same machine (I86)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from playwright.sync_api import Browser

from tests.dashboard.conftest import PATIENCE
from tests.http.test_up_ports import attack, ports_of, server_port
from tests.support.directories import open_directory

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks at processes in /proc"),
]

#: By name, so that it is another site; the browser is told that the name is this machine.
EVIL = "evil.example"

#: Without permission: a simple request, its answer hidden from the page. With it: one that needs a
#: preflight. Both end when an answer has come or was denied.
SEND = """async ([url, body, type]) => {
    const mode = type === 'text/plain' ? 'no-cors' : 'cors';
    const headers = {'content-type': type};
    try { await fetch(url, {method: 'POST', mode, headers, body}); return true; }
    catch { return false; }
}"""
FORM = """([url, body]) => {
    const form = Object.assign(document.createElement('form'), {method: 'post', action: url});
    form.enctype = 'text/plain';
    const [name, value] = [body.slice(0, 20), body.slice(20)];
    form.append(Object.assign(document.createElement('input'), {name, value}));
    document.body.append(form);
    form.submit();
}"""


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>evil</title><link rel=icon href=data:,>")

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def evil_site() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{EVIL}:{server.server_port}/"
        server.shutdown()


def test_no_page_of_another_site_gets_anything_done(browser: Browser) -> None:
    with (
        open_directory() as parent,
        evil_site() as evil,
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(ports_of(parent / "data")) as ports,
    ):
        server = server_port(parent / "data")
        [github] = ports - {server}
        run = attack(parent / "marker")
        context = browser.new_context()
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        answers: dict[tuple[str, str], int] = {}
        page.on("response", lambda got: answers.update({(got.request.method, got.url): got.status}))

        control = f"http://127.0.0.1:{github}/_fake/runs"
        page.goto(evil)
        assert page.evaluate(SEND, [control, run, "text/plain"])
        assert answers.pop(("POST", control)) == 403
        assert not page.evaluate(SEND, [control, run, "application/json"])
        assert ("POST", control) not in answers
        with page.expect_navigation():
            page.evaluate(FORM, [control, run])
        assert answers.pop(("POST", control)) == 403

        # With a name of the attacker's that leads here, both are of the same origin.
        for port, path in (
            *((github, each) for each in ("/_fake/runs", "/_runner/broker/session", "/rate_limit")),
            *((server, each) for each in ("/", "/metrics", "/openapi.json", "/api/v1/jobs")),
        ):
            rebound = f"http://{EVIL}:{port}{path}"
            got = page.goto(rebound)
            assert got is not None
            assert got.status == 403, path
            page.evaluate(SEND, [rebound, run, "application/json"])
            assert answers.pop(("POST", rebound)) == 403, path

        # The dashboard itself can be opened.
        opened = page.goto(f"http://127.0.0.1:{server}/")
        assert opened is not None
        assert opened.status == 200
        context.close()
        assert not (parent / "marker").exists()
