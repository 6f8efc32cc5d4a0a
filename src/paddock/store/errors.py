"""Errors of this adapter alone: those that a command reports, and no service handles. And why a
connection to PostgreSQL failed, as a sentence that says what to do.

The errors that services tell apart are part of the ports: `paddock.ports.errors`. These too are one
sentence each, which the command line prints as it is.

asyncpg raises errors of the operating system, of OpenSSL, of PostgreSQL and of its own. Some of them
quote the URL, password included, so every such message passes through here before a user sees it.
"""

from __future__ import annotations

import os
import socket
import ssl
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import asyncpg

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


_FILES = {"sslrootcert", "sslcert", "sslkey", "sslcrl"}
_SECRET_PARAMETERS = {"password", "sslpassword"}


def redacted(url: str) -> str:
    """The URL without its password. Shows nothing of a URL that `check_url` refuses."""
    try:
        parts = _taken_apart(url)
    except DatabaseMisconfigured:
        return "the database URL"
    account, at, hosts = parts.netloc.rpartition("@")
    user, colon, _ = account.partition(":")
    query = [
        (name, "***" if name in _SECRET_PARAMETERS else value)
        for name, value in parse_qsl(parts.query)
    ]
    netloc = f"{user}{colon and ':***'}{at}{hosts}"
    return urlunsplit((parts.scheme, netloc, parts.path, urlencode(query, safe="/*"), ""))


def check_url(url: str) -> None:
    """Refuse a malformed URL before asyncpg does: asyncpg's message would quote the URL."""
    for name, value in parse_qsl(_taken_apart(url).query):
        if name in _FILES and not os.access(value, os.R_OK):
            raise DatabaseMisconfigured(
                f"The file {value} that {name} names in the database URL cannot be read: check the "
                "path and its permissions."
            )


def _taken_apart(url: str) -> SplitResult:
    what_to_do = (
        "write postgresql://user:password@host:5432/database, with special characters in the "
        "password percent-encoded."
    )
    try:
        parts = urlsplit(url)
    except ValueError:
        raise DatabaseMisconfigured(f"The database URL cannot be read: {what_to_do}") from None
    if parts.scheme not in {"postgresql", "postgres"}:
        raise DatabaseMisconfigured(
            f"The database URL does not begin with postgresql://: {what_to_do}"
        )
    # An unescaped / ? or # in the password ends the password's part of the URL: the rest of the
    # password is read as a path, a query or a fragment.
    is_torn = parts.fragment or ("@" not in parts.netloc and "@" in parts.path + parts.query)
    hosts = parts.netloc.rpartition("@")[2].split(",")
    ports = [host.rpartition(":")[2] for host in hosts if ":" in host.rpartition("]")[2]]
    if is_torn or not all(port.isdigit() for port in ports):
        raise DatabaseMisconfigured(
            f"The host and port in the database URL cannot be made out: {what_to_do}"
        )
    return parts


def sentence_for(error: BaseException, url: str) -> StoreError | None:
    """What to raise instead of `error`; None for an error that is not about connecting."""
    shown = redacted(url)
    return _tls(error, shown) or _unreachable(error, shown) or _refused(error, shown, url)


def _tls(error: BaseException, shown: str) -> StoreError | None:
    if isinstance(error, ssl.SSLCertVerificationError):
        return DatabaseMisconfigured(
            f"The certificate of the server at {shown} is not trusted ({error.verify_message}): "
            "name its certificate authority with sslrootcert=FILE, or check the host name."
        )
    if isinstance(error, ssl.SSLError):
        return DatabaseMisconfigured(
            f"TLS with the server at {shown} failed ({error.reason or 'no reason given'}): check "
            "sslmode, sslrootcert, sslcert and sslkey in the URL."
        )
    if isinstance(error, ConnectionError) and "rejected SSL upgrade" in str(error):
        return DatabaseMisconfigured(
            f"The server at {shown} does not offer TLS, which sslmode in the URL demands: switch "
            "it on there (ssl = on), or use sslmode=prefer on a network you trust."
        )
    return None


def _unreachable(error: BaseException, shown: str) -> StoreError | None:
    match error:
        case socket.gaierror():
            reason, remedy = "its host name is not known", "check the name and the DNS"
        case ConnectionRefusedError():
            reason, remedy = "nothing listens there", "check the address, and that it runs"
        case FileNotFoundError():
            reason, remedy = "there is no such socket", "check the path, and that the server runs"
        case TimeoutError():
            reason, remedy = "no answer in time", "check the address and any firewall in between"
        case asyncpg.CannotConnectNowError():
            reason, remedy = str(error), "wait until it has started"
        case asyncpg.TooManyConnectionsError():
            reason = "it has no connection left"
            remedy = "raise its max_connections, or lower the number of paddock's replicas"
        case asyncpg.TargetServerAttributeNotMatched():
            reason, remedy = (
                "no server there is of the kind asked for",
                "check target_session_attrs",
            )
        case OSError() | asyncpg.PostgresConnectionError():
            reason, remedy = _words(error), "check the address, and that the server runs"
        case _:
            return None
    return DatabaseUnavailable(f"The database at {shown} cannot be reached ({reason}): {remedy}.")


def _refused(error: BaseException, shown: str, url: str) -> StoreError | None:
    user = unquote(urlsplit(url).username or "") or "the default user"
    match error:
        case asyncpg.InvalidPasswordError():
            said = f"The database at {shown} refused the password of {user}"
            remedy = "correct it in PADDOCK_DATABASE_URL (special characters percent-encoded)"
        case asyncpg.InvalidAuthorizationSpecificationError():
            said = f"The database at {shown} does not let {user} in ({_words(error)})"
            remedy = "create the role, or allow it in the server's pg_hba.conf"
        case asyncpg.InvalidCatalogNameError():
            said = f"The server at {shown} has no such database"
            remedy = "create it (CREATE DATABASE), or correct its name in PADDOCK_DATABASE_URL"
        case asyncpg.InsufficientPrivilegeError():
            said = f"The database at {shown} does not let {user} in ({_words(error)})"
            remedy = "grant the role CONNECT on that database"
        case asyncpg.ClientConfigurationError() | ValueError():
            # Its message may quote the URL.
            said = "The database URL has an option that cannot be used"
            remedy = "check everything after the ? (sslmode, sslrootcert, port, …)"
        case asyncpg.PostgresError():
            said = f"The database at {shown} refused the connection ({_words(error)})"
            remedy = "see its log"
        case _:
            return None
    return DatabaseMisconfigured(f"{said}: {remedy}.")


def _words(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).splitlines()[0].rstrip(".")
