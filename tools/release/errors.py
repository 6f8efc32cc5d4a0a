"""What a person reads when there is no plan."""

from __future__ import annotations


class ReleaseError(Exception):
    """One sentence: what is wrong, and what to do."""
