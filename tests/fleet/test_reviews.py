"""Kubernetes' answers to the question whose token it is, recorded from version 1.34.

`python -m tests.cluster.record_reviews` records them anew; the tokens themselves are left out.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from paddock.domain.pods.pod import Audience
from paddock.fleet.kube.reviews import TokenReview, identity, review_request
from paddock.fleet.kube.token_claims import AUDIENCES

EXAMPLES = Path(__file__).parent / "reviews"
RUNNER = "system:serviceaccount:runners:paddock-runner"
EXPIRY = datetime(2026, 11, 15, 13, 0, tzinfo=UTC)


def example(name: str, **status: Any) -> TokenReview:
    document = json.loads((EXAMPLES / f"{name}.json").read_text())
    document["status"] |= status
    return msgspec.convert(document, TokenReview)


def test_the_dispatch_token_of_a_pod() -> None:
    who = identity(example("dispatch"), expires_at=EXPIRY, service_account=RUNNER)
    assert who is not None
    recorded = json.loads((EXAMPLES / "dispatch.json").read_text())["status"]["user"]["extra"]
    assert who.pod_name == "linux-7k2m9x4b8c"
    assert [who.pod_uid] == recorded["authentication.kubernetes.io/pod-uid"]
    assert (who.audience, who.expires_at) == (Audience.DISPATCH, EXPIRY)


def test_the_token_for_vitals_is_only_that() -> None:
    who = identity(example("vitals"), expires_at=EXPIRY, service_account=RUNNER)
    assert who is not None
    assert who.audience is Audience.VITALS


@pytest.mark.parametrize(
    "review",
    [
        pytest.param(example("expired"), id="expired"),
        pytest.param(example("other-audience"), id="another audience"),
        pytest.param(example("pod-gone"), id="its Pod is gone"),
        pytest.param(example("invalid"), id="no token at all"),
        pytest.param(example("dispatch", authenticated=False), id="not vouched for"),
        pytest.param(example("dispatch", audiences=[]), id="no audience"),
        pytest.param(example("dispatch", audiences=list(AUDIENCES)), id="both audiences"),
        pytest.param(example("dispatch", user={"username": RUNNER}), id="no Pod"),
        pytest.param(
            example("dispatch", user={"username": "system:serviceaccount:other:paddock-runner"}),
            id="another namespace",
        ),
    ],
)
def test_what_is_not_a_pods_token_for_us_is_refused(review: TokenReview) -> None:
    """I21"""
    assert identity(review, expires_at=EXPIRY, service_account=RUNNER) is None


def test_a_review_asks_for_our_audiences_and_no_other() -> None:
    spec = review_request("t")["spec"]
    assert spec == {"token": "t", "audiences": ["paddock.dev/dispatch", "paddock.dev/vitals"]}
