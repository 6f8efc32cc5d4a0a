"""Records the cluster's answers to reviews of tokens: `python -m tests.cluster.record_reviews`.

The tests in `tests/fleet` read the answers where there is no cluster. Tokens are left out: a review
repeats the token that it was asked about.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import jwt

from paddock.fleet.kube.reviews import review_request
from paddock.fleet.kube.token_claims import AUDIENCES
from tools.cluster.api import Api, Json
from tools.cluster.cluster import Cluster
from tools.cluster.facts import NODE_NAME
from tools.cluster.images import BUSYBOX

TARGET = Path(__file__).parents[1] / "fleet" / "reviews"
NAMESPACE, ACCOUNT, POD = "runners", "paddock-runner", "linux-7k2m9x4b8c"


async def record(cluster: Cluster) -> None:
    async with cluster.api() as api:
        await api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        try:
            pod = await _pod(api)
            dispatch, vitals = [
                await api.token(NAMESPACE, ACCOUNT, audiences=[name], pod=pod) for name in AUDIENCES
            ]
            # The API server caches its answer about a token for ten seconds, so this token is new to
            # it.
            unseen = await api.token(NAMESPACE, ACCOUNT, audiences=list(AUDIENCES)[:1], pod=pod)
            kubernetes = await api.token(NAMESPACE, ACCOUNT, pod=pod)
            await _write(api, "dispatch", dispatch)
            await _write(api, "vitals", vitals)
            await _write(api, "other-audience", kubernetes)
            await _write(api, "expired", _expired(cluster, dispatch))
            await _write(api, "invalid", "a.b.c")
            await api.delete(_path(POD), gracePeriodSeconds=0)
            await _write(api, "pod-gone", unseen)
        finally:
            await api.delete(f"/api/v1/namespaces/{NAMESPACE}")


async def _pod(api: Api) -> Json:
    """Bound to the node, like a Pod that polls; it need not run."""
    account = {"metadata": {"name": ACCOUNT}}
    await api.create(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", account)
    spec = {
        "serviceAccountName": ACCOUNT,
        "containers": [{"name": "poll", "image": BUSYBOX, "command": ["/bin/sleep", "100"]}],
    }
    await api.create(_path(), {"metadata": {"name": POD}, "spec": spec})
    return await api.until(_path(POD), lambda pod: pod["spec"].get("nodeName") == NODE_NAME)


def _path(*name: str) -> str:
    return "/".join((f"/api/v1/namespaces/{NAMESPACE}/pods", *name))


def _expired(cluster: Cluster, token: str) -> str:
    """The cluster issues no token for less than ten minutes, but its key is ours."""
    claims: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    hour_ago = int(time.time()) - 3600
    claims |= {"iat": hour_ago, "nbf": hour_ago, "exp": hour_ago + 600}
    key = (cluster.layout.pki / "service-accounts.key").read_bytes()
    headers = {"kid": jwt.get_unverified_header(token)["kid"]}
    return jwt.encode(claims, key, algorithm="ES256", headers=headers)


async def _write(api: Api, name: str, token: str) -> None:
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    answer = await api.create(path, review_request(token))
    del answer["spec"]["token"]
    answer["metadata"].pop("managedFields", None)
    (TARGET / f"{name}.json").write_text(json.dumps(answer, indent=2) + "\n")


if __name__ == "__main__":
    running = Cluster.running()
    if running is None:
        raise SystemExit("No cluster is running: make cluster starts one.")
    asyncio.run(record(running))
