"""`python3 -m paddock.host bootstrap`, or `python3 -I -S …/paddock/host bootstrap`."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:
    # Python put this directory on the path; it must not stay there: its modules would hide others.
    del sys.path[0]
    sys.path.append(str(Path(__file__).resolve().parents[2]))

from paddock.host.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
