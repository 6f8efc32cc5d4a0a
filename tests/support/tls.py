"""A handshake without a network."""

from __future__ import annotations

import ssl


def handshake(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> None:
    """Raises what the client raises."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    asks = client.wrap_bio(to_client, to_server, server_hostname=name)
    answers = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (asks, answers, asks, answers):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
