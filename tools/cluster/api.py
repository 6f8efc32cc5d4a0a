"""A client independent of paddock, for tests to arrange objects and to read the real state.

The tested code talks to the cluster itself. This client has the administrator's certificate, or the
token it is given.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx2

#: A Pod takes 1 to 4 s on an idle machine, and this one is rarely idle.
PATIENCE_S: Final = 150.0
#: The time-out of one answer.
_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.2
#: An API server that starts or stops refuses requests with these messages, before it looks at them. Its
#: other refusals are final: a 429 is an eviction that a budget forbids.
_TRY_AGAIN: Final = frozenset({"storage is (re)initializing", "apiserver is shutting down"})
_APPLY: Final = "application/apply-patch+yaml"
_MERGE: Final = "application/merge-patch+json"

Json = dict[str, Any]


class Refused(Exception):
    """An unsuccessful answer, in the API server's own words."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Api:
    def __init__(
        self,
        server: str,
        *,
        authority: Path,
        pair: Path | None = None,
        token: str = "",
        patience: float = PATIENCE_S,
    ) -> None:
        """`pair` is a certificate; its key is beside it as `.key`. `patience`: how long to retry while
        a server is away, or has just come back."""
        self._patience = patience
        context = ssl.create_default_context(cafile=str(authority))
        if pair is not None:
            context.load_cert_chain(pair, pair.with_suffix(".key"))
        self._client = httpx2.AsyncClient(
            base_url=server,
            verify=context,
            headers={"authorization": f"Bearer {token}"} if token else {},
            timeout=_TIMEOUT_S,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._client.aclose()

    async def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> bytes:
        content = None if body is None else json.dumps(body).encode()
        headers = {"content-type": content_type} if content is not None else {}
        deadline = time.monotonic() + self._patience
        while True:
            try:
                answer = await self._client.request(
                    method, path, content=content, headers=headers, params=dict(query or {})
                )
            except httpx2.TransportError as error:
                if time.monotonic() > deadline or not _may_be_repeated(method, error):
                    raise
            else:
                if answer.is_success:
                    return answer.content
                message = _message(answer)
                if message not in _TRY_AGAIN or time.monotonic() > deadline:
                    raise Refused(answer.status_code, message)
            await asyncio.sleep(_POLL_S)

    async def get(self, path: str, **query: str) -> Json:
        return _json(await self.request("GET", path, query=query))

    async def create(self, path: str, body: Mapping[str, Any]) -> Json:
        return _json(await self.request("POST", path, body))

    async def patch(self, path: str, body: Mapping[str, Any]) -> Json:
        return _json(await self.request("PATCH", path, body, content_type=_MERGE))

    async def apply(self, path: str, body: Mapping[str, Any], *, manager: str = "tests") -> Json:
        """Server-side."""
        query = {"fieldManager": manager, "force": "true"}
        return _json(await self.request("PATCH", path, body, content_type=_APPLY, query=query))

    async def delete(self, path: str, **options: Any) -> Json:
        return _json(await self.request("DELETE", path, options or None))

    async def exists(self, path: str) -> bool:
        try:
            await self.request("GET", path)
        except Refused as refused:
            if refused.status != httpx2.codes.NOT_FOUND:
                raise
            return False
        return True

    async def log(self, namespace: str, pod: str, container: str) -> str:
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        return (await self.request("GET", path, query={"container": container})).decode(
            errors="replace"
        )

    async def token(
        self,
        namespace: str,
        service_account: str,
        *,
        audiences: list[str] | None = None,
        pod: Mapping[str, Any] | None = None,
        seconds: int = 3600,
    ) -> str:
        """Requests a token, as the kubelet does for a Pod if `pod` is given."""
        spec: Json = {"audiences": audiences or [], "expirationSeconds": seconds}
        if pod is not None:
            reference = {"name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
            spec["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", **reference}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        token = (await self.create(path, request))["status"]["token"]
        assert isinstance(token, str)
        return token

    async def until(
        self,
        path: str,
        seen: Callable[[Json], object],
        *,
        patience: float = PATIENCE_S,
    ) -> Json:
        """Waits until the object is as wanted; the error shows its last state."""
        deadline = time.monotonic() + patience
        last: object = None
        while time.monotonic() < deadline:
            try:
                found = await self.get(path)
                if seen(found):
                    return found
                last = found.get("status", found)
            except (Refused, httpx2.TransportError) as error:
                last = error
            await asyncio.sleep(_POLL_S)
        raise TimeoutError(f"{path} was not as awaited within {patience:.0f} s; last seen: {last}")

    async def until_gone(self, path: str, *, patience: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + patience
        while await self.exists(path):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{path} was still there after {patience:.0f} s")
            await asyncio.sleep(_POLL_S)


def _may_be_repeated(method: str, error: httpx2.TransportError) -> bool:
    """A request that creates something is repeated only if the server cannot have received it."""
    return method != "POST" or isinstance(error, httpx2.ConnectError)


def _json(content: bytes) -> Json:
    value = json.loads(content)
    assert isinstance(value, dict)
    return value


def _message(answer: httpx2.Response) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:300]
