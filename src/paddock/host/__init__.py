"""Makes a Mac fit to run runners' virtual machines: packet-filter rules, what launchd starts, and
the word of it to the cluster.

Elsewhere every host of a fleet failed at this step 2,300 times in a row, for the same reason each
time, and the first to notice was a job that waited for a hundred minutes. So here each step may be
done again, whatever was left half done; and how it went is a condition of the host's Node, which
pools go by.

It imports nothing else of paddock and nothing but the standard library: this one directory, copied
to a Mac with Python 3.11 on it, is all that `python3 -I -S …/paddock/host bootstrap` needs.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
