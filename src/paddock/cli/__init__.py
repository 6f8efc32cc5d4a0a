"""The command line."""

from paddock.cli.app import main

__all__ = ["main"]
