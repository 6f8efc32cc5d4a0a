"""A JIT configuration: base64 of JSON, file name to base64 of its content.

All scalars are texts, as GitHub sends them; github-act-runner refuses numbers and booleans. Addresses
end with a slash: runners resolve names relative to them.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from paddock.fakes.github.records import Runner
from paddock.fakes.github.runner_ids import BROKER_PATH, TOKEN_PATH
from paddock.fakes.github.runner_keys import runner_key


def _b64(octets: bytes) -> str:
    return base64.b64encode(octets).decode()


def encode(runner: Runner, *, api_url: str, html_url: str, work_folder: str) -> str:
    broker_url = f"{api_url}{BROKER_PATH}/"
    settings: dict[str, Any] = {
        "AgentId": str(runner.id),
        "AgentName": runner.name,
        "Ephemeral": "True",
        "PoolId": str(runner.group.id),
        "PoolName": runner.group.name,
        "ServerUrl": broker_url,
        "ServerUrlV2": broker_url,
        "GitHubUrl": f"{html_url}/{runner.scope}",
        "WorkFolder": work_folder,
        "UseV2Flow": "True",
    }
    credentials = {
        "Scheme": "OAuth",
        "Data": {
            "ClientId": runner.client_id,
            "AuthorizationUrl": f"{api_url}{TOKEN_PATH}",
            "RequireFipsCryptography": "True",
        },
    }
    files = {
        ".runner": _b64(msgspec.json.encode(settings)),
        ".credentials": _b64(msgspec.json.encode(credentials)),
        ".credentials_rsaparams": runner_key(runner.id).file,
    }
    return _b64(msgspec.json.encode(files))
