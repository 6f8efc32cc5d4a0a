"""Webhook bodies with the fewest fields of GitHub's schema that paddock needs."""

from __future__ import annotations

from typing import Any

import msgspec

from paddock.domain.github.deliveries import NewDelivery
from paddock.domain.ids import AppId, HostId


def workflow_job(
    *,
    job: int = 1,
    action: str = "queued",
    installation: int | None = 1001,
    labels: list[str] | None = None,
    repository: str = "org-1/repo",
    **changes: Any,
) -> dict[str, Any]:
    started = action in ("in_progress", "completed")
    return {
        "action": action,
        "workflow_job": {
            "id": job,
            "run_id": 7,
            "run_attempt": 1,
            "name": f"job {job}",
            "workflow_name": "ci",
            "status": action,
            "conclusion": "success" if action == "completed" else None,
            "labels": ["self-hosted", "linux"] if labels is None else labels,
            "created_at": "2026-01-05T09:00:00Z",
            "started_at": "2026-01-05T09:00:05Z" if started else None,
            "completed_at": "2026-01-05T09:01:00Z" if action == "completed" else None,
            "runner_id": None,
            "runner_name": None,
            **changes,
        },
        "repository": {
            "id": 3001,
            "full_name": repository,
            "owner": {"id": 2001, "login": repository.split("/")[0]},
        },
        "installation": None if installation is None else {"id": installation},
    }


def delivery(
    host: HostId,
    app: AppId,
    guid: str,
    body: dict[str, Any] | bytes,
    *,
    event: str = "workflow_job",
) -> NewDelivery:
    payload = body if isinstance(body, bytes) else msgspec.json.encode(body)
    installation = None
    if not isinstance(body, bytes) and body.get("installation"):
        installation = body["installation"]["id"]
    return NewDelivery(
        host=host,
        app=app,
        guid=guid,
        event=event,
        action=None if isinstance(body, bytes) else body.get("action"),
        installation=installation,
        payload=payload,
    )
