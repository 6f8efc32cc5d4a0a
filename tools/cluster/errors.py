"""Errors that users of the cluster tools read."""

from __future__ import annotations


class ClusterError(Exception):
    """One sentence: what is wrong, and what to do."""


class Missing(ClusterError):
    """A requirement is missing on this machine; the tests are skipped with this sentence."""
