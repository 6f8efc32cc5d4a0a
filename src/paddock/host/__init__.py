"""Prepares a Mac to run runners' virtual machines: packet-filter rules, launchd jobs, and a report to
the cluster.

In another system every host of a fleet failed at this step 2,300 times in a row, each time for the same
reason. The first sign was a job that waited for a hundred minutes. So here each step can be repeated
after any partial failure, and the result is a condition of the host's Node, which pools heed.

It imports only the standard library and nothing else of paddock. This one directory, copied to a Mac
with Python 3.11, is all that `python3 -I -S …/paddock/host bootstrap` needs.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
