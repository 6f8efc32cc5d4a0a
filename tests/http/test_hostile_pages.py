"""Pods may report any vitals, and users choose any names: every page, answer and metric is still
served."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from paddock.domain.names import PodName
from paddock.domain.pods.pod import PodIdentity
from paddock.replica import FleetParts
from paddock.store.database import Database
from paddock.stories import tell
from paddock.web import pods
from tests.conftest import fresh_database
from tests.support.fleetless import NoFleet
from tests.support.hostile import controls, make_hostile
from tests.support.serving import Served, served
from tests.support.world import World

#: The least number, the least normal one, ordinary ones, and the largest that is kept.
EXTREMES = (0, -0.0, 5e-324, 2.2e-308, 1e-9, 1.5, 1767603600, 4e9, 2**53, 1e18)


class Reviewer:
    """Takes a Pod's name for its token."""

    async def review(self, token: str, *, peer: str) -> PodIdentity | None:
        until = datetime.now(UTC) + timedelta(hours=1)
        return PodIdentity(pod_name=PodName(token), pod_uid=f"uid-{token}", expires_at=until)


@dataclass
class Scene:
    site: Served
    world: World

    async def pod(self) -> str:
        [pod] = await self.world.idle_pods(await self.world.pool(), 1)
        return pod.pod_name

    async def report(self, pod: str, body: Any) -> int:
        answer = await self.site.client.post(
            "/v1/vitals", content=json.dumps(body), headers={"authorization": f"Bearer {pod}"}
        )
        return answer.status_code

    async def looks(self, pod: str) -> None:
        for path in (f"/runners/{pod}", f"/api/v1/runners/{pod}", "/", "/runners", "/metrics"):
            # A page that never ends fails the test here: the server answers nothing else meanwhile.
            async with asyncio.timeout(60):
                answer = await self.site.client.get(path)
            assert answer.status_code == 200, (path, answer.text)
            if path.startswith("/api"):
                json.loads(answer.text, parse_constant=pytest.fail)
            else:
                assert controls(answer.text.replace("\t", "")) == set()
        for details in await self.world.reading.find(pod):
            assert tell(details, now=datetime.now(UTC)).remarks is not None


@pytest.fixture
async def scene(database: Database, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setattr(pods, "_VITALS_GAP", 0.0)
    world = await World(database).begin()
    parts = FleetParts(fleet=NoFleet(), reviewer=Reviewer())
    async with served(database, fleet=parts, open_to_this_machine=True) as site:
        yield Scene(site, world)


@pytest.mark.slow
async def test_vitals_of_any_size_are_shown(scene: Scene) -> None:
    """The smallest number crashed the page; two samples at almost the same time made it run for
    ever."""
    for value in EXTREMES:
        pod = await scene.pod()
        whole = [[1767603600 + 5 * number, *[value] * 9] for number in range(3)]
        body = {"samples": whole, "job_started_at": min(value, 4e9)}
        assert await scene.report(pod, body) == 204
        await scene.looks(pod)
        for place in (
            0,
            6,
        ):  # memory without a limit, which decides how it is drawn; seconds of CPU
            pod = await scene.pod()
            single = [[at, *[None] * place, at and value] for at in (0, 5, 10)]
            assert await scene.report(pod, {"samples": single}) == 204
            await scene.looks(pod)


@pytest.mark.slow
async def test_vitals_at_any_times_are_shown(scene: Scene) -> None:
    """A rate divides a number by a time, and the Pod chooses both."""
    for first, second in itertools.pairwise((*EXTREMES, 5e-324)):
        pod = await scene.pod()
        low, high = sorted((first, second))
        samples = [[low, *[0] * 9], [high, *[1e18] * 9]]
        assert await scene.report(pod, {"samples": samples}) == 204
        await scene.looks(pod)


@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "-Infinity", "1e309", "-1", "1e19", "-5e-324"]
)
async def test_what_is_no_amount_is_refused(scene: Scene, number: str) -> None:
    pod = await scene.pod()
    for body in (
        '{"samples": [[%s]]}',
        '{"samples": [[1, %s]]}',
        '{"samples": [], "job_started_at": %s}',
    ):
        answer = await scene.site.client.post(
            "/v1/vitals", content=body % number, headers={"authorization": f"Bearer {pod}"}
        )
        assert answer.status_code == 400, answer.text
    await scene.looks(pod)


PAGES = (
    *("/", "/jobs", "/jobs?refused=true", "/runners", "/runners?live=false", "/pools", "/accounts"),
    *(
        "/pools/linux-x64",
        "/endings",
        "/recovery?noteworthy=",
        "/deliveries",
        "/settings",
        "/nothing",
    ),
)


async def test_names_that_others_chose_are_shown_as_text_on_every_page(
    postgres: Any, chaotic_template: str
) -> None:
    async for url in fresh_database(postgres, template=chaotic_template):
        database = await Database.connect(url, application_name="paddock-test")
        try:
            await make_hostile(database)
            [job] = await database.rows("SELECT id FROM jobs WHERE refusal IS NOT NULL")
            [dead] = await database.rows(
                "SELECT r.id FROM runners r JOIN verdicts v ON v.runner_id = r.id"
                " WHERE v.log_tail IS NOT NULL ORDER BY r.id LIMIT 1"
            )
            async with served(database, open_to_this_machine=True) as site:
                for path in (*PAGES, f"/jobs/{job[0]}", f"/runners/{dead[0]}"):
                    answer = await site.client.get(path)
                    assert answer.status_code == (404 if path == "/nothing" else 200), path
                    assert controls(answer.text) == set(), path
        finally:
            await database.close()
