"""A JIT configuration: base64 of JSON, file name to base64 of its content. And the RSA keys in it.

All scalars are texts, as GitHub sends them; github-act-runner refuses numbers and booleans. Addresses
end with a slash: runners resolve names relative to them.

GitHub makes a key for each runner. Making one takes longer than all the fake's other work, and could
not be seeded. So the keys are fixed and public: they prove to a fake which runner calls, and protect
nothing. Runners share them; a runner is known by its client id.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey, RSAPublicNumbers

from paddock.fakes.github.records import Runner
from paddock.fakes.github.runner_ids import BROKER_PATH, TOKEN_PATH

_EXPONENT: Final = 65537
_MODULUS_OCTETS: Final = 256
_PRIME_OCTETS: Final = 128

#: The two primes of each key: all else of a key follows from them.
_PRIMES: Final = msgspec.json.decode(
    (Path(__file__).parent / "runner_keys.json").read_bytes(), type=list[dict[str, str]]
)

_COUNT: Final = len(_PRIMES)


@dataclass(frozen=True)
class RunnerKey:
    """The format of `.credentials_rsaparams`: base64 of big-endian octets."""

    parameters: dict[str, str]
    public: RSAPublicKey
    #: The parameters as this file of the JIT configuration.
    file: str

    @property
    def secret(self) -> str:
        """The private exponent. In the same process it is proof enough of holding the JIT."""
        return self.parameters["d"]


def runner_key(number: int) -> RunnerKey:
    """Any number; the same one is the same key in every process."""
    return _key(number % _COUNT)


@cache
def _key(number: int) -> RunnerKey:
    primes = _PRIMES[number]
    p, q = (int.from_bytes(base64.b64decode(prime), "big") for prime in (primes["p"], primes["q"]))
    d = pow(_EXPONENT, -1, (p - 1) * (q - 1))
    parameters = {
        "d": _octets(d, _MODULUS_OCTETS),
        "dp": _octets(d % (p - 1), _PRIME_OCTETS),
        "dq": _octets(d % (q - 1), _PRIME_OCTETS),
        "exponent": _octets(_EXPONENT, 3),
        "inverseQ": _octets(pow(q, -1, p), _PRIME_OCTETS),
        "modulus": _octets(p * q, _MODULUS_OCTETS),
        "p": _octets(p, _PRIME_OCTETS),
        "q": _octets(q, _PRIME_OCTETS),
    }
    return RunnerKey(
        parameters,
        RSAPublicNumbers(_EXPONENT, p * q).public_key(),
        base64.b64encode(msgspec.json.encode(parameters)).decode(),
    )


def _octets(value: int, size: int) -> str:
    return base64.b64encode(value.to_bytes(size, "big")).decode()


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
