"""The error that users read when no plan is possible."""

from __future__ import annotations


class ReleaseError(Exception):
    """One sentence: what is wrong, and what to do."""
