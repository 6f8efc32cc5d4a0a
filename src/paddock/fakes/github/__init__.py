"""A fake GitHub that is held to GitHub's own contract (`tests/contract`).

Without it, nothing about webhooks, minting or recovery could be tried on one machine, and no failure
of GitHub's could be had on demand. Start at `model`.
"""

from paddock.fakes.github.answers import Reply, Request
from paddock.fakes.github.faults import FaultKind, Faults, Quotas, Timing
from paddock.fakes.github.hooks import Outgoing
from paddock.fakes.github.model import FakeGitHub
from paddock.fakes.github.records import JobSpec, Step

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
