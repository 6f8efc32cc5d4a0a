"""What Pods may request over HTTP, and the answers to all other clients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

import httpx2
import pytest
import structlog

from paddock.domain.pods.pod import Audience, PodIdentity
from paddock.domain.runners.vitals import MOST_REPORTED, MOST_SAMPLES, Sample, extend
from paddock.fakes.github import JobSpec
from paddock.ports import FleetUnavailable
from paddock.store.database import Database
from paddock.system import SystemClock
from paddock.web.pods import REFUSED
from tests.support.exchange import exchange, request
from tests.support.github import GitHubScene
from tests.support.pod_gate import PodGate, pod_gate
from tests.support.runner_rows import read_samples

CLOCK = SystemClock()


class Tokens:
    """A reviewer that knows the given tokens, and counts its reviews."""

    def __init__(self) -> None:
        self.known: dict[str, PodIdentity] = {}
        self.asked = 0
        self.away = False

    async def review(self, token: str, *, peer: str) -> PodIdentity | None:
        self.asked += 1
        if self.away:
            raise FleetUnavailable("The apiserver does not answer.")
        return self.known.get(token)


@dataclass
class Gate:
    opened: PodGate
    tokens: Tokens
    client: httpx2.AsyncClient

    @property
    def scene(self) -> GitHubScene:
        return self.opened.scene

    async def pod(self) -> str:
        """A Pod with a row; its dispatch token. The one for vitals begins with `v-`."""
        name = await self.opened.planned()
        for audience, prefix in ((Audience.DISPATCH, ""), (Audience.VITALS, "v-")):
            self.tokens.known[prefix + name] = PodIdentity(
                pod_name=name,
                pod_uid=f"uid-{name}",
                expires_at=CLOCK.now() + timedelta(minutes=10),
                audience=audience,
            )
        return name

    async def post(
        self, path: str, token: str | None, *, json: Any = None, content: bytes | None = None
    ) -> httpx2.Response:
        headers = {"authorization": f"Bearer {token}"} if token is not None else {}
        return await self.client.post(path, headers=headers, json=json, content=content)

    async def queue(self) -> None:
        spec = JobSpec(labels=("self-hosted", "linux"))
        self.scene.fake.jobs.queue_run(self.scene.site, [spec])
        await self.scene.deliver()
        await self.scene.apply()


@pytest.fixture
async def gate(database: Database) -> AsyncIterator[Gate]:
    tokens = Tokens()
    async with (
        pod_gate(database, tokens) as opened,
        httpx2.AsyncClient(base_url=opened.url, timeout=60) as client,
    ):
        yield Gate(opened, tokens, client)


async def test_a_pod_is_handed_a_jit_acknowledges_it_and_is_told_to_leave(gate: Gate) -> None:
    pod = await gate.pod()
    assert (await gate.post("/v1/dispatch?wait=0", pod)).status_code == 204
    await gate.queue()
    answer = await gate.post("/v1/dispatch?wait=20", pod)
    assert answer.status_code == 200
    work = answer.json()
    assert set(work) == {"delivery", "runner_name", "jit"}
    for _ in range(2):
        acknowledged = await gate.post("/v1/dispatch/ack", pod, json={"delivery": work["delivery"]})
        assert acknowledged.status_code == 204
    left = await gate.post("/v1/dispatch?wait=1", pod)
    assert left.status_code == 410
    assert left.json()["reason"]


@pytest.mark.parametrize("token", [None, "forged", "x" * 10_000, "é"])
async def test_a_token_of_no_pod_is_refused(gate: Gate, token: str | None) -> None:
    headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
    for path in ("/v1/dispatch", "/v1/dispatch/ack", "/v1/vitals"):
        answer = await gate.client.post(path, headers=headers)
        assert answer.status_code == 401


async def test_idle_pods_cost_one_review_per_token(gate: Gate) -> None:
    pod = await gate.pod()
    for _ in range(20):
        await gate.post("/v1/dispatch?wait=0", pod)
    assert gate.tokens.asked == 1
    gate.opened.identities.forget(f"uid-{pod}")
    del gate.tokens.known[pod]
    assert (await gate.post("/v1/dispatch?wait=0", pod)).status_code == 401


async def test_an_expired_token_is_reviewed_again(gate: Gate) -> None:
    pod = await gate.pod()
    known = gate.tokens.known[pod]
    gate.tokens.known[pod] = PodIdentity(
        pod_name=known.pod_name, pod_uid=known.pod_uid, expires_at=CLOCK.now()
    )
    await gate.post("/v1/dispatch?wait=0", pod)
    del gate.tokens.known[pod]
    assert (await gate.post("/v1/dispatch?wait=0", pod)).status_code == 401


async def test_requests_that_cannot_be_answered_do_not_fill_the_log(gate: Gate) -> None:
    """Forged tokens come faster than those of Pods, which wait before they ask again."""
    gate.tokens.away = True
    began = time.monotonic()
    with structlog.testing.capture_logs() as logged:
        for number in range(100):
            await gate.post("/v1/dispatch?wait=0", f"forged-{number}")
    lines = [each for each in logged if each["event"] == "pod.request_failed"]
    assert 1 <= len(lines) <= time.monotonic() - began + 1
    assert lines[0]["requests"] == 1


async def test_a_reviewer_that_cannot_be_asked_is_no_refusal(gate: Gate) -> None:
    """I9"""
    pod = await gate.pod()
    gate.tokens.away = True
    answer = await gate.post("/v1/dispatch?wait=0", pod)
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    gate.tokens.away = False
    assert (await gate.post("/v1/dispatch?wait=0", pod)).status_code == 204


async def test_the_token_for_vitals_gets_no_work(gate: Gate) -> None:
    """I21"""
    pod = await gate.pod()
    assert (await gate.post("/v1/dispatch?wait=0", f"v-{pod}")).status_code == 403


async def test_a_pod_acknowledges_only_its_own_delivery(gate: Gate) -> None:
    pod, other = await gate.pod(), await gate.pod()
    await gate.queue()
    work = (await gate.post("/v1/dispatch?wait=20", pod)).json()
    for token, delivery in ((other, work["delivery"]), (pod, str(uuid4()))):
        answer = await gate.post("/v1/dispatch/ack", token, json={"delivery": delivery})
        assert answer.status_code == 409


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b'{"delivery": 7}', 400),
        (b"[" * 900, 400),
        (b" " * 5000, 413),
        (b"\xff\xfe", 400),
    ],
)
async def test_a_rubbish_acknowledgement_is_refused(
    gate: Gate, content: bytes, status: int
) -> None:
    pod = await gate.pod()
    answer = await gate.post("/v1/dispatch/ack", pod, content=content)
    assert answer.status_code == status


@pytest.mark.parametrize("path", ["/v1/dispatch/ack", "/v1/vitals"])
async def test_a_body_that_does_not_arrive_is_refused_and_counted(gate: Gate, path: str) -> None:
    counted = REFUSED.labels("incomplete")._value
    before = counted.get()
    pod = await gate.pod()
    sent = request(path, b'{"delivery": 7}', [("Authorization", f"Bearer {pod}")])
    await exchange(gate.opened.url, sent[:-4], whole=False)
    await gate.post("/v1/dispatch/ack", pod, content=b"")
    assert counted.get() == before + 1


async def test_a_refusal_shows_hidden_characters_of_a_field_that_the_pod_named(gate: Gate) -> None:
    pod = await gate.pod()
    body = '{"delivery": "00000000-0000-0000-0000-000000000007", "\u202e\u00ad": null}'
    refused = await gate.post("/v1/dispatch/ack", pod, content=body.encode())
    assert refused.status_code == 400
    assert refused.json()["error"].endswith("`\\u202e\\u00ad`")


@pytest.mark.parametrize("wait", ["-1", "nan", "inf", "soon", "1e9"])
async def test_a_wait_that_is_no_number_of_seconds_is_refused(gate: Gate, wait: str) -> None:
    assert (await gate.post(f"/v1/dispatch?wait={wait}", await gate.pod())).status_code == 400


async def test_vitals_are_kept_bounded_and_no_more_often_than_once_a_second(gate: Gate) -> None:
    pod = await gate.pod()
    await gate.post("/v1/dispatch?wait=0", pod)
    report = {"samples": [[1.0, 2.0], [2.0, 3.0]], "job_started_at": 5.0}
    assert (await gate.post("/v1/vitals", f"v-{pod}", json=report)).status_code == 204
    assert (await gate.post("/v1/vitals", f"v-{pod}", json=report)).status_code == 429
    async with gate.scene.store._database.transaction() as connection:
        row = await connection.fetchrow("SELECT id, job_marked_at FROM runners")
    assert row["job_marked_at"] is not None
    assert [sample.at for sample in await read_samples(gate.scene.store, row["id"])] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"{}", 400),
        (b'{"samples": [[-1]]}', 400),
        (b'{"samples": [[1e300]]}', 400),
        (b'{"samples": [["now"]]}', 400),
        (b'{"samples": [' + b",".join([b"[1]"] * (MOST_REPORTED + 1)) + b"]}", 400),
        (b" " * 100_000, 413),
    ],
)
async def test_rubbish_vitals_are_refused(gate: Gate, content: bytes, status: int) -> None:
    pod = await gate.pod()
    assert (await gate.post("/v1/vitals", f"v-{pod}", content=content)).status_code == status


async def test_a_hang_up_frees_the_place_at_once(gate: Gate) -> None:
    gone, stays = await gate.pod(), await gate.pod()
    asked = asyncio.create_task(gate.post("/v1/dispatch?wait=30", gone))
    await asyncio.sleep(0.5)
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    await asyncio.sleep(0.5)
    await gate.queue()
    assert (await gate.post("/v1/dispatch?wait=20", stays)).status_code == 200


def test_a_long_series_keeps_its_story_and_its_last_minutes() -> None:
    series: list[Sample] = []
    for second in range(10 * MOST_SAMPLES):
        series = extend(series, [Sample(float(second))])
    assert len(series) <= MOST_SAMPLES
    assert series[0].at == 0
    assert [sample.at for sample in series[-100:]] == [
        float(second) for second in range(10 * MOST_SAMPLES - 100, 10 * MOST_SAMPLES)
    ]
    assert extend(series, series) == series
