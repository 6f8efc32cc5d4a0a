"""What can go wrong, in sentences."""

from __future__ import annotations


class ConfigurationRefused(Exception):
    """The host's file cannot be used as it is."""


class StepFailed(Exception):
    """A step did not succeed; nothing is known of why but what its program said."""

    def __init__(self, step: str, why: str) -> None:
        super().__init__(why)
        self.step = step


class ReportFailed(Exception):
    """The cluster was not told."""
