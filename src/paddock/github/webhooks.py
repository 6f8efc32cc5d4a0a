"""Whether a request is a webhook of one of our Apps, and which.

No part of a request is trusted before its signature is checked. The signature proves only that the
sender of this body knows the secret. So the secret that signed a body determines the host of its ids
(I71), never a header, and no two hosts may share a secret.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec

from paddock.domain.github.deliveries import NewDelivery
from paddock.domain.github.objects import AppKey, GitHubHost
from paddock.domain.ids import AppId, HostId
from paddock.github.apps import GitHubApp
from paddock.github.payloads import Action, InstallationReference, PayloadError

#: The events that paddock acts on. All other events are acknowledged and counted.
APPLIED_EVENTS: Final = frozenset({"workflow_job", "installation", "installation_repositories"})
PING: Final = "ping"

SIGNATURE: Final = b"x-hub-signature-256"
EVENT: Final = b"x-github-event"
GUID: Final = b"x-github-delivery"
TARGET: Final = b"x-github-hook-installation-target-id"
CONTENT_TYPE: Final = b"content-type"

JSON_TYPE: Final = "application/json"
FORM_TYPE: Final = "application/x-www-form-urlencoded"

# GitHub's GUIDs are UUIDs of 36 characters; their column holds 64.
GUID_PATTERN: Final = r"^[0-9A-Za-z-]{1,64}$"
EVENT_PATTERN: Final = r"^[a-z][a-z_]{0,63}$"
SIGNATURE_PATTERN: Final = r"^sha256=[0-9a-f]{64}$"

_is_guid = re.compile(GUID_PATTERN.encode()).fullmatch
_is_event = re.compile(EVENT_PATTERN.encode()).fullmatch
_is_signature = re.compile(SIGNATURE_PATTERN.encode()).fullmatch

_FORM_FIELD: Final = b"payload="


class NotOurs(Exception):
    """Not signed with a secret that is valid now. The message says what was missing, never what was
    sent."""


class Malformed(Exception):
    """Signed, but not a webhook. The sentence is for an operator who reads GitHub's delivery list."""


class WrongContentType(Malformed):
    """A webhook in an encoding GitHub does not offer."""


class Envelope(msgspec.Struct, frozen=True):
    """The fields that all events have. Decoding it also proves that the body is JSON."""

    action: Action | None = None
    installation: InstallationReference | None = None


_envelope = msgspec.json.Decoder(Envelope)


class Signatures:
    """The secrets of all Apps; an App has several while its secret is being changed. Raises
    `ValueError` with a sentence for the user if secrets cannot be used."""

    def __init__(self, apps: Iterable[GitHubApp]) -> None:
        secrets: list[tuple[AppKey, bytes]] = []
        hosts: dict[bytes, GitHubHost] = {}
        for app in apps:
            for wrapped in app.webhook_secrets:
                secret = wrapped.get_secret_value().encode()
                if not secret:
                    raise ValueError(
                        f"{app.key} has an empty webhook secret, with which any sender can sign: set "
                        "the one that GitHub has."
                    )
                if hosts.setdefault(secret, app.host) != app.host:
                    raise ValueError(
                        f"Apps on {hosts[secret]} and on {app.host} have the same webhook secret, so "
                        "either host could speak for the other: give each its own."
                    )
                secrets.append((app.key, secret))
        self._secrets = tuple(secrets)
        # A header may name the App, whose secrets are then tried first. The header affects only this
        # order, and so which App is found if two Apps of one host share a secret.
        self._likely = {
            str(app).encode(): tuple(sorted(secrets, key=lambda one: one[0].app != app))
            for app in {key.app for key, _ in secrets}
        }

    def signer(self, headers: Mapping[bytes, bytes], body: bytes) -> AppKey:
        """The App whose secret signed the body; `NotOurs` if there is none."""
        given = headers.get(SIGNATURE)
        if given is None:
            raise NotOurs("The request has no X-Hub-Signature-256.")
        if not _is_signature(given):
            raise NotOurs("The request's X-Hub-Signature-256 is not sha256= and 64 digits.")
        signature = bytes.fromhex(given[7:].decode())
        target = headers.get(TARGET)
        likely = self._secrets if target is None else self._likely.get(target, self._secrets)
        for app, secret in likely:
            if hmac.compare_digest(hmac.digest(secret, body, "sha256"), signature):
                return app
        raise NotOurs("The request is signed with none of the webhook secrets that are valid now.")


def read_webhook(
    headers: Mapping[bytes, bytes], body: bytes, *, host: HostId, app: AppId
) -> NewDelivery:
    """The delivery in a request that `app` on `host` signed; raises `Malformed` if there is none. The
    payload is JSON, also if the request was form-encoded."""
    event, guid = headers.get(EVENT), headers.get(GUID)
    if event is None or not _is_event(event):
        raise Malformed("X-GitHub-Event is missing or is no event's name.")
    if guid is None or not _is_guid(guid):
        raise Malformed("X-GitHub-Delivery is missing or is no delivery's GUID.")
    payload = _payload(headers, body)
    try:
        # Checks the encoding: the decoder skips fields it does not need without checking their text.
        payload.decode()
        envelope = _envelope.decode(payload)
    except UnicodeDecodeError as error:
        raise Malformed(f"The payload is not UTF-8 (from byte {error.start} on).") from None
    except PayloadError as error:
        raise Malformed(f"The payload is not an event's JSON: {error}.") from None
    return NewDelivery(
        host=host,
        app=app,
        guid=guid.decode(),
        event=event.decode(),
        action=envelope.action,
        installation=envelope.installation.id if envelope.installation else None,
        payload=payload,
    )


def _payload(headers: Mapping[bytes, bytes], body: bytes) -> bytes:
    kind = headers.get(CONTENT_TYPE, b"").partition(b";")[0].strip().lower().decode("latin-1")
    if kind == JSON_TYPE:
        return body
    if kind != FORM_TYPE:
        raise WrongContentType(f"Webhooks come as {JSON_TYPE} or {FORM_TYPE}.")
    for field in body.split(b"&"):
        if field.startswith(_FORM_FIELD):
            return unquote_to_bytes(field[len(_FORM_FIELD) :].replace(b"+", b" "))
    raise Malformed("The form has no field named payload.")
