"""What was decided when the cluster was started: later programs use it to reach and restart its
parts."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from tools.ports import free_port

#: The node's address is its bridge's: Pods reach servers of this machine there, and the tests need not
#: listen on an address that other machines can reach. Other networks rarely use these ranges.
NODE_NAME: Final = "node-1"
NODE_ADDRESS: Final = "10.241.0.1"
POD_RANGE: Final = "10.241.0.0/24"
SERVICE_RANGE: Final = "10.242.0.0/24"
BRIDGE: Final = "paddock0"
#: The image of every Pod's sandbox.
PAUSE: Final = "paddock.test/pause:1"


class Ports(msgspec.Struct, frozen=True):
    api: int
    etcd: int
    etcd_peer: int
    kubelet: int
    kwok: int


class Facts(msgspec.Struct, frozen=True):
    ports: Ports
    #: The programs it was started from, by name.
    programs: dict[str, str]
    #: Whether there is a real node.
    node: bool

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.ports.api}"

    def write(self, path: Path) -> None:
        path.write_bytes(msgspec.json.encode(self))

    @classmethod
    def read(cls, path: Path) -> Facts | None:
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except (FileNotFoundError, msgspec.DecodeError):
            return None


def free_ports() -> Ports:
    """No two are the same."""
    count = len(msgspec.structs.fields(Ports))
    found: set[int] = set()
    while len(found) < count:
        found.add(free_port())
    return Ports(*found)
