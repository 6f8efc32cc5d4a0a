"""A fake GitHub, checked against GitHub's own contract (`tests/contract`).

It makes webhooks, minting and recovery testable on one machine, and GitHub's failures available on
demand. Start at `model`.
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
