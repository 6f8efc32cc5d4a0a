"""Which App signed a request, and what the request contains."""

from __future__ import annotations

import hmac
from typing import Any

import pytest

from paddock.domain.github.deliveries import NewDelivery
from paddock.domain.github.objects import AppKey, GitHubAppId, GitHubHost
from paddock.domain.ids import AppId, HostId
from paddock.github import webhooks
from paddock.github.webhooks import (
    Malformed,
    NotOurs,
    Signatures,
    WrongContentType,
    read_webhook,
)
from tests.support.payloads import workflow_job
from tests.support.webhooks import SECRET, app, encoded, form, headers, raw

BODY = encoded(workflow_job(job=77))


def key(number: int = 12, host: str = "github.com") -> AppKey:
    return AppKey(host=GitHubHost(host), app=GitHubAppId(number))


def signer(signatures: Signatures, body: bytes = BODY, /, **sent: str) -> AppKey:
    return signatures.signer(raw(headers(body, **sent)), body)


def read(body: bytes = BODY, /, **sent: str) -> NewDelivery:
    return read_webhook(raw(headers(body, **sent)), body, host=HostId(1), app=AppId(2))


def test_what_an_app_signed_is_its_own() -> None:
    assert signer(Signatures([app()])) == key()


def test_githubs_own_example_is_understood() -> None:
    """The values GitHub's documentation gives to test an implementation with."""
    given = b"sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    body = b"Hello, World!"
    assert Signatures([app()]).signer({b"x-hub-signature-256": given}, body) == key()


@pytest.mark.parametrize("secret", ["old", "new"])
def test_while_a_secret_is_changed_both_are_valid(secret: str) -> None:
    assert signer(Signatures([app(12, "old", "new")]), secret=secret) == key()


def test_a_secret_that_was_taken_away_is_not_valid_any_more() -> None:
    with pytest.raises(NotOurs, match="none of the webhook secrets"):
        signer(Signatures([app(12, "new")]), secret="old")


def test_one_changed_byte_makes_it_unsigned() -> None:
    sent = raw(headers(BODY))
    with pytest.raises(NotOurs):
        Signatures([app()]).signer(sent, BODY.replace(b"77", b"78"))


@pytest.mark.parametrize(
    "given",
    [
        None,
        "",
        "sha256=",
        "sha256=xyz",
        "sha1=" + "0" * 40,
        "0" * 64,
        "sha256=" + "0" * 63,
        "ÿ" * 71,
    ],
)
def test_a_request_without_a_proper_signature_is_refused(given: str | None) -> None:
    sent = headers(BODY)
    del sent["X-Hub-Signature-256"]
    if given is not None:
        sent["X-Hub-Signature-256"] = given
    with pytest.raises(NotOurs, match="X-Hub-Signature-256"):
        Signatures([app()]).signer(raw(sent), BODY)


def test_signatures_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return False

    monkeypatch.setattr("hmac.compare_digest", compare)
    with pytest.raises(NotOurs):
        signer(Signatures([app()]))
    digest = hmac.digest(SECRET.encode(), BODY, "sha256")
    assert compared == [(digest, digest)]


TWO_HOSTS = Signatures([app(12, "one"), app(12, "other", host="github.example.org")])


@pytest.mark.parametrize("target", [None, "12", "99", "rubbish"])
@pytest.mark.parametrize(
    ("secret", "host"), [("one", "github.com"), ("other", "github.example.org")]
)
def test_the_host_follows_from_the_signature_and_not_from_headers(
    target: str | None, secret: str, host: str
) -> None:
    """I71"""
    sent = {"X_GitHub_Enterprise_Host": "github.example.org"}
    if target is not None:
        sent["X_GitHub_Hook_Installation_Target_ID"] = target
    assert signer(TWO_HOSTS, secret=secret, **sent) == key(12, host)


def test_two_hosts_may_not_share_a_secret() -> None:
    """I71: either could speak for the other."""
    with pytest.raises(ValueError, match=r"github\.com and on github\.example\.org have the same"):
        Signatures([app(12), app(13, host="github.example.org")])


def test_two_apps_of_a_host_that_share_a_secret_are_told_apart_by_their_number() -> None:
    signatures = Signatures([app(12), app(13)])
    for number in (12, 13):
        sent = {"X_GitHub_Hook_Installation_Target_ID": str(number)}
        assert signer(signatures, **sent) == key(number)


def test_a_header_does_not_make_another_app_of_the_signer() -> None:
    signatures = Signatures([app(12, "one"), app(13, "other")])
    assert signer(signatures, secret="one", X_GitHub_Hook_Installation_Target_ID="13") == key(12)


def test_an_empty_secret_is_refused() -> None:
    with pytest.raises(ValueError, match=r"App 12 on github\.com has an empty webhook secret"):
        Signatures([app(12, "fine", "")])


def test_a_delivery_is_read_with_what_is_needed_to_store_it() -> None:
    assert read(guid="72d3162e-cc78-11e3-81ab-4c9367dc0958") == NewDelivery(
        host=HostId(1),
        app=AppId(2),
        guid="72d3162e-cc78-11e3-81ab-4c9367dc0958",
        event="workflow_job",
        action="queued",
        installation=1001,
        payload=BODY,
    )


@pytest.mark.parametrize("content_type", ["application/json", "Application/JSON; charset=utf-8"])
def test_json_is_kept_byte_for_byte(content_type: str) -> None:
    body = b'{ "action" : "queued" }'
    assert read(body, content_type=content_type).payload == body


def test_a_form_is_kept_as_the_json_in_it() -> None:
    body = encoded(workflow_job(name="50 % + ü & = 1"))
    found = read(form(body), content_type="application/x-www-form-urlencoded")
    assert (found.payload, found.action) == (body, "queued")


def test_an_event_needs_neither_action_nor_installation() -> None:
    found = read(b'{"zen": "Design for failure."}', event="ping")
    assert (found.event, found.action, found.installation) == ("ping", None, None)


@pytest.mark.parametrize(
    ("sent", "wrong"),
    [
        ({"event": ""}, "X-GitHub-Event"),
        ({"event": "workflow job"}, "X-GitHub-Event"),
        ({"event": "a" * 65}, "X-GitHub-Event"),
        ({"X_GitHub_Delivery": ""}, "X-GitHub-Delivery"),
        ({"guid": "x" * 65}, "X-GitHub-Delivery"),
        ({"guid": "a/b"}, "X-GitHub-Delivery"),
        ({"guid": "a\n"}, "X-GitHub-Delivery"),
        ({"guid": "é"}, "X-GitHub-Delivery"),
    ],
)
def test_headers_that_could_not_be_githubs_are_refused(sent: dict[str, str], wrong: str) -> None:
    with pytest.raises(Malformed, match=f"{wrong} is missing or"):
        read(**sent)


@pytest.mark.parametrize(
    "content_type", ["", "text/plain", "application/jsonp", "multipart/form-data"]
)
def test_other_encodings_are_refused_by_name(content_type: str) -> None:
    with pytest.raises(WrongContentType, match="application/json or application/x-www"):
        read(content_type=content_type)


@pytest.mark.parametrize("body", [b"", b"payloads=%7B%7D", b"a=b&c", b"%70ayload=%7B%7D"])
def test_a_form_without_a_payload_is_refused(body: bytes) -> None:
    with pytest.raises(Malformed, match="no field named payload"):
        read(body, content_type="application/x-www-form-urlencoded")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"text"',
        BODY[:-1],
        BODY[: len(BODY) // 2],
        BODY + b"}",
        b'{"action": 1}',
        b'{"action": "\\u0000"}',
        b'{"action": "%s"}' % (b"a" * 101),
        b'{"installation": 1}',
        b'{"installation": {}}',
        b'{"installation": {"id": "1"}}',
        b'{"installation": {"id": -1}}',
        b'{"installation": {"id": 9223372036854775808}}',
        b'{"name": "\xff"}',
        b'{"action": "\xff"}',
        '{"action": "queued"}'.encode("utf-16"),
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"[" * 1_000_000,
        b'{"a": NaN}',
        b"\x1f\x8b\x08",
    ],
    ids=lambda body: repr(body[:40]),
)
def test_what_is_not_an_events_json_is_refused_in_a_sentence(body: bytes) -> None:
    """I13: no input reaches the table that could not be stored in it."""
    with pytest.raises(Malformed, match=r"^The payload is not .*\.$"):
        read(body)


@pytest.mark.parametrize("event", sorted(webhooks.APPLIED_EVENTS | {webhooks.PING}))
def test_the_names_of_applied_events_are_names(event: str) -> None:
    assert read(event=event).event == event


def test_no_sentence_quotes_what_was_sent() -> None:
    said: list[Any] = []
    for body in (b'{"action": 1, "x": "hush-hush"}', b"hush-hush", b'{"hush-hush'):
        with pytest.raises(Malformed) as raised:
            read(body)
        said.append(raised.value)
    with pytest.raises(NotOurs) as refused:
        signer(Signatures([app(12, "hush-hush")]))
    said.append(refused.value)
    assert "hush-hush" not in str(said)
