"""Hundreds of forged tokens, while genuine Pods poll: the test counts the API server's reviews."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import jwt
import pytest

from paddock.fleet.kube.api import KubeCall, Resource
from paddock.fleet.kube.review_limits import CONNECTIONS, PEER_BURST
from paddock.fleet.kube.reviewer import REJECTED_FOR
from paddock.fleet.kube.settings import KubeSettings
from paddock.fleet.kube.setup import Kube, open_kube
from paddock.fleet.kube.token_keys import READ_EVERY
from paddock.store.database import Database
from tests.support.pod_gate import PodGate, pod_gate
from tests.support.time import ManualClock
from tests.support.token_api import NAMESPACE, SigningKey, TokenApi, claims, signed

#: Of each kind.
MANY = 100
HOSTILE = "127.0.0.66"


@dataclass
class Place:
    gate: PodGate
    api: TokenApi
    kube: Kube
    #: The reviewer's.
    clock: ManualClock

    async def pod(self, **others: Any) -> str:
        """The token of a Pod that has a row."""
        return self.api.token(await self.gate.planned(), **others)

    @asynccontextmanager
    async def peer(self, address: str = "127.0.0.1") -> AsyncIterator[httpx2.AsyncClient]:
        transport = httpx2.AsyncHTTPTransport(local_address=address)
        async with httpx2.AsyncClient(
            base_url=self.gate.url, transport=transport, timeout=60
        ) as client:
            yield client

    async def asked(self, tokens: Iterable[str], *, by: str = "127.0.0.1") -> Sequence[int]:
        async with self.peer(by) as client:
            return await asyncio.gather(*(poll(client, token) for token in tokens))


async def poll(client: httpx2.AsyncClient, token: str) -> int:
    headers = {"authorization": f"Bearer {token}"}
    return (await client.post("/v1/dispatch?wait=0", headers=headers)).status_code


@pytest.fixture
async def place(database: Database, tmp_path: Path) -> AsyncIterator[Place]:
    api, clock = TokenApi(), ManualClock()
    async with api.kubeconfig(tmp_path) as kubeconfig:
        settings = KubeSettings(
            namespace=NAMESPACE,
            agent_image="paddock.test/agent",
            server_url="http://paddock.test",
            kubeconfig=kubeconfig,
        )
        async with (
            open_kube(settings, clock=clock) as kube,
            pod_gate(database, kube.reviewer) as gate,
        ):
            yield Place(gate, api, kube, clock)
            api.answers.set()


def forged(api: TokenApi, pod: str) -> dict[str, list[str]]:
    """Forged tokens by kind. All but the first name a Pod that exists."""
    attacker, public = SigningKey(), base64.b64encode(api.key.id.encode()).decode()
    past = int(ManualClock().now().timestamp()) - 3600
    some = range(MANY)
    return {
        "rubbish": [f"rubbish-{n}" for n in some],
        "parts": [f"a{n}.b.c" for n in some],
        "another audience": [api.token(pod, aud=["https://kubernetes"]) for _ in some],
        "both audiences": [
            api.token(pod, aud=["paddock.dev/dispatch", "paddock.dev/vitals"]) for _ in some
        ],
        "another account": [api.token(pod, sub="system:serviceaccount:x:y") for _ in some],
        "expired": [api.token(pod, exp=past) for _ in some],
        "another issuer": [signed(attacker, claims(pod, iss="https://forged")) for _ in some],
        "another key": [signed(attacker, claims(pod), key_id=api.key.id) for _ in some],
        "unknown keys": [signed(attacker, claims(pod), key_id=f"key-{n}") for n in some],
        # At the depth at which a parser gives up, which depends on the frames around it.
        "a deep header": [deep(api, 901 + n) for n in some],
        "no signature": [
            jwt.encode(claims(pod), "", algorithm="none", headers={"kid": api.key.id}) for _ in some
        ],
        "a shared secret": [
            jwt.encode(claims(pod), public * 4, algorithm="HS256", headers={"kid": api.key.id})
            for _ in some
        ],
    }


def deep(api: TokenApi, levels: int) -> str:
    header = f'{{"alg":"ES256","kid":"{api.key.id}","x":{"[" * levels}{"]" * levels}}}'
    _, payload, signature = signed(SigningKey(), claims("linux-a")).split(".")
    return ".".join([base64.urlsafe_b64encode(header.encode()).decode(), payload, signature])


async def test_forged_tokens_of_every_kind_cost_no_review(place: Place) -> None:
    genuine = [await place.pod() for _ in range(5)]
    assert await place.asked(genuine) == [204] * 5
    kinds = forged(place.api, await place.gate.planned())
    attack = [token for several in zip(*kinds.values(), strict=True) for token in several]
    late = [await place.pod() for _ in range(5)]
    answers, polled, new = await asyncio.gather(
        place.asked(attack, by=HOSTILE), place.asked(genuine * 10), place.asked(late)
    )
    assert set(answers) == {401}
    assert set(polled) == {204}
    assert new == [204] * 5
    assert Counter(place.api.reviewed) == Counter(genuine + late)
    assert place.api.key_reads == 1


async def test_without_keys_a_peer_gets_its_share_of_reviews_and_no_more(place: Place) -> None:
    """The Pod that forged tokens name still gets its own token reviewed."""
    place.api.published = None
    named = await place.gate.planned()
    attack = [signed(SigningKey(), claims(named)) for _ in range(3 * MANY)]
    answers = Counter(await place.asked(attack, by=HOSTILE))
    assert answers == {401: PEER_BURST, 503: 3 * MANY - PEER_BURST}
    assert len(place.api.reviewed) == PEER_BURST
    assert await place.asked([place.api.token(named)]) == [204]
    place.clock.advance(1)
    again = Counter(await place.asked(attack[-10:], by=HOSTILE))
    assert again == {401: 1, 503: 9}


async def test_pods_behind_one_address_are_not_limited_by_how_many_they_are(place: Place) -> None:
    place.api.published = None
    for _ in range(3):
        tokens = [await place.pod() for _ in range(PEER_BURST)]
        assert await place.asked(tokens) == [204] * PEER_BURST


async def test_a_rejected_token_is_reviewed_again_only_after_a_while(place: Place) -> None:
    gone = await place.gate.planned()
    place.api.deleted.add(gone)
    token = place.api.token(gone)
    for _ in range(MANY):
        assert await place.asked([token]) == [401]
    assert len(place.api.reviewed) == 1
    place.api.deleted.clear()
    place.clock.advance(REJECTED_FOR)
    assert await place.asked([token]) == [204]


async def test_reviews_that_are_not_answered_do_not_stop_known_pods(place: Place) -> None:
    known, new = await place.pod(), [await place.pod() for _ in range(PEER_BURST)]
    assert await place.asked([known]) == [204]
    place.api.answers.clear()
    waiting = asyncio.create_task(place.asked(new))
    async with asyncio.timeout(60):
        while place.api.at_once < CONNECTIONS:  # noqa: ASYNC110 -- the server's doing
            await asyncio.sleep(0.01)
    assert await place.asked([known]) == [204]
    place.api.answers.set()
    assert await waiting == [204] * PEER_BURST
    assert place.api.most_at_once == CONNECTIONS


async def test_reviews_have_connections_of_their_own(place: Place) -> None:
    """Requests that get no answer hold all connections for other requests."""
    place.api.lists.clear()
    lists = KubeCall("list", Resource("nodes"))
    async with asyncio.TaskGroup() as others:
        for _ in range(100):
            others.create_task(place.kube.api.get(lists, dict))
        try:
            async with asyncio.timeout(60):
                while place.api.listing < 16:  # noqa: ASYNC110 -- the server's doing
                    await asyncio.sleep(0.01)
            assert await place.asked([await place.pod()]) == [204]
        finally:
            place.api.lists.set()


async def test_a_new_signing_key_is_found_out(place: Place) -> None:
    assert await place.asked([await place.pod()]) == [204]
    place.clock.advance(READ_EVERY)
    place.api.key = SigningKey()
    place.api.published = [place.api.key]
    assert await place.asked([await place.pod()]) == [204]
    assert place.api.key_reads == 2


async def test_keys_that_are_not_those_of_the_tokens_reject_none(place: Place) -> None:
    place.api.published = [SigningKey()]
    pods = [await place.pod() for _ in range(3)]
    assert await place.asked(pods) == [204] * 3


async def test_keys_that_cannot_be_read_again_leave_it_to_reviews(place: Place) -> None:
    """I9"""
    assert await place.asked([await place.pod()]) == [204]
    place.clock.advance(READ_EVERY)
    place.api.key = SigningKey()
    place.api.published = None
    assert await place.asked([await place.pod(), await place.pod()]) == [204, 204]
