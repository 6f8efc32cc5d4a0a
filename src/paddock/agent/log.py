"""One line of JSON per notable event, on stderr. Callers pass only public facts: no token, no JIT."""

from __future__ import annotations

import json
import sys
import time


def log(event: str, **facts: str | float | None) -> None:
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    line = json.dumps({"at": at, "event": event, **facts})
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass  # stderr is closed; that is no reason to lose a JIT
