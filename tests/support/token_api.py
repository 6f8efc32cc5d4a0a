"""The token part of an API server: it issues and reviews tokens, publishes its keys, and counts."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from paddock.web.server import bind, serving, url_of

NAMESPACE, ACCOUNT = "runners", "paddock-runner"
RUNNER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
DISPATCH = "paddock.dev/dispatch"
_EXTRA = "authentication.kubernetes.io"
_KEYS_TYPE = "application/jwk-set+json"


class SigningKey:
    def __init__(self) -> None:
        self.id = secrets.token_hex(8)
        self.private = ec.generate_private_key(ec.SECP256R1())

    @property
    def public(self) -> dict[str, Any]:
        made: dict[str, Any] = ECAlgorithm.to_jwk(self.private.public_key(), as_dict=True)
        return made | {"kid": self.id, "alg": "ES256", "use": "sig"}


def claims(pod: str, **others: Any) -> dict[str, Any]:
    """As Kubernetes writes them."""
    now = int(time.time())
    return {
        "aud": [DISPATCH],
        "exp": now + 3600,
        "iat": now,
        "iss": "https://kubernetes.default.svc.cluster.local",
        "jti": secrets.token_hex(16),
        "kubernetes.io": {
            "namespace": NAMESPACE,
            "pod": {"name": pod, "uid": f"uid-{pod}"},
            "serviceaccount": {"name": ACCOUNT, "uid": "uid-account"},
        },
        "nbf": now,
        "sub": RUNNER,
    } | others


def signed(key: SigningKey, said: dict[str, Any], *, key_id: str | None = None) -> str:
    headers = {"kid": key_id or key.id}
    return jwt.encode(said, key.private, algorithm="ES256", headers=headers)


class TokenApi:
    def __init__(self) -> None:
        self.key = SigningKey()
        #: The keys that it publishes; `None`: it refuses to.
        self.published: list[SigningKey] | None = [self.key]
        self.deleted: set[str] = set()
        self.reviewed: list[str] = []
        self.key_reads = 0
        self.at_once = self.most_at_once = 0
        #: Unset: it does not answer reviews.
        self.answers = asyncio.Event()
        self.answers.set()
        #: Unset: it does not answer lists of nodes.
        self.lists = asyncio.Event()
        self.lists.set()
        self.listing = 0

    def token(self, pod: str, **others: Any) -> str:
        return signed(self.key, claims(pod, **others))

    async def review(self, request: Request) -> JSONResponse:
        asked = (await request.json())["spec"]
        self.reviewed.append(asked["token"])
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.answers.wait()
        finally:
            self.at_once -= 1
        status = self._status(asked["token"], asked["audiences"])
        return JSONResponse({"status": status}, status_code=201)

    def _status(self, token: str, audiences: list[str]) -> dict[str, Any]:
        try:
            said = jwt.decode(
                token, self.key.private.public_key(), algorithms=["ES256"], audience=audiences
            )
        except jwt.InvalidTokenError as error:
            return {"error": str(error)}
        pod = said["kubernetes.io"]["pod"]
        if pod["name"] in self.deleted:
            return {"error": "the Pod is gone"}
        return {
            "authenticated": True,
            "audiences": [each for each in audiences if each in said["aud"]],
            "user": {
                "username": said["sub"],
                "extra": {f"{_EXTRA}/pod-name": [pod["name"]], f"{_EXTRA}/pod-uid": [pod["uid"]]},
            },
        }

    async def keys(self, request: Request) -> JSONResponse:
        self.key_reads += 1
        # Like the real one: it offers this type and no other.
        if _KEYS_TYPE not in request.headers.get("accept", ""):
            return JSONResponse({"message": f"only {_KEYS_TYPE}"}, status_code=406)
        if self.published is None:
            return JSONResponse({"message": "forbidden"}, status_code=403)
        keys = {"keys": [each.public for each in self.published]}
        return JSONResponse(keys, media_type=_KEYS_TYPE)

    async def nodes(self, _: Request) -> JSONResponse:
        self.listing += 1
        await self.lists.wait()
        return JSONResponse({"metadata": {}, "items": []})

    @asynccontextmanager
    async def kubeconfig(self, directory: Path) -> AsyncIterator[Path]:
        """Serves; yields its address."""
        app = Starlette(
            routes=[
                Route("/apis/authentication.k8s.io/v1/tokenreviews", self.review, methods=["POST"]),
                Route("/openid/v1/jwks", self.keys),
                Route("/api/v1/nodes", self.nodes),
            ]
        )
        with bind(("127.0.0.1", 0)) as listener:
            named = {"name": "test"}
            written = {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [named | {"cluster": {"server": url_of(listener)}}],
                "users": [named | {"user": {}}],
                "contexts": [named | {"context": {"cluster": "test", "user": "test"}}],
                "current-context": "test",
            }
            file = directory / "kubeconfig"
            file.write_text(json.dumps(written))
            async with serving(app, listener):
                yield file
