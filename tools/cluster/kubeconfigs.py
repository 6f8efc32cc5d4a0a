"""Kubeconfigs: how a component reaches the cluster, and as which user."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tools.cluster.certificates import Pair, base64_of, write_private


def by_certificate(path: Path, *, server: str, authority: bytes, pair: Pair) -> None:
    _write(
        path,
        server=server,
        authority=authority,
        user={
            "client-certificate-data": base64_of(pair.certificate),
            "client-key-data": base64_of(pair.key),
        },
    )


def by_token(
    path: Path, *, server: str, authority: bytes, token: str, namespace: str = "default"
) -> None:
    _write(path, server=server, authority=authority, user={"token": token}, namespace=namespace)


def _write(
    path: Path,
    *,
    server: str,
    authority: bytes,
    user: Mapping[str, str],
    namespace: str = "default",
) -> None:
    name = "paddock-test"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": name,
                "cluster": {"server": server, "certificate-authority-data": base64_of(authority)},
            }
        ],
        "users": [{"name": name, "user": dict(user)}],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}
        ],
        "current-context": name,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_private(path, json.dumps(document, indent=1).encode())
