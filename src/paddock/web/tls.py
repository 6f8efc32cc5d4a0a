"""TLS for the listeners that Pods reach: the certificate, and its renewal.

Certificates are renewed while the server runs: cert-manager writes a new Secret, and the kubelet
replaces the mounted files. If the server loaded them only once, every Pod would refuse it after the
first certificate expires. An unusable replacement must not take the place of a usable certificate.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import structlog
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from prometheus_client import Gauge

from paddock.ports import Clock

_log = structlog.get_logger()

EXPIRY = Gauge(
    "paddock_tls_certificate_expiry_timestamp_seconds",
    "When the certificate of the listeners for Pods expires; 0 where they are served without TLS.",
)
#: The kubelet itself takes up to a minute or two to update a changed Secret in its Pods.
LOOK_EVERY: Final = 10.0
#: cert-manager renews when a third of the lifetime is left; at a sixth it has missed a renewal.
_SOON_FRACTION: Final = 6
_SOON_AT_MOST: Final = timedelta(days=30)


class CertificateRejected(Exception):
    """The certificate cannot be used; the argument is a sentence that names the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFiles:
    """PEM files: the certificate with its intermediates, and its private key."""

    certificate: Path
    key: Path

    def stamp(self) -> tuple[object, ...]:
        """Changes when one of the files changes, or a symbolic link on its path."""
        return tuple(map(_stamp, (self.certificate, self.key)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    context: ssl.SSLContext
    #: The DNS names and addresses of the certificate.
    names: frozenset[str]
    not_before: datetime
    not_after: datetime

    def is_for(self, host: str) -> bool:
        """Whether a client that asks for this host accepts it."""
        host = host.lower()
        return host in self.names or f"*.{host.partition('.')[2]}" in self.names

    def expires_soon(self, now: datetime) -> bool:
        """True if a renewal was due and is missing."""
        lifetime = self.not_after - self.not_before
        return self.not_after - now < min(lifetime / _SOON_FRACTION, _SOON_AT_MOST)


def load_certificate(files: CertificateFiles) -> Certificate:
    """Raises CertificateRejected. An expired certificate is loaded: the caller may have no other."""
    chain, key = _read(files.certificate), _read(files.key)
    try:
        leaf, *_ = x509.load_pem_x509_certificates(chain)
    except ValueError:
        raise CertificateRejected(f"{files.certificate} holds no certificate in PEM.") from None
    try:
        private = load_pem_private_key(key, password=None)
    except TypeError:
        raise CertificateRejected(f"{files.key} is encrypted: store the key without one.") from None
    except (ValueError, UnsupportedAlgorithm):
        raise CertificateRejected(f"{files.key} holds no private key in PEM.") from None
    if private.public_key() != leaf.public_key():
        raise CertificateRejected(
            f"The private key in {files.key} does not belong to the certificate in "
            f"{files.certificate}."
        )
    context = _context()
    try:
        context.load_cert_chain(files.certificate, files.key)
    except (OSError, ssl.SSLError) as error:
        raise CertificateRejected(f"{files.certificate} cannot be used: {error}.") from None
    return Certificate(
        context=context,
        names=_names(leaf),
        not_before=leaf.not_valid_before_utc,
        not_after=leaf.not_valid_after_utc,
    )


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise CertificateRejected(f"{file} cannot be read: {error.strerror}.") from None


def _names(leaf: x509.Certificate) -> frozenset[str]:
    try:
        found = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return frozenset()
    addresses = map(str, found.get_values_for_type(x509.IPAddress))
    return frozenset(
        (*(name.lower() for name in found.get_values_for_type(x509.DNSName)), *addresses)
    )


def _stamp(file: Path) -> tuple[int, ...] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # The agent resumes no session, so each ticket would waste two packets.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    return context


class ServerCertificate:
    """The certificate that handshakes use, replaced when its files change. Open connections keep
    theirs."""

    def __init__(self, files: CertificateFiles, clock: Clock) -> None:
        """Raises CertificateRejected."""
        self._files = files
        self._clock = clock
        # Stamped before the files are read: a file that changes in between is read again.
        self._tried = files.stamp()
        self._current = load_certificate(files)
        if self._current.not_after <= clock.now():
            # Not fatal: only Pods use this certificate, and webhooks are still accepted.
            _log.error("tls.certificate_expired", **self._described())
        EXPIRY.set(self._current.not_after.timestamp())
        #: Never replaced: each handshake selects the current certificate. Selecting by assignment never
        #: pairs a certificate with another one's key, as loading into a context in use could.
        self.context = _context()
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
        connection.context = self._current.context

    async def run(self) -> None:
        while True:
            await self._clock.sleep(LOOK_EVERY)
            self.refresh()

    def refresh(self) -> None:
        stamp = self._files.stamp()
        if stamp == self._tried:
            return
        self._tried = stamp
        try:
            new = load_certificate(self._files)
            self._check_validity(new)
        except CertificateRejected as error:
            _log.error("tls.certificate_rejected", reason=str(error), **self._described())
            return
        self._current = new
        EXPIRY.set(new.not_after.timestamp())
        _log.info("tls.certificate_replaced", **self._described())

    def _check_validity(self, new: Certificate) -> None:
        now = self._clock.now()
        if not new.not_before <= now < new.not_after:
            raise CertificateRejected(
                f"{self._files.certificate} is valid from {new.not_before:%Y-%m-%d %H:%M} to "
                f"{new.not_after:%Y-%m-%d %H:%M} UTC, and it is {now:%Y-%m-%d %H:%M}."
            )

    def _described(self) -> dict[str, object]:
        """The certificate that is in use."""
        return {
            "file": str(self._files.certificate),
            "names": sorted(self._current.names),
            "expires_at": self._current.not_after.isoformat(),
        }
