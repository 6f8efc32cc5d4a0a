"""A JIT configuration in the real layout: base64 of JSON, file name to base64 of its content.

Only the key is not real. GitHub makes an RSA key for each runner; making one takes longer than all
else the fake does together, and could not be seeded. The parameters are random octets of the right
sizes, and the private exponent serves the fake's own runner protocol as a password.
"""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

import msgspec

from paddock.fakes.github.records import Runner

#: Octets of each parameter of a 2048 bit key.
_RSA_SIZES = {
    "d": 256,
    "dp": 128,
    "dq": 128,
    "exponent": 3,
    "inverseQ": 128,
    "modulus": 256,
    "p": 128,
    "q": 128,
}


def _b64(octets: bytes) -> str:
    return base64.b64encode(octets).decode()


class Key(NamedTuple):
    parameters: dict[str, str]

    @property
    def secret(self) -> str:
        return self.parameters["d"]


def make_key(random_octets: bytes) -> Key:
    """`random_octets`: at least `KEY_OCTETS` of them."""
    parameters, start = {}, 0
    for name, size in _RSA_SIZES.items():
        parameters[name] = _b64(random_octets[start : start + size])
        start += size
    return Key(parameters | {"exponent": "AQAB"})


KEY_OCTETS = sum(_RSA_SIZES.values())


def encode(runner: Runner, key: Key, *, api_url: str, html_url: str, work_folder: str) -> str:
    settings: dict[str, Any] = {
        "AgentId": runner.id,
        "AgentName": runner.name,
        "DisableUpdate": True,
        "Ephemeral": True,
        "PoolId": runner.group.id,
        "PoolName": runner.group.name,
        "ServerUrl": f"{api_url}/_runner/",
        "GitHubUrl": f"{html_url}/{runner.scope}",
        "WorkFolder": work_folder,
        "UseV2Flow": True,
        "ServerUrlV2": f"{api_url}/_runner/",
    }
    credentials = {
        "Scheme": "OAuth",
        "Data": {
            "ClientId": runner.client_id,
            "AuthorizationUrl": f"{api_url}/_runner/token",
            "RequireFipsCryptography": "True",
        },
    }
    files = {
        ".runner": settings,
        ".credentials": credentials,
        ".credentials_rsaparams": key.parameters,
    }
    return _b64(
        msgspec.json.encode(
            {name: _b64(msgspec.json.encode(content)) for name, content in files.items()}
        )
    )
