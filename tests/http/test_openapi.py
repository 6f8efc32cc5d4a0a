"""schemathesis on the whole HTTP surface: every request is answered as documented, never with 5xx."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import requests
import schemathesis
from anyio.from_thread import start_blocking_portal
from hypothesis import HealthCheck, settings
from pydantic import SecretStr
from schemathesis.checks import negative_data_rejection, positive_data_acceptance
from schemathesis.specs.openapi.checks import ignored_auth

from paddock.domain.pods.pod import PodIdentity
from paddock.replica import FleetParts
from paddock.store.database import Database
from paddock.store.embedded import EmbeddedPostgres
from paddock.web import pods
from paddock.web.api import ROOT
from paddock.web.openapi import WEBHOOKS, document
from paddock.web.settings import DashboardSettings
from tests.conftest import TEMPLATE, fresh_database
from tests.support.fleetless import NoFleet
from tests.support.serving import served
from tests.support.webhooks import signature
from tests.support.world import World

pytestmark = pytest.mark.slow

TOKEN = "known"
OPERATOR = "an operator's token, long enough"
bounded = settings(
    max_examples=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


class Reviewer:
    """Knows one Pod."""

    def __init__(self, pod: PodIdentity) -> None:
        self._pod = pod

    async def review(self, token: str, *, peer: str) -> PodIdentity | None:
        return self._pod if token == TOKEN else None


@asynccontextmanager
async def _site(server: EmbeddedPostgres) -> AsyncIterator[str]:
    async with asynccontextmanager(fresh_database)(server, template=TEMPLATE) as database_url:
        database = await Database.connect(database_url)
        try:
            world = await World(database).begin()
            [pod] = await world.idle_pods(await world.pool(), 1)
            identity = PodIdentity(
                pod_name=pod.pod_name,
                pod_uid=f"uid-{pod.pod_name}",
                expires_at=datetime.now(UTC) + timedelta(hours=1),
            )
            parts = FleetParts(fleet=NoFleet(), reviewer=Reviewer(identity))
            dashboard = DashboardSettings(token=SecretStr(OPERATOR))
            async with served(database, fleet=parts, dashboard=dashboard) as site:
                yield site.url
        finally:
            await database.close()


@pytest.fixture(scope="module")
def url(postgres: EmbeddedPostgres) -> Iterator[str]:
    """In a thread of its own: schemathesis blocks."""
    with (
        pytest.MonkeyPatch.context() as patch,
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(_site(postgres)) as url,
    ):
        patch.setattr(pods, "LONGEST_WAIT", 0.02)
        patch.setattr(pods, "DEFAULT_WAIT", 0.02)
        yield url


def _signed() -> dict[str, Any]:
    """Without the signature, which the client adds."""
    described = document(with_pods=True)
    webhook = described["paths"][WEBHOOKS]["post"]
    webhook["parameters"] = [
        one for one in webhook["parameters"] if one["name"] != "X-Hub-Signature-256"
    ]
    return described | {"paths": {WEBHOOKS: {"post": webhook}}}


schema = schemathesis.openapi.from_dict(document(with_pods=True))
signed_schema = schemathesis.openapi.from_dict(_signed())


Case = schemathesis.Case[Any]


class Signed(requests.auth.AuthBase):
    """Signs any body as GitHub would."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        body = request.body or b""
        assert isinstance(body, str | bytes)
        request.headers["X-Hub-Signature-256"] = signature(
            body.encode() if isinstance(body, str) else body
        )
        return request


@schema.exclude(path_regex="^/api/").parametrize()
@bounded
def test_each_request_is_answered_as_documented(case: Case, url: str) -> None:
    case.call_and_validate(base_url=url)


@schema.include(path_regex="^/v1/").parametrize()
@bounded
def test_each_request_of_a_pod_is_answered_as_documented(case: Case, url: str) -> None:
    case.call_and_validate(
        base_url=url,
        headers={"Authorization": f"Bearer {TOKEN}"},
        # The token is added to every request, wrong or not, and a valid request may come too late.
        excluded_checks=[positive_data_acceptance, negative_data_rejection],
    )


@schema.include(path_regex="^/api/").exclude(path=f"{ROOT}/stream").parametrize()
@settings(bounded, max_examples=8)
def test_each_request_of_an_operator_is_answered_as_documented(case: Case, url: str) -> None:
    case.call_and_validate(
        base_url=url,
        headers={"Authorization": f"Bearer {OPERATOR}"},
        excluded_checks=[ignored_auth],
    )


def test_a_pods_body_that_is_not_utf_8_is_answered_400(url: str) -> None:
    answer = requests.post(
        f"{url}/v1/dispatch/ack",
        data=b'{"\xff": 1}',
        headers={"Authorization": f"Bearer {TOKEN}"},
        timeout=5,
    )
    assert answer.status_code == 400


@signed_schema.parametrize()
@bounded
def test_each_signed_body_is_answered_as_documented(case: Case, url: str) -> None:
    # JSON Schema cannot express all of the decoder's rules: 1.0 is an integer to it, and a form's
    # field any text. GitHub's own examples show that valid input is accepted (`tests/contract`).
    case.call_and_validate(base_url=url, auth=Signed(), excluded_checks=[positive_data_acceptance])


def test_the_description_is_the_one_that_is_served(url: str) -> None:
    assert requests.get(f"{url}/openapi.json", timeout=5).json() == document(with_pods=True)
