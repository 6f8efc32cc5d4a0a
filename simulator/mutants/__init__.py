"""Known bugs, put back one at a time.

A simulator that finds nothing proves nothing: perhaps it does not look. Each mutant here is a small
change to the product's own code, taken from an incident or an invariant. The checkers must find the
promise that it breaks. Where a constraint of the database makes the old bug impossible, the mutant
removes the constraint too: the mutant tests the promise, not the schema.

The end of the block undoes all of it. Nothing outside this process changes, except the schema objects
that the same block restores.
"""

from __future__ import annotations

from typing import Final

from simulator.mutants import (  # noqa: F401 - each adds its own
    clocks,
    ends,
    fair_shares,
    fleet_views,
    intake,
    mints,
    outages,
    pod_deletions,
    recovery,
    reports,
    repository_limits,
    runner_search,
    supply,
    sweeps,
    untuned,
)
from simulator.mutants.patches import MADE, Mutant

__all__ = ["MUTANTS", "Mutant"]

MUTANTS: Final[dict[str, Mutant]] = {mutant.name: mutant for mutant in MADE}
