"""`python -m paddock.agent poll|vitals`, or `python -I -S …/paddock/agent poll|vitals`."""

from __future__ import annotations

import os
import sys

if not __package__:
    # Python put this directory on the path; it must not stay there: its modules would hide others.
    del sys.path[0]
    sys.path.append(os.path.abspath(f"{os.path.dirname(__file__)}/../.."))

from paddock.agent.options import USAGE, AgentExit, Options, UsageError


def main(arguments: list[str]) -> int:
    command, *rest = arguments or [""]
    if command in ("help", "--help", "-h") or "--help" in rest:
        sys.stdout.write(USAGE)
        return AgentExit.STAGED
    try:
        if command == "poll":
            from paddock.agent.poll import poll

            return poll(Options.read(rest, os.environ))
        if command == "vitals":
            from paddock.agent.vitals import vitals

            return vitals(Options.read(rest, os.environ))
        why = f"There is no command {command!r}."
    except UsageError as error:
        why = str(error)
    sys.stderr.write(f"{why}\n\n{USAGE}")
    return AgentExit.USAGE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
