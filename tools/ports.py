"""Ports for servers that listen later, or listen again after they were stopped.

A port that the system itself would choose may be given to any outgoing connection in between. Then the
server cannot listen. So these ports are below those that the system gives to connections.
"""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Final

_RANGE_OF_CONNECTIONS: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
#: How many ports are used, and their end where the system does not tell its range.
_COUNT: Final = 12_000
_DEFAULT_END: Final = 32_768


def free_port(*addresses: str) -> int:
    """A port on which no process listens, at all of these addresses (the loopback's by default)."""
    end = _first_of_connections()
    while True:
        port = random.randrange(end - _COUNT, end)  # noqa: S311 -- no secret
        with ExitStack() as sockets:
            try:
                for address in addresses or ("127.0.0.1",):
                    sockets.enter_context(socket.create_server((address, port)))
            except OSError:
                continue
            return port


def _first_of_connections() -> int:
    try:
        first = int(_RANGE_OF_CONNECTIONS.read_text().split()[0])
    except (OSError, ValueError):
        return _DEFAULT_END
    # A range that begins near the first port that every user may take leaves no room below it.
    return first if first - _COUNT >= 1024 else _DEFAULT_END
