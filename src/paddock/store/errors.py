"""What can go wrong between paddock and its database, as one sentence each.

The command line prints these sentences as they are, so each says what was wrong, where, and what to
do, and none ever contains a password. A service tells them apart by class: what may be tried again
(`DatabaseUnavailable`, `Contended`: nothing was written), what must be looked at first
(`OutcomeUnknown`), and what no repetition will mend (the rest).
"""

from __future__ import annotations


class StoreError(Exception):
    """The base of all of them."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class DatabaseUnavailable(StoreError):
    """The database cannot be reached, or went away, or has no room. Nothing of the transaction was
    written; it may be tried again later."""


class SessionEnded(DatabaseUnavailable):
    """The server ended the session before anything was written. Another may be had at once."""


class OutcomeUnknown(StoreError):
    """The connection was lost while COMMIT was on its way: the transaction took effect, or it did
    not. Deliberately no `DatabaseUnavailable`, whose handlers simply try again."""


class Contended(StoreError):
    """Others held the locks for too long, or won too often. Nothing was written."""


class DatabaseMisconfigured(StoreError):
    """The database answers, and will go on giving this answer until somebody changes something."""


class SchemaMismatch(StoreError):
    """This program and the schema in the database do not belong together."""


class MigrationFailed(StoreError):
    """A migration could not be read or applied. Nothing of it is left in the database."""


class EmbeddedPostgresError(StoreError):
    """paddock's own PostgreSQL cannot be started in this directory."""


class DirectoryInUse(EmbeddedPostgresError):
    """Another paddock owns the data directory."""
