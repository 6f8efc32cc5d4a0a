"""The errors of every store port, one sentence each, and what a service may do after each.

Each method of a store port is one transaction: what it writes, and the events that tell of it, commit
together or not at all (I14). No method repeats a transaction that may have been committed.

The command line prints these sentences as they are. So each says what was wrong, where, and what to
do, and none contains a password. A service tells the errors apart by class. `DatabaseUnavailable` and
`Contended` may be tried again: nothing was written. After `OutcomeUnknown` the caller must first read
what was written. Any other `StoreError` cannot be solved by trying again.
"""

from __future__ import annotations


class StoreError(Exception):
    """The base class of these errors."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class DatabaseUnavailable(StoreError):
    """The database cannot be reached, or went away, or has no room. Nothing of the transaction was
    written; it may be tried again later."""


class OutcomeUnknown(StoreError):
    """The connection was lost during COMMIT: the transaction took effect, or it did not. Deliberately
    not a `DatabaseUnavailable`, because handlers of that error simply try again."""


class Contended(StoreError):
    """Other sessions held the locks for too long, or won conflicts too often. Nothing was written."""
