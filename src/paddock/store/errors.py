"""Errors of this adapter alone: those that a command reports, and no service handles.

The errors that services tell apart are part of the ports: `paddock.ports.errors`. These too are one
sentence each, which the command line prints as it is.
"""

from __future__ import annotations

from paddock.ports.errors import DatabaseUnavailable, StoreError


class SessionEnded(DatabaseUnavailable):
    """The server ended the session before anything was written. A new session is available at once."""


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
