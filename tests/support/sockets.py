"""The addresses at which processes listen, from Linux' /proc."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from pathlib import Path

_LISTENING = "0A"
#: UDP has no such state; a socket without a peer receives from any sender.
_UNCONNECTED = "07"


def listening(pids: Iterable[int]) -> set[tuple[str, str, int]]:
    """Protocol, address and port of all sockets at which one of the processes receives."""
    inodes = set[str]()
    for pid in pids:
        for descriptor in _listed(Path(f"/proc/{pid}/fd")):
            try:
                found = re.fullmatch(r"socket:\[(\d+)\]", str(descriptor.readlink()))
            except OSError:
                continue
            if found:
                inodes.add(found[1])
    return {
        (table, *_address(words[1]))
        for table, state in (
            *(("tcp", _LISTENING), ("tcp6", _LISTENING)),
            *(("udp", _UNCONNECTED), ("udp6", _UNCONNECTED)),
        )
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        if (words := line.split())[3] == state and words[9] in inodes
    }


def _listed(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:  # the process has ended
        return []


def _address(text: str) -> tuple[str, int]:
    address, _, port = text.partition(":")
    words = bytes.fromhex(address)
    turned = b"".join(words[at : at + 4][::-1] for at in range(0, len(words), 4))
    return str(ipaddress.ip_address(turned)), int(port, 16)


def descendants(pid: int) -> set[int]:
    """The process and all its descendants that have not been reparented."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry.parent.name)] = int(words[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found
