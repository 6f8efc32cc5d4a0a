"""What `bench.watch` serves: a list of Pods and their events, in the API server's own bytes.

`life.jsonl` is the life of one runner's Pod as Kubernetes 1.34 reported it, line by line. Here many
Pods live it, each at its own pace. Only names, UIDs and versions differ.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

NAMESPACE: Final = "runners"
#: The name of the Pod that the last event of all is about.
LAST: Final = "linux-last"
#: In the list each Pod is somewhere in its life. Most of a warm pool is idle.
_IDLE_SHARE: Final = 0.6

_POLLS: Final = b'"name":"poller","state":{"running"'

_LIFE: Final = Path(__file__).with_name("life.jsonl")


@dataclass(frozen=True, slots=True)
class _Stage:
    """One line of the life, with places for what differs."""

    kind: str
    line: bytes

    def of(self, pod: _Life, version: int) -> bytes:
        return (
            self.line.replace(b"@NAME@", pod.name)
            .replace(b"@UID@", pod.uid)
            .replace(b"@VERSION@", b"%d" % version)
        )


@dataclass(slots=True)
class _Life:
    name: bytes
    uid: bytes
    stage: int


@dataclass(frozen=True, slots=True)
class Stream:
    pods: list[bytes]
    version: int
    events: list[bytes]
    #: The version of the last event of each Pod, by UID: a client that has seen these has seen all.
    finals: dict[str, str]


def stages() -> list[_Stage]:
    found = []
    for line in _LIFE.read_bytes().splitlines():
        event = json.loads(line)
        metadata = event["object"]["metadata"]
        for name, place in (("name", b"@NAME@"), ("uid", b"@UID@"), ("namespace", b"runners")):
            line = line.replace(metadata[name].encode(), place)
        version = f'"resourceVersion":"{metadata["resourceVersion"]}"'.encode()
        assert line.count(version) == 1
        found.append(_Stage(event["type"], line.replace(version, b'"resourceVersion":"@VERSION@"')))
    return found


def stream(pods: int, events: int, *, seed: int = 1) -> Stream:
    life, dice = stages(), Random(seed)
    idle = next(at for at, stage in enumerate(life) if _POLLS in stage.line)
    names = _lives(dice)
    there = []
    for _ in range(pods):
        pod = next(names)
        pod.stage = idle if dice.random() < _IDLE_SHARE else dice.randrange(len(life) - 1)
        there.append(pod)
    listed = [
        _object(life[pod.stage].of(pod, version)) for version, pod in enumerate(there, start=1)
    ]
    version = pods
    told, finals = [], {pod.uid: number for number, pod in enumerate(there, start=1)}
    for _ in range(events - 1):
        version += 1
        at = dice.randrange(len(there))
        pod = there[at]
        if pod.stage == len(life) - 1:
            # The Pod is deleted, and another takes its place.
            there[at] = pod = next(names)
        pod.stage += 1
        told.append(life[pod.stage].of(pod, version) + b"\n")
        finals[pod.uid] = version
    last = next(names)
    last.name = LAST.encode()
    told.append(life[0].of(last, version + 1) + b"\n")
    finals[last.uid] = version + 1
    return Stream(
        listed, pods, told, {uid.decode(): str(version) for uid, version in finals.items()}
    )


def _lives(dice: Random) -> Iterator[_Life]:
    while True:
        number = dice.getrandbits(122)
        text = f"{number:032x}"
        uid = "-".join((text[:8], text[8:12], "4" + text[13:16], "8" + text[17:20], text[20:32]))
        yield _Life(f"linux-{text[22:]}".encode(), uid.encode(), -1)


def _object(line: bytes) -> bytes:
    """The object of a line, as it stands in a list."""
    return line.partition(b'"object":')[2].removesuffix(b"}")
