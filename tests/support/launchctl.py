"""Replaces macOS' launchctl: it records which jobs are loaded. Its state is beside that of `pfctl`."""

from __future__ import annotations

import json
import os
import plistlib
import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    path = Path(f"{os.environ['STAND_IN']}.jobs")
    jobs: dict[str, list[str]] = json.loads(path.read_text()) if path.exists() else {}
    match arguments:
        case ["print", target] if target.removeprefix("system/") not in jobs:
            label = target.removeprefix("system/")
            sys.stderr.write(f'Could not find service "{label}" in domain for system\n')
            return 113
        case ["print", _]:
            pass
        case ["bootstrap", "system", file]:
            job = plistlib.loads(Path(file).read_bytes())
            if job["Label"] in jobs:
                sys.stderr.write("Bootstrap failed: 5: Input/output error\n")
                return 5
            jobs[job["Label"]] = job["ProgramArguments"]
        case ["bootout", target]:
            del jobs[target.removeprefix("system/")]
        case _:
            sys.stderr.write(f"Unrecognized subcommand: {arguments}\n")
            return 64
    path.write_text(json.dumps(jobs))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
