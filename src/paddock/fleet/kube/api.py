"""HTTP requests to the Kubernetes API server, and each failure as one sentence.

lightkube finds the cluster, its certificates and our credentials, and renews them. Its requests are
not used: they cannot name a UID as a precondition (I36), cannot ask for bookmarks, and cannot tell a
truncated list from a complete one (I29).
"""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import httpx2
import msgspec
from lightkube.config.client_adapter import ConnectionParams
from lightkube.config.kubeconfig import KubeConfig
from lightkube.core.exceptions import ConfigError
from prometheus_client import Counter

from paddock.ports import FleetUnavailable

T = TypeVar("T")

#: An API server answers in milliseconds. After a restart it is back within seconds.
_TIMEOUT: Final = httpx2.Timeout(15.0, connect=5.0)
#: An API server sends a bookmark about every minute. If a watch is silent for longer than this, a proxy
#: or firewall has dropped the connection.
SILENCE: Final = 150.0
#: An answer takes milliseconds, so this many connections serve hundreds of requests per second. More
#: would only add handshakes.
_CONNECTIONS: Final = 16
#: Seconds that idle connections stay open: rounds of requests are seconds apart.
_KEPT_FOR: Final = 60.0
#: No compression: lists stay within the cluster, where there is more bandwidth than CPU.
_HEADERS: Final = {
    "User-Agent": "paddock",
    # The API server offers its token-signing keys only under a type of their own.
    "Accept": "application/json, application/jwk-set+json",
    "Accept-Encoding": "identity",
}

REQUESTS = Counter(
    "paddock_kubernetes_requests_total", "Requests to the API server.", ["verb", "resource"]
)

#: The deepest level of an answer that is read. The interpreter's stack has a thousand levels.
LEVELS: Final = 200
_TOKENS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]')

MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"


@dataclass(frozen=True, slots=True)
class Resource:
    plural: str
    group: str = ""
    version: str = "v1"
    namespace: str | None = None

    def path(self, name: str | None = None, sub: str | None = None) -> str:
        root = f"apis/{self.group}/{self.version}" if self.group else f"api/{self.version}"
        parts = (root, *(("namespaces", self.namespace) if self.namespace else ()), self.plural)
        return "/" + "/".join([*parts, *filter(None, (name, sub))])

    def named(self, sub: str | None = None) -> str:
        """The resource's name in the rules of a role."""
        return "/".join(filter(None, (self.plural, sub))) + (f".{self.group}" if self.group else "")


@dataclass(frozen=True, slots=True)
class NonResource(Resource):
    """A path of the API server that is not a resource; `plural` is the whole path."""

    def path(self, name: str | None = None, sub: str | None = None) -> str:
        return self.plural

    def named(self, sub: str | None = None) -> str:
        return self.plural


@dataclass(frozen=True, slots=True)
class KubeCall:
    """One request, as error messages name it."""

    verb: str
    resource: Resource
    name: str | None = None
    sub: str | None = None

    @property
    def path(self) -> str:
        return self.resource.path(self.name, self.sub)

    def __str__(self) -> str:
        what = self.resource.named(self.sub)
        return f"{self.verb} {what}{f' {self.name}' if self.name else ''}"


class StatusDetails(msgspec.Struct, frozen=True):
    name: str = ""


class Status(msgspec.Struct, frozen=True):
    """A failure as Kubernetes describes it."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails = StatusDetails()


class RequestRefused(FleetUnavailable):
    """The API server answered with an error."""

    def __init__(self, call: KubeCall, code: int, status: Status) -> None:
        super().__init__(_sentence(call, code, status))
        self.code = code
        self.reason = status.reason
        self.by_admission = _is_by_admission(call, code, status)

    @property
    def absent(self) -> bool:
        return self.code == 404

    @property
    def conflict(self) -> bool:
        return self.code == 409

    @property
    def denied(self) -> bool:
        return self.code in (401, 403)

    @property
    def expired(self) -> bool:
        """The API server no longer has the requested version."""
        return self.code == 410 or self.reason in ("Expired", "Gone")


class Unreached(FleetUnavailable):
    """The API server sent no answer, or an unreadable one."""


def _is_by_admission(call: KubeCall, code: int, status: Status) -> bool:
    """True if the request was forbidden for the new object's content: Pod Security, a quota, a policy.
    The API server checks rights before it reads the object, so a refusal for lack of rights names no
    object."""
    return code == 403 and call.name is None and bool(status.details.name)


def _sentence(call: KubeCall, code: int, status: Status) -> str:
    said = status.message or f"it answered {code}"
    if code == 403 and not _is_by_admission(call, code, status):
        where = f" in the namespace {call.resource.namespace}" if call.resource.namespace else ""
        return (
            f"Kubernetes does not let paddock {call}{where}: grant the verb `{call.verb}` on "
            f"`{call.resource.named(call.sub)}` (deploy/roles.yaml has all that are needed)."
        )
    if code == 401:
        return f"Kubernetes does not accept paddock's credentials (it was to {call}): renew them."
    return f"Kubernetes did not {call}: {said.rstrip('.')}."


def configured(kubeconfig: Path | None) -> KubeConfig:
    """Read the given file; otherwise the Pod's service account, `$KUBECONFIG` or `~/.kube/config`.
    Raises ValueError."""
    try:
        return KubeConfig.from_file(kubeconfig) if kubeconfig else KubeConfig.from_env()
    except (ConfigError, OSError, KeyError, ValueError, msgspec.ValidationError) as error:
        raise ValueError(
            f"No Kubernetes cluster is configured ({error}): run paddock in one, or set KUBECONFIG"
        ) from error


class KubeApi:
    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client
        self._client.headers.update(_HEADERS)

    @staticmethod
    def connected(config: KubeConfig, *, connections: int = _CONNECTIONS) -> KubeApi:
        """Raises ValueError if the configuration names something that does not exist."""
        limits = httpx2.Limits(
            max_connections=connections,
            max_keepalive_connections=connections,
            keepalive_expiry=_KEPT_FOR,
        )
        try:
            one = config.get()
            assert one is not None  # without a context it has raised
            given = ConnectionParams(timeout=_TIMEOUT).httpx_params(one)
            return KubeApi(httpx2.AsyncClient(**given, limits=limits))
        except (ConfigError, OSError, ssl.SSLError, ValueError) as error:
            raise ValueError(f"The configuration of Kubernetes is of no use: {error}") from error

    async def aclose(self) -> None:
        await self._client.aclose()

    async def get(
        self,
        call: KubeCall,
        kind: type[T] | msgspec.json.Decoder[T],
        params: Mapping[str, str] = {},
    ) -> T:
        return _decoded(call, await self._send("GET", call, params), kind)

    async def read(self, call: KubeCall, params: Mapping[str, str]) -> bytes:
        return await self._send("GET", call, params)

    async def send(
        self,
        method: str,
        call: KubeCall,
        body: object,
        kind: type[T],
        *,
        content_type: str = "application/json",
        params: Mapping[str, str] = {},
    ) -> T:
        content = msgspec.json.encode(body)
        return _decoded(call, await self._send(method, call, params, content, content_type), kind)

    async def _send(
        self,
        method: str,
        call: KubeCall,
        params: Mapping[str, str],
        content: bytes | None = None,
        content_type: str | None = None,
    ) -> bytes:
        """Send the request again if the first got no answer: every request here may be repeated, and
        the server may have closed an idle connection."""
        headers = {"Content-Type": content_type} if content_type else None
        for attempt in (1, 2):
            _count(call)
            try:
                answer = await self._client.request(
                    method, call.path, params=params, content=content, headers=headers
                )
            except (httpx2.TransportError, ConfigError, OSError) as error:
                if attempt == 1 and isinstance(error, httpx2.NetworkError | httpx2.ProtocolError):
                    continue
                raise Unreached(_unreached(call, error)) from error
            if answer.is_error:
                raise RequestRefused(call, answer.status_code, _status(answer.content))
            return answer.content
        raise AssertionError("unreachable")

    @asynccontextmanager
    async def stream(
        self, call: KubeCall, params: Mapping[str, str], *, silence: float | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The answer's bytes as they arrive. `silence`: seconds without a byte that are no failure."""
        _count(call)
        timeout = _TIMEOUT if silence is None else httpx2.Timeout(15.0, connect=5.0, read=silence)
        try:
            async with self._client.stream(
                "GET", call.path, params=params, timeout=timeout
            ) as answer:
                if answer.is_error:
                    raise RequestRefused(call, answer.status_code, _status(await answer.aread()))
                yield answer.aiter_bytes()
        except (httpx2.TransportError, ConfigError, OSError) as error:
            raise Unreached(_unreached(call, error)) from error


def _count(call: KubeCall) -> None:
    REQUESTS.labels(call.verb, call.resource.named(call.sub)).inc()


def _decoded(call: KubeCall, content: bytes, kind: type[T] | msgspec.json.Decoder[T]) -> T:
    decoder = kind if isinstance(kind, msgspec.json.Decoder) else msgspec.json.Decoder(kind)
    try:
        try:
            return decoder.decode(content)
        except RecursionError:
            return decoder.decode(cut(content))
    except msgspec.MsgspecError as error:
        raise Unreached(f"Kubernetes' answer to {call} cannot be read: {error}.") from error


def cut(content: bytes) -> bytes:
    """Remove what lies deeper than `LEVELS` from JSON. A RunnerPool can have thousands of levels, and
    reading one exhausts the stack: without this, one such object would hide all others in its list.
    The rest still has more levels than a description may have, so paddock refuses that RunnerPool."""
    kept: list[bytes] = []
    depth = begin = 0
    for token in _TOKENS.finditer(content):
        if token[0] in (b"{", b"["):
            depth += 1
            if depth == LEVELS + 1:
                kept += (content[begin : token.start()], b"null")
        elif token[0] in (b"}", b"]"):
            depth -= 1
            if depth == LEVELS:
                begin = token.end()
    return b"".join([*kept, content[begin:]])


def _status(content: bytes) -> Status:
    try:
        return msgspec.json.decode(content, type=Status)
    except msgspec.MsgspecError:
        return Status(message=content[:200].decode(errors="replace").strip())


def _unreached(call: KubeCall, error: Exception) -> str:
    why = str(error).rstrip(".") or type(error).__name__
    return f"Kubernetes could not be reached to {call}: {why}."
