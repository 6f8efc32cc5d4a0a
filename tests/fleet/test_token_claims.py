"""What a token's own words tell, and that no words do harm."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from paddock.fleet.kube.token_claims import CLOCK_LEEWAY, Rejection, TokenClaims, screened

RUNNER = "system:serviceaccount:runners:paddock-runner"
NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
EXPIRY = datetime(2026, 11, 15, 13, 0, tzinfo=UTC)


def part(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def token(**claims: Any) -> str:
    said = {"aud": ["paddock.dev/dispatch"], "sub": RUNNER, "exp": int(EXPIRY.timestamp())}
    payload = json.dumps(
        {key: value for key, value in (said | claims).items() if value is not None}
    )
    return ".".join([part(b'{"alg":"ES256","kid":"k1"}'), part(payload.encode()), part(b"s" * 64)])


def told(text: str, now: datetime = NOW) -> TokenClaims | Rejection:
    return screened(text, service_account=RUNNER, now=now)


@pytest.mark.parametrize("audiences", [["paddock.dev/vitals", "others"], "paddock.dev/dispatch"])
def test_a_pods_token_is_left_to_the_review(audiences: Any) -> None:
    assert told(token(aud=audiences)) == TokenClaims("k1", EXPIRY)


def test_a_token_ends_by_a_clock_that_may_be_ahead() -> None:
    assert told(token(), EXPIRY) == TokenClaims("k1", EXPIRY)
    assert told(token(), EXPIRY + CLOCK_LEEWAY) is Rejection.EXPIRED


@pytest.mark.parametrize(
    ("audiences", "account", "why"),
    [
        ([], RUNNER, Rejection.AUDIENCE),
        (["https://kubernetes"], RUNNER, Rejection.AUDIENCE),
        (["paddock.dev/dispatch", "paddock.dev/vitals"], RUNNER, Rejection.AUDIENCE),
        (["paddock.dev/dispatch"], "system:serviceaccount:other:paddock-runner", Rejection.ACCOUNT),
    ],
)
def test_a_token_that_is_not_a_runners_is_rejected(
    audiences: list[str], account: str, why: Rejection
) -> None:
    """I21"""
    assert told(token(aud=audiences, sub=account)) is why


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "x",
        "..",
        "a.b.c",
        "é.é.é",
        f"{token()}.more",
        token().replace(".", ".\x00", 1),
        token(exp=None),
        token(exp="soon"),
        token(exp=10**30),
        token(exp=-(10**30)),
        token(aud=None),
        token(aud={"paddock.dev/dispatch": 1}),
        token(sub=7),
        ".".join([part(b"{}"), part(b"[" * 6000), part(b"s")]),
        ".".join([part(b'{"x":' * 1000), part(b"{}"), part(b"s")]),
        ".".join([part(b"{}"), part(b"\xff\xfe"), part(b"s")]),
    ],
)
def test_rubbish_is_rejected_without_harm(bad: str) -> None:
    assert told(bad) is Rejection.MALFORMED
