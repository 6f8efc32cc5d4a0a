"""Errors between paddock and its database, one sentence each.

The command line prints these sentences as they are. So each says what was wrong, where, and what to
do, and none contains a password. A service tells the errors apart by class. `DatabaseUnavailable` and
`Contended` may be tried again: nothing was written. After `OutcomeUnknown` the caller must first read
what was written. The rest cannot be solved by trying again.
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


class SessionEnded(DatabaseUnavailable):
    """The server ended the session before anything was written. A new session is available at once."""


class OutcomeUnknown(StoreError):
    """The connection was lost during COMMIT: the transaction took effect, or it did not. Deliberately
    not a `DatabaseUnavailable`, because handlers of that error simply try again."""


class Contended(StoreError):
    """Other sessions held the locks for too long, or won conflicts too often. Nothing was written."""


class DatabaseMisconfigured(StoreError):
    """The database answers, and will answer the same until an operator changes its configuration."""


class SchemaMismatch(StoreError):
    """This program and the schema in the database do not belong together."""


class MigrationFailed(StoreError):
    """A migration could not be read or applied. Nothing of it is left in the database."""


class EmbeddedPostgresError(StoreError):
    """paddock's own PostgreSQL cannot be started in this directory."""


class DirectoryInUse(EmbeddedPostgresError):
    """Another paddock owns the data directory."""
