"""What a person reads when the cluster cannot be had."""

from __future__ import annotations


class ClusterError(Exception):
    """One sentence: what is wrong, and what to do."""


class Missing(ClusterError):
    """Something is not on this machine; the tests are skipped with this sentence."""
