"""A fake GitHub that is held to GitHub's own contract (`tests/contract`).

Without it, nothing about webhooks, minting or recovery could be tried on one machine, and no failure
of GitHub's could be had on demand. Start at `model`.
"""

from paddock.sim.github.answers import Reply, Request
from paddock.sim.github.faults import FaultKind, Faults, Quotas, Timing
from paddock.sim.github.hooks import Outgoing
from paddock.sim.github.model import FakeGitHub
from paddock.sim.github.records import JobSpec, Step

__all__ = [
    "FakeGitHub",
    "FaultKind",
    "Faults",
    "JobSpec",
    "Outgoing",
    "Quotas",
    "Reply",
    "Request",
    "Step",
    "Timing",
]
