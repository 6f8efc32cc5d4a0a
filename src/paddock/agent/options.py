"""The agent's command line: its options (the server's address, the token file, the stage), which may
also be given in the environment, and its exit codes.

No option is a secret: tokens are read from files, since other processes can read a command line.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from paddock.agent.client import Url, UrlFile


class AgentExit(IntEnum):
    """An init container that ends with a code other than 0 fails its Pod (`restartPolicy: Never`), so
    that no runner starts. No code but 0 is also a code of the runner's (0-7, 100-105) or a shell's (126
    and more)."""

    STAGED = 0  # the JIT is staged: the runner may start. For `vitals`: all is done.
    USAGE = 64
    CANNOT_STAGE = 73
    TOKEN_REFUSED = 77
    LEFT = 79  # the server said that this Pod is not needed


#: `run.sh` adds two codes: 66, no JIT is staged; 72, there is no runner program. A program that was
#: told to stop ends with 128 + the signal's number.
SIGNALLED = 128


USAGE = """\
usage: python -m paddock.agent poll|vitals OPTIONS

poll: ask for work; stage the JIT and the start script for the runner; acknowledge; exit 0
vitals: ship what the start script measures until the runner has ended or SIGTERM comes

  --server URL         the paddock server, http:// or https://; @FILE: the file that holds it
                       (http:// then), read anew for every request
  --token-file FILE    holds the bearer token; read anew for every request
  --stage DIRECTORY    a memory volume shared with the runner's container
  --ca-file FILE       trust these certificates for https instead of the system's
  --runner-uid N       poll: the user that the runner runs as, if it is not this one
  --runner-gid N       poll: its group
  --wait SECONDS       poll: how long the server may hold a request (50)
  --every SECONDS      vitals: how often to look for new samples (2)

Each may be given in the environment instead: --token-file as PADDOCK_AGENT_TOKEN_FILE.
"""

_PREFIX = "PADDOCK_AGENT_"
_REQUIRED = ("server", "token-file", "stage")
_OPTIONAL = ("ca-file", "runner-uid", "runner-gid", "wait", "every")

#: Below the 60 s at which load balancers and NAT gateways commonly forget a silent connection.
_WAIT = 50.0
#: `run.sh` writes a sample every 5 s. Reading more often halves the time that is lost when a Pod dies.
_EVERY = 2.0


class UsageError(Exception):
    """The command line is wrong; the argument is a sentence."""


class Options(NamedTuple):
    server: Url | UrlFile
    token_file: str
    stage: str
    ca_file: str | None
    runner_uid: int
    runner_gid: int
    wait: float
    every: float
    #: All waiting times are divided by it (`PADDOCK_AGENT_SPEEDUP`): for tests.
    speedup: float

    @staticmethod
    def read(arguments: Sequence[str], environment: Mapping[str, str]) -> Options:
        given = _from_environment(environment) | _from_arguments(arguments)
        if missing := [f"--{name}" for name in _REQUIRED if not given.get(name)]:
            raise UsageError(f"Missing: {', '.join(missing)}.")
        return Options(
            server=_url("server", given["server"]),
            token_file=given["token-file"],
            stage=given["stage"],
            ca_file=given.get("ca-file"),
            runner_uid=_whole("runner-uid", given.get("runner-uid"), os.geteuid()),
            runner_gid=_whole("runner-gid", given.get("runner-gid"), -1),
            wait=_seconds("wait", given.get("wait"), _WAIT),
            every=_seconds("every", given.get("every"), _EVERY),
            speedup=_seconds("speedup", environment.get(f"{_PREFIX}SPEEDUP"), 1.0),
        )


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for name in _REQUIRED + _OPTIONAL:
        if value := environment.get(_PREFIX + name.upper().replace("-", "_")):
            found[name] = value
    return found


def _from_arguments(arguments: Sequence[str]) -> dict[str, str]:
    """Parsed by hand: argparse would cost every idle Pod half a megabyte."""
    found = {}
    left = list(arguments)
    while left:
        argument = left.pop(0)
        name, has_value, value = argument.removeprefix("--").partition("=")
        if not argument.startswith("--") or name not in _REQUIRED + _OPTIONAL:
            raise UsageError(f"There is no option {argument!r}.")
        if not has_value:
            if not left:
                raise UsageError(f"--{name} needs a value.")
            value = left.pop(0)
        found[name] = value
    return found


def _url(name: str, text: str) -> Url | UrlFile:
    if text.startswith("@"):
        return UrlFile(text[1:])
    try:
        return Url.parse(text)
    except ValueError as error:
        raise UsageError(f"--{name}: {error}.") from None


def _whole(name: str, text: str | None, default: int) -> int:
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"--{name} is not a whole number: {text!r}.")
    return int(text)


def _seconds(name: str, text: str | None, default: float) -> float:
    try:
        seconds = default if text is None else float(text)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < 86400.0:
        raise UsageError(f"--{name} is not a number of seconds: {text!r}.")
    return seconds
