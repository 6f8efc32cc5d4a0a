"""The ports that `paddock up` opens; a page of another site can do nothing with them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from paddock.fakes.github.server import plain_http
from tests.http.test_up import DONE, processes_of, until, up
from tests.support.directories import open_directory
from tests.support.sockets import descendants, listening

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks at processes in /proc"),
]

#: A page can make a browser send this without a preflight request.
CROSS_SITE = {
    "host": "attacker.example",
    "origin": "https://evil.example",
    "content-type": "text/plain",
}


def attack(marker: Path) -> str:
    steps = [{"name": "attack", "run": f"id > {marker}"}]
    job = {"name": "attack", "labels": ["self-hosted", "linux"], "steps": steps}
    return json.dumps({"repository": "acme/site", "jobs": [job]})


@asynccontextmanager
async def ports_of(data_dir: Path, *options: str) -> AsyncIterator[set[int]]:
    """The ports of a `paddock up` that has run jobs, of all its processes, on any address."""
    async with up(data_dir, *options) as process:
        await until(data_dir, DONE, 2)
        pids = descendants(process.pid)
        pids |= {pid for pid, _ in processes_of(data_dir)}
        found = listening(pids)
        assert {(kind, address) for kind, address, _ in found} == {("tcp", "127.0.0.1")}
        yield {port for *_, port in found}


def server_port(data_dir: Path) -> int:
    return int((data_dir / "up.address").read_text().split()[1].rpartition(":")[2])


def documented() -> list[str]:
    """The rows of the table in docs/local.md."""
    page = Path("docs/local.md").read_text()
    section = page.partition("## Open ports")[2].partition("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("| ")][2:]


async def test_up_listens_at_two_ports_of_this_machine_and_answers_no_other_site() -> None:
    with open_directory() as parent:
        data_dir, marker = parent / "data", parent / "marker"
        async with ports_of(data_dir) as ports:
            server = server_port(data_dir)
            assert server in ports
            assert len(ports) == len(documented()) == 2
            [github] = ports - {server}
            async with httpx2.AsyncClient(trust_env=False, verify=plain_http()) as client:
                for port in ports:
                    await attacked(client, f"http://127.0.0.1:{port}", attack(marker))
                # The control API does not exist for ordinary programs either.
                url = f"http://127.0.0.1:{github}/_fake"
                json_type = {"content-type": "application/json"}
                run = await client.post(f"{url}/runs", content=attack(marker), headers=json_type)
                assert run.status_code == 404
                assert (await client.get(f"{url}/truth")).status_code == 404
            # It goes on as before.
            await until(data_dir, DONE, 4)
        assert not marker.exists()


async def attacked(client: httpx2.AsyncClient, url: str, run: str) -> None:
    answer = await client.post(f"{url}/_fake/runs", content=run, headers=CROSS_SITE)
    assert answer.status_code == 403
    for method, path in (
        ("GET", "/metrics"),
        ("GET", "/openapi.json"),
        ("GET", "/"),
        ("GET", "/api/v1/jobs"),
        ("POST", "/actions/pause-dispatch"),
        ("POST", "/v1/dispatch"),
        ("GET", "/rate_limit"),
        ("POST", "/app/installations/1/access_tokens"),
        ("POST", "/_runner/broker/session"),
    ):
        rebound = {"host": "attacker.example"}
        answer = await client.request(method, url + path, headers=rebound)
        assert answer.status_code == 403, (url, path)
