"""Errors, each with a sentence."""

from __future__ import annotations


class ConfigurationRefused(Exception):
    """The host's file is invalid."""


class StepFailed(Exception):
    """A step failed; the only known reason is the message of its program."""

    def __init__(self, step: str, why: str) -> None:
        super().__init__(why)
        self.step = step


class ReportFailed(Exception):
    """The report did not reach the cluster."""
