"""The fake runner's requests to GitHub's services for runners, as `actions/runner` sends them.

First it exchanges an assertion, signed with the key of its JIT configuration, for a token. Then it
opens a session and asks for messages. A job brings addresses and a token of its own.

Standard library only, and few modules. It writes one request per connection by hand: `http.client`
imports `email` and `ssl`, and `hashlib` loads OpenSSL. Either would take a third of the program's
memory.
"""

from __future__ import annotations

import base64
import calendar
import json
import os
import socket
import time
from typing import Any, Final
from urllib.parse import quote, urlencode

try:
    from _sha2 import sha256  # type: ignore[import-not-found, unused-ignore]
except ImportError:  # before Python 3.12
    from _sha256 import sha256  # type: ignore[import-not-found, unused-ignore]

_HASH_OCTETS: Final = 32
_ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
#: How often a lease is renewed.
_RENEW_SECONDS: Final = 60.0
_RECEIVER: Final = "twirp/results.services.receiver.Receiver"

#: The name that GitHub's services give a reason, and the error that the listener acts on.
_CODES: Final = {
    "invalid_client": "registration-deleted",
    "RunnerNotFound": "registration-deleted",
    "RunnerSessionInvalid": "session-lost",
    "RunnerSessionConflict": "session-conflict",
    "RunnerVersionTooOld": "version-deprecated",
}


class RefusedError(Exception):
    """The service refuses, with a code that the runner acts on."""

    def __init__(self, code: str, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


def call(
    method: str,
    url: str,
    content: bytes = b"",
    *,
    token: str | None = None,
    kind: str = "application/json",
    timeout: float = 30.0,
) -> dict[str, Any] | None:
    """None: the answer is empty. Raises RefusedError, or OSError if the service is unreachable."""
    address, authority, path = split(url)
    head = f"{method} {path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n"
    if token is not None:
        head += f"Authorization: Bearer {token}\r\n"
    head += f"Content-Type: {kind}\r\nContent-Length: {len(content)}\r\n\r\n"
    with socket.create_connection(address, timeout=timeout) as connection:
        connection.sendall(head.encode() + content)
        received = bytearray()
        while chunk := connection.recv(65536):
            received += chunk
    return _answer(bytes(received))


def split(url: str) -> tuple[tuple[str, int], str, str]:
    scheme, _, rest = url.partition("://")
    authority, _, path = rest.partition("/")
    host, _, port = authority.rpartition(":")
    if scheme != "http" or not port.isdigit():
        raise ValueError(f"The fake GitHub is at http://HOST:PORT/, which {url!r} is not.")
    return (host.strip("[]"), int(port)), authority, f"/{path}"


def _answer(received: bytes) -> dict[str, Any] | None:
    head, _, content = received.partition(b"\r\n\r\n")
    status_line, *headers = head.decode("latin-1").split("\r\n")
    length = next((int(h[15:]) for h in headers if h.lower().startswith("content-length:")), 0)
    if not status_line.startswith("HTTP/1.1 ") or len(content) < length:
        raise ConnectionResetError("the connection was closed in the middle of the answer")
    status = int(status_line.split()[1])
    if status >= 500:
        raise ConnectionAbortedError(f"the service answered {status}")
    decoded: dict[str, Any] | None = json.loads(content) if content else None
    if status >= 400:
        raise _refused(status, decoded or {})
    return decoded


def _refused(status: int, reason: dict[str, Any]) -> RefusedError:
    kind = str(reason.get("errorKind") or reason.get("error"))
    texts = (reason.get(key) for key in ("errorMessage", "error_description", "message"))
    message = next((text for text in texts if text), "refused")
    return RefusedError(_CODES.get(kind, "refused"), message, status)


class Service:
    """The broker, for one registration."""

    def __init__(self, files: dict[str, dict[str, Any]]) -> None:
        """`files` of the JIT configuration."""
        credentials, key = files[".credentials"]["Data"], files[".credentials_rsaparams"]
        self._broker = files[".runner"]["ServerUrlV2"]
        self._token_url = credentials["AuthorizationUrl"]
        self._client = credentials["ClientId"]
        self._disable_update = str(files[".runner"].get("DisableUpdate", False)).lower()
        self._key = {name: _number(value) for name, value in key.items()}
        self._token: str | None = None
        self._session = ""
        split(self._broker)
        split(self._token_url)

    def _fetch_token(self) -> str:
        form = {
            "grant_type": "client_credentials",
            "client_assertion_type": _ASSERTION_TYPE,
            "client_assertion": self._assertion(),
        }
        content, kind = urlencode(form).encode(), "application/x-www-form-urlencoded"
        answer = call("POST", self._token_url, content, kind=kind)
        assert answer is not None
        return str(answer["access_token"])

    def _assertion(self) -> str:
        now = int(time.time())
        claims = {
            "iss": self._client,
            "sub": self._client,
            "aud": self._token_url,
            "jti": os.urandom(16).hex(),
            "nbf": now,
            "exp": now + 300,
        }
        parts = ({"alg": "PS256", "typ": "JWT"}, claims)
        signed = ".".join(_url64(json.dumps(part).encode()) for part in parts)
        return f"{signed}.{_url64(_signature(signed.encode(), self._key))}"

    def _call(
        self, method: str, url: str, body: object = None, *, timeout: float = 30.0
    ) -> dict[str, Any] | None:
        content = b"" if body is None else json.dumps(body).encode()
        self._token = self._token or self._fetch_token()
        try:
            return call(method, url, content, token=self._token, timeout=timeout)
        except RefusedError as refused:
            if refused.status != 401:
                raise
        self._token = self._fetch_token()
        return call(method, url, content, token=self._token, timeout=timeout)

    def connect(self, name: str, version: str) -> None:
        agent = {"name": name, "version": version, "osDescription": "linux", "ephemeral": True}
        body = {"ownerName": "RUNNER", "agent": agent, "useFipsEncryption": False}
        answer = self._call("POST", f"{self._broker}session", body)
        assert answer is not None
        self._session = str(answer["sessionId"])

    def disconnect(self) -> None:
        self._call("DELETE", f"{self._broker}session", timeout=5)

    def message(self, version: str, *, busy: bool, timeout: float) -> dict[str, Any] | None:
        """The next message: its type, and its decoded body."""
        status = "Busy" if busy else "Online"
        query = f"sessionId={self._session}&status={status}&runnerVersion={quote(version)}"
        query += f"&disableUpdate={self._disable_update}"
        answer = self._call("GET", f"{self._broker}message?{query}", timeout=timeout)
        if answer is None:
            return None
        return {"type": answer["messageType"], **json.loads(answer["body"])}

    def acquire(self, message: dict[str, Any]) -> JobService:
        request = message["runner_request_id"]
        if message.get("should_acknowledge"):
            url = f"{self._broker}acknowledge?sessionId={self._session}&status=Online"
            self._call("POST", url, {"runnerRequestId": request})
        body = {"jobMessageId": request, "runnerOS": "Linux"}
        job = self._call("POST", f"{message['run_service_url']}acquirejob", body)
        assert job is not None
        return JobService(job)


class JobService:
    """The run service and the results service, for one job."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        [endpoint] = (each for each in job["resources"]["endpoints"])
        self._run = endpoint["url"]
        self._results = endpoint["data"]["ResultsServiceUrl"]
        self._token = endpoint["authorization"]["parameters"]["AccessToken"]
        self._ids = {"planId": job["plan"]["planId"], "jobId": job["jobId"]}

    def _post(self, url: str, body: object) -> dict[str, Any] | None:
        return call("POST", url, json.dumps(body).encode(), token=self._token)

    def renew(self) -> float:
        """How long to wait until the next time."""
        answer = self._post(f"{self._run}renewjob", self._ids) or {}
        try:
            locked = time.strptime(str(answer.get("lockedUntil")), "%Y-%m-%dT%H:%M:%SZ")
        except ValueError:
            return _RENEW_SECONDS
        # The lease is ten minutes. A test may shorten it: the runner then renews as often within it.
        return min(_RENEW_SECONDS, max(0.05, (calendar.timegm(locked) - time.time()) / 10))

    def complete(self, conclusion: str, steps: list[dict[str, Any]]) -> None:
        body = {**self._ids, "conclusion": conclusion, "stepResults": steps, "outputs": {}}
        self._post(f"{self._run}completejob", body)

    def upload_log(self, text: str) -> None:
        names = {
            "workflow_run_backend_id": self._ids["planId"],
            "workflow_job_run_backend_id": self._ids["jobId"],
        }
        place = self._post(f"{self._results}{_RECEIVER}/GetJobLogsSignedBlobURL", names)
        assert place is not None
        call("PUT", place["logs_url"], text.encode(), kind="text/plain")
        metadata = {**names, "line_count": text.count("\n")}
        self._post(f"{self._results}{_RECEIVER}/CreateJobLogsMetadata", metadata)


def _number(octets: str) -> int:
    return int.from_bytes(base64.b64decode(octets, validate=True), "big")


def _url64(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode()


def _signature(content: bytes, key: dict[str, int]) -> bytes:
    """RSASSA-PSS with SHA-256 (RFC 8017), of a key of whole octets."""
    size = (key["modulus"].bit_length() + 7) // 8
    salt = os.urandom(_HASH_OCTETS)
    digest = sha256(bytes(8) + sha256(content).digest() + salt).digest()
    block = bytes(size - 2 * _HASH_OCTETS - 2) + b"\1" + salt
    masked = bytearray(one ^ two for one, two in zip(block, _mask(digest, len(block)), strict=True))
    masked[0] &= 0x7F
    message = int.from_bytes(bytes(masked) + digest + b"\xbc", "big")
    # By the two primes: four times as fast as with the modulus.
    first = pow(message, key["dp"], key["p"])
    second = pow(message, key["dq"], key["q"])
    signed = second + key["q"] * ((first - second) * key["inverseQ"] % key["p"])
    return signed.to_bytes(size, "big")


def _mask(seed: bytes, size: int) -> bytes:
    count = -(-size // _HASH_OCTETS)
    blocks = (sha256(seed + number.to_bytes(4, "big")).digest() for number in range(count))
    return b"".join(blocks)[:size]
