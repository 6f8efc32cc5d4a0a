"""The bugs that others had, put back one at a time.

A simulator that finds nothing proves nothing: perhaps there is nothing, perhaps it does not look. Each
mutant here is a small change to the product's own code, taken from an incident or an invariant, and
the checkers must find the promise it breaks. Where a constraint of the database makes the old bug
impossible, the mutant takes the constraint away too: it is the promise that is on trial, not the
schema.

All of it is undone when the block ends; nothing outside of this process is changed, and of the database
only what the same block puts back.
"""

from __future__ import annotations

from typing import Final

from simulator.mutants import (  # noqa: F401 - each adds its own
    clocks,
    deleting,
    ends,
    forcing,
    intake,
    minting,
    outages,
    recovering,
    repository_limits,
    searching,
    serving,
    sharing,
    sweeping,
    telling,
    untuned,
    untuned_at_size,
    watching,
)
from simulator.mutants.making import MADE, Mutant

__all__ = ["MUTANTS", "Mutant"]

MUTANTS: Final[dict[str, Mutant]] = {mutant.name: mutant for mutant in MADE}
