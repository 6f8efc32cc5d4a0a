"""Nodes that kwok plays: a Pod there runs at once, and only the API server has work with it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

from tools.cluster.api import Api

#: It keeps real Pods away; a Pod that kwok shall play tolerates it and selects the label.
TAINT: Final = {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}
TOLERATION: Final = {"key": "kwok.x-k8s.io/node", "operator": "Exists"}
SELECTOR: Final = {"type": "kwok"}
_ROOM: Final[Mapping[str, str]] = {"cpu": "1000", "memory": "4Ti", "pods": "1000"}

_numbers = itertools.count()


class FakeNodes:
    """Made on demand, and removed at the end."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._made: list[str] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in self._made:
            await self._api.delete(f"/api/v1/nodes/{name}")

    async def make(
        self,
        count: int = 1,
        *,
        room: Mapping[str, str] = _ROOM,
        labels: Mapping[str, str] | None = None,
    ) -> list[str]:
        """With room for a thousand Pods each; ready when this returns."""
        names = [f"fake-{os.getpid()}-{next(_numbers)}" for _ in range(count)]
        for name in names:
            await self._api.create("/api/v1/nodes", _node(name, room, labels or {}))
            self._made.append(name)
        for name in names:
            await self._api.until(f"/api/v1/nodes/{name}", _is_ready)
        return names


def _node(name: str, room: Mapping[str, str], labels: Mapping[str, str]) -> dict[str, object]:
    return {
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"kubernetes.io/hostname": name, **SELECTOR, **labels},
        },
        "spec": {"taints": [TAINT]},
        "status": {"allocatable": dict(room), "capacity": dict(room)},
    }


def _is_ready(node: dict[str, object]) -> bool:
    status = node.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions or [])
