"""The result of every follower, so that incomplete work is noticed: a digest of what a controller
needs of each Pod, the moment of the last one, and the peak memory."""

from __future__ import annotations

import hashlib
import json
import resource
import time
from collections.abc import Mapping
from typing import Any, NamedTuple


class Needed(NamedTuple):
    uid: str
    phase: str
    node: str | None
    leaving: bool
    owner: str | None
    poller: str | None
    runner: str | None
    exit_code: int | None


OWNER = "paddock.dev/owner"


def needed(pod: Mapping[str, Any]) -> Needed:
    """The needed fields of a Pod, from plain JSON."""
    metadata, status = pod["metadata"], pod.get("status", {})
    poller = _state(status.get("initContainerStatuses", ()), "poller")
    runner = _state(status.get("containerStatuses", ()), "runner")
    return Needed(
        uid=metadata["uid"],
        phase=status["phase"],
        node=pod["spec"].get("nodeName"),
        leaving="deletionTimestamp" in metadata,
        owner=metadata.get("labels", {}).get(OWNER),
        poller=next(iter(poller), None),
        runner=next(iter(runner), None),
        exit_code=runner.get("terminated", {}).get("exitCode"),
    )


def _state(statuses: Any, name: str) -> Mapping[str, Any]:
    return next((each["state"] for each in statuses if each["name"] == name), {})


#: Processor time before the following began: all modules are imported by then.
_before = 0.0


def begin() -> None:
    global _before  # noqa: PLW0603 -- a process follows once
    _before = time.process_time()


def hand_in(pods: Mapping[str, Needed]) -> None:
    ended, used = time.monotonic(), time.process_time() - _before
    text = json.dumps(sorted(pods.items()))
    print(
        json.dumps(
            {
                "ended": ended,
                "pods": len(pods),
                "digest": hashlib.sha256(text.encode()).hexdigest(),
                "cpu": used,
                "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            }
        ),
        flush=True,
    )
