"""Webhooks as GitHub signs and sends them."""

from __future__ import annotations

import hashlib
import hmac
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import msgspec
from pydantic import SecretStr

from paddock.domain.github.budgets import BudgetLimits
from paddock.domain.github.objects import GitHubAppId, GitHubHost
from paddock.github.apps import GitHubApp

PATH = "/webhooks/github"
SECRET = "It's a Secret to Everybody"


def app(number: int = 12, *secrets: str, host: str = "github.com") -> GitHubApp:
    return GitHubApp(
        host=GitHubHost(host),
        app_id=GitHubAppId(number),
        api_url=f"https://{host}/api/v3",
        private_key_file=Path("/nonexistent"),
        webhook_secrets=tuple(map(SecretStr, secrets or (SECRET,))),
        limits=BudgetLimits(),
    )


def signature(body: bytes, secret: str = SECRET) -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def encoded(payload: Mapping[str, Any] | bytes) -> bytes:
    return payload if isinstance(payload, bytes) else msgspec.json.encode(payload)


def form(payload: Mapping[str, Any] | bytes) -> bytes:
    return b"payload=" + quote_plus(encoded(payload)).encode()


def headers(
    body: bytes,
    *,
    secret: str = SECRET,
    event: str = "workflow_job",
    guid: str | None = None,
    content_type: str = "application/json",
    **others: str,
) -> dict[str, str]:
    """The headers that GitHub sends; `others` (with _ for -) are set on top."""
    return {
        "Content-Type": content_type,
        "User-Agent": "GitHub-Hookshot/fa1ce00",
        "X-GitHub-Delivery": guid or str(uuid.uuid4()),
        "X-GitHub-Event": event,
        "X-GitHub-Hook-Installation-Target-Type": "integration",
        "X-Hub-Signature-256": signature(body, secret),
        **{name.replace("_", "-"): value for name, value in others.items()},
    }


def raw(headers: Mapping[str, str]) -> dict[bytes, bytes]:
    """As ASGI passes them on."""
    return {name.lower().encode(): value.encode("latin-1") for name, value in headers.items()}
