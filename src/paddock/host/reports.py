"""The report of a bootstrap to the cluster: a condition of the Node, and an event when that changes.

It is sent over HTTPS with the standard library. The host needs three rights: to read its own Node, to
write that Node's status, and to create events.
"""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from paddock.host.configuration import Cluster

#: A host whose condition is not `True` gets no runners of any pool.
CONDITION: Final = "PaddockHostReady"
READY: Final = "Bootstrapped"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """The outcome of one attempt. `failed` names the step that failed."""

    failed: str | None = None
    words: str = ""

    @property
    def reason(self) -> str:
        """One word, as in a condition's `reason`."""
        return READY if self.failed is None else f"{self.failed.capitalize()}Failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    at: datetime
    ready: bool
    reason: str
    message: str
    #: The number of failures in a row.
    failures: int
    #: Whether the report changes what is known; then an event is created too.
    news: bool


class ReportFailed(Exception):
    """The report did not reach the cluster."""


class Reports(Protocol):
    def send(self, report: Report) -> None:
        """Raises ReportFailed."""
        ...


#: An API server answers in milliseconds. The rules are in force before it is called.
_TIMEOUT_S: Final = 10.0
#: Kubernetes keeps events of Nodes, which are in no namespace, in `default`.
_EVENTS: Final = "/api/v1/namespaces/default/events"
_STRATEGIC: Final = "application/strategic-merge-patch+json"
#: The API server refuses longer messages.
_LONGEST: Final = 1000

Json = dict[str, Any]


class _Refused(Exception):
    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code


class ClusterReports:
    def __init__(self, cluster: Cluster, node: str) -> None:
        self._cluster = cluster
        self._node = node

    def send(self, report: Report) -> None:
        """The event goes first: a host that has no Node yet can be seen by its events."""
        if report.news:
            self._call("create an event", "POST", _EVENTS, self._event(report))
        path = f"/api/v1/nodes/{self._node}"
        found = self._call("read its Node", "GET", path)
        body = {"status": {"conditions": [_condition(report, found)]}}
        self._call("write its Node's status", "PATCH", f"{path}/status", body, _STRATEGIC)

    def _event(self, report: Report) -> Json:
        at = _time(report.at)
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{self._node[:200]}."},
            # As kubelets do, the name is used as the UID, so that `kubectl describe node` shows the
            # event.
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Node",
                "name": self._node,
                "uid": self._node,
            },
            "type": "Normal" if report.ready else "Warning",
            "reason": report.reason,
            "message": report.message[:_LONGEST],
            "source": {"component": "paddock-host", "host": self._node},
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": max(1, report.failures),
        }

    def _call(
        self,
        what: str,
        method: str,
        path: str,
        body: Json | None = None,
        kind: str = "application/json",
    ) -> Json:
        try:
            return self._answer(method, path, body, kind)
        except _Refused as refused:
            if refused.code == 404:
                why = f"there is no Node {self._node} yet"
            elif refused.code == 403:
                why = "Kubernetes does not allow it (deploy/host/roles.yaml has all that is needed)"
            else:
                why = f"Kubernetes answered {refused.code}: {refused}"
            raise ReportFailed(f"{self._node} could not {what}: {why}.") from refused
        except (OSError, http.client.HTTPException, ValueError) as error:
            words = getattr(error, "reason", None) or error
            raise ReportFailed(f"{self._node} could not {what}: {words}.") from error

    def _answer(self, method: str, path: str, body: Json | None, kind: str) -> Json:
        headers = {"Accept": "application/json", "User-Agent": "paddock-host"}
        if self._cluster.token is not None:
            # Read for each request: the token is replaced while this program runs (I21).
            headers["Authorization"] = f"Bearer {self._cluster.token.read_text('utf-8').strip()}"
        content = None
        if body is not None:
            content, headers["Content-Type"] = json.dumps(body).encode(), kind
        request = urllib.request.Request(  # noqa: S310  its scheme was checked when it was read
            f"{self._cluster.server}{path}", content, headers, method=method
        )
        handler = urllib.request.HTTPSHandler(context=self._context())
        try:
            with urllib.request.build_opener(handler).open(request, timeout=_TIMEOUT_S) as answer:
                decoded: Json = json.load(answer)
                return decoded
        except urllib.error.HTTPError as error:
            raise _Refused(error.code, _said(error.read())) from error

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self._cluster.authority))
        if self._cluster.certificate is not None:
            context.load_cert_chain(self._cluster.certificate, self._cluster.key)
        return context


def _condition(report: Report, node: Json) -> Json:
    status = "True" if report.ready else "False"
    now = _time(report.at)
    since = now
    for each in node.get("status", {}).get("conditions") or []:
        if each.get("type") == CONDITION and each.get("status") == status:
            since = each.get("lastTransitionTime") or now
    return {
        "type": CONDITION,
        "status": status,
        "reason": report.reason,
        "message": report.message[:_LONGEST],
        "lastHeartbeatTime": now,
        "lastTransitionTime": since,
    }


def _time(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _said(content: bytes) -> str:
    try:
        return str(json.loads(content)["message"])
    except (ValueError, KeyError, TypeError):
        return content[:200].decode(errors="replace").strip() or "nothing"
