"""What Pods send to a real server with a real store: requests for work, acknowledgements, vitals, and
tokens. All of it may come from job code."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import quote

import pytest
import structlog
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import strategies as st

from paddock.domain.pods.pod import Audience, PodIdentity
from paddock.fakes.github import JobSpec
from paddock.fleet.kube.token_claims import Rejection, screened
from paddock.replica import FleetParts
from paddock.store.database import Database
from paddock.store.embedded import EmbeddedPostgres
from paddock.web import pods
from tests.conftest import TEMPLATE, fresh_database
from tests.support.exchange import Answered, exchange, request
from tests.support.fleetless import NoFleet
from tests.support.fuzzing import ODD, Fuzzer, altered, encodings
from tests.support.hostile import controls
from tests.support.pod_gate import PodGate, pod_gate
from tests.support.serving import served
from tests.support.world import World

DISPATCH, ACK, VITALS = "/v1/dispatch", "/v1/dispatch/ack", "/v1/vitals"
#: What each may be answered with. A server that fails answers 500; 503 would be a store that failed.
DOCUMENTED = {
    DISPATCH: {200, 204, 400, 401, 403, 410},
    ACK: {204, 400, 401, 403, 409, 410, 413},
    VITALS: {204, 400, 401, 403, 410, 413},
}


class Tokens:
    """A Pod's name is its token; with `v-` before it, the one for vitals."""

    async def review(self, token: str, *, peer: str) -> PodIdentity | None:
        name = token.removeprefix("v-")
        if not name.startswith("linux-"):
            return None
        return PodIdentity(
            pod_name=name,  # type: ignore[arg-type]
            pod_uid=f"uid-{name}",
            expires_at=datetime.now(UTC) + timedelta(hours=1),
            audience=Audience.DISPATCH if name == token else Audience.VITALS,
        )


@dataclass
class Gate:
    portal: BlockingPortal
    opened: PodGate
    logged: list[Any]

    def send(self, path: str, token: str, body: bytes = b"") -> Answered:
        sent = request(path, body, [("Authorization", f"Bearer {token}")])
        answered = self.portal.call(partial(exchange, self.opened.url, sent))
        found = [
            each
            for each in self.logged
            if each["log_level"] in ("error", "critical") or each["event"] == "vitals.unwritable"
        ]
        self.logged.clear()
        assert not found, found
        return answered

    def pod(self) -> str:
        return self.portal.call(self.opened.planned)

    def is_served(self) -> None:
        """A Pod that does what it should gets its work."""
        pod = self.pod()
        self.portal.call(self._queue)
        for _ in range(500):
            answered = self.send(f"{DISPATCH}?wait=20", pod)
            if answered.status != 204:
                break
        assert answered.status == 200, answered
        acknowledged = json.dumps({"delivery": json.loads(answered.body)["delivery"]})
        assert self.send(ACK, pod, acknowledged.encode()).status == 204
        assert self.send(VITALS, f"v-{pod}", b'{"samples": [[1767603600, 1]]}').status == 204
        assert self.send(f"{DISPATCH}?wait=0", pod).status == 410

    async def _queue(self) -> None:
        scene = self.opened.scene
        scene.fake.jobs.queue_run(scene.site, [JobSpec(labels=("self-hosted", "linux"))])
        await scene.deliver()
        await scene.apply()


@asynccontextmanager
async def _database(server: EmbeddedPostgres) -> AsyncIterator[Database]:
    async with asynccontextmanager(fresh_database)(server, template=TEMPLATE) as url:
        database = await Database.connect(url)
        try:
            yield database
        finally:
            await database.close()


@pytest.fixture(scope="module")
def gate(postgres: EmbeddedPostgres) -> Iterator[Gate]:
    """In a thread of its own: hypothesis blocks."""
    with (
        pytest.MonkeyPatch.context() as patch,
        structlog.testing.capture_logs() as logged,
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(_database(postgres)) as database,
        portal.wrap_async_context_manager(pod_gate(database, Tokens())) as opened,
    ):
        patch.setattr(pods, "_VITALS_GAP", 0.0)
        patch.setattr(pods, "LONGEST_WAIT", 0.02)
        patch.setattr(pods, "DEFAULT_WAIT", 0.02)
        patch.setattr("paddock.dispatch.vitals.GATHER", 0.001)
        yield Gate(portal, opened, logged)


_WAITS = st.one_of(
    st.sampled_from(
        ["0", "-0", "-1", "nan", "inf", "1e-400", "1e999", "0x1", "1_0", "٣", "", " 0"]
    ),
    st.text(max_size=8),
)
_QUERY = _WAITS.map(lambda wait: f"{DISPATCH}?wait={quote(wait.encode(errors='replace'))}")
_ACKS = encodings(
    st.one_of(
        altered(st.just({"delivery": str(uuid.UUID(int=7))})),
        st.sampled_from(ODD).map(lambda odd: {"delivery": odd}),
    )
)
#: Samples of all lengths, with numbers at the edges of what is kept.
_KEPT = st.sampled_from([0, -0.0, 5e-324, 2.2e-308, 1e-9, 1.5, 1767603600, 4e9, 2**53, 1e18])
_NUMBERS = st.one_of(_KEPT, _KEPT, st.floats(0, 1e18), st.integers(0, 2**59))
_ODD_NUMBERS = st.one_of(_NUMBERS, st.none(), st.floats(), st.sampled_from([2**63, -1, 1e19]))
_SAMPLES = st.one_of(
    st.lists(st.lists(_NUMBERS, min_size=1, max_size=10), max_size=64),
    st.lists(st.lists(_ODD_NUMBERS, max_size=12), max_size=70),
)
_REPORTS = encodings(
    st.one_of(
        st.fixed_dictionaries({"samples": _SAMPLES}, optional={"job_started_at": _NUMBERS}),
        altered(st.just({"samples": [[1767603600, 1, 2, 0], [1767603605]], "job_started_at": 1})),
    )
)


def test_dispatch_requests(gate: Gate, fuzzer: Fuzzer) -> None:
    """Each is answered as documented, and takes nothing from a Pod that asks properly."""
    pod = gate.pod()
    tokens = st.sampled_from(
        [pod, pod, pod, f"v-{pod}", "linux-stranger", "forged", "", "\x80" * 9]
    )
    requests = st.one_of(st.tuples(_QUERY, st.just(b"")), st.tuples(st.just(ACK), _ACKS))

    def check(sent: tuple[str, tuple[str, bytes]]) -> str:
        token, (path, body) = sent
        answered = gate.send(path, token, body)
        name = path.partition("?")[0]
        assert answered.status in DOCUMENTED[name], answered
        assert controls(answered.body.decode()) == set()
        return str(answered.status)

    fuzzer.run(st.tuples(tokens, requests), check, after=gate.is_served)


def test_vitals(postgres: EmbeddedPostgres, fuzzer: Fuzzer) -> None:
    """Each report is refused, or kept and shown."""
    with (
        pytest.MonkeyPatch.context() as patch,
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(_database(postgres)) as database,
    ):
        patch.setattr(pods, "_VITALS_GAP", 0.0)
        patch.setattr("paddock.dispatch.vitals.GATHER", 0.001)
        world = portal.call(World(database).begin)
        pool = portal.call(world.pool)
        parts = FleetParts(fleet=NoFleet(), reviewer=Tokens())
        open_site = served(database, fleet=parts, open_to_this_machine=True)
        with portal.wrap_async_context_manager(open_site) as site:

            async def look(body: bytes) -> str:
                [pod] = await world.idle_pods(pool, 1)
                token = {"authorization": f"Bearer v-{pod.pod_name}"}
                answer = await site.client.post(VITALS, content=body, headers=token)
                if answer.status_code != 204:
                    return str(answer.status_code)
                for path in (f"/runners/{pod.pod_name}", f"/api/v1/runners/{pod.pod_name}"):
                    shown = await site.client.get(path)
                    assert shown.status_code == 200, (path, shown.text)
                    assert "NaN" not in shown.text
                    assert controls(shown.text.replace("\t", "")) == set()
                return "shown"

            fuzzer.run(_REPORTS, partial(portal.call, look))


_ACCOUNT = "system:serviceaccount:runners:paddock-runner"


#: Ends of tokens, also beyond what a date can be.
_ENDS = st.one_of(
    st.just(2_000_000_000),
    st.sampled_from([0, -1, 1e9, 253402300800, -62135596801, 2**63, 1e18, 1e300, -1e300, 5e-324]),
    st.floats(allow_nan=False, allow_infinity=False),
)


@st.composite
def tokens(draw: st.DrawFn) -> str:
    """JWTs whose words are anything, and what only looks like one."""
    claims = {"aud": ["paddock.dev/dispatch"], "sub": _ACCOUNT, "exp": draw(_ENDS)}
    sound = st.booleans()  # most altered parts are malformed: then nothing looks at the other
    parts = [
        draw(_part({"alg": "RS256", "kid": "k"}, is_sound=draw(sound))),
        draw(_part(claims, is_sound=draw(sound))),
        draw(st.binary(max_size=40)),
    ]
    text = ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)
    if draw(st.integers(0, 3)):
        return text
    at = draw(st.integers(0, len(text)))
    return text[:at] + draw(st.text(max_size=5)) + text[at + draw(st.integers(0, 5)) :]


def _part(value: Any, *, is_sound: bool) -> st.SearchStrategy[bytes]:
    return st.just(json.dumps(value).encode()) if is_sound else encodings(altered(st.just(value)))


def test_words_of_tokens(fuzzer: Fuzzer) -> None:
    """A token is rejected by its words, or says who it would be: it raises nothing."""
    now = datetime(2026, 1, 5, tzinfo=UTC)

    def check(token: str) -> str:
        found = screened(token, service_account=_ACCOUNT, now=now)
        return str(found) if isinstance(found, Rejection) else "to be reviewed"

    fuzzer.run(tokens(), check)
