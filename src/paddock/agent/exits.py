"""The exit codes of the agent's programs. An init container that ends with a code other than 0 fails
its Pod (`restartPolicy: Never`), so that no runner starts."""

from __future__ import annotations

from enum import IntEnum


class AgentExit(IntEnum):
    """No code but 0 is also a code of the runner's (0-7, 100-105) or a shell's (126 and more)."""

    STAGED = 0  # the JIT is staged: the runner may start. For `vitals`: all is done.
    USAGE = 64
    CANNOT_STAGE = 73
    TOKEN_REFUSED = 77
    LEFT = 79  # the server said that this Pod is not needed


#: `run.sh` adds two codes: 66, no JIT is staged; 72, there is no runner program. A program that was
#: told to stop ends with 128 + the signal's number.
SIGNALLED = 128
