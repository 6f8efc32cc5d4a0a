"""Certificates: the cluster's own authority, and what it signs."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

#: Clocks of virtual machines are set back now and then.
_EARLIER: Final = timedelta(days=1)
_LIFE: Final = timedelta(days=30)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes

    def write(self, directory: Path, name: str) -> None:
        (directory / f"{name}.crt").write_bytes(self.certificate)
        write_private(directory / f"{name}.key", self.key)


class Authority:
    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "paddock-test-cluster")])
        self._certificate = (
            _builder(self._name, self._name, self._key.public_key(), self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_usage(ca=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def pair(self) -> Pair:
        return Pair(self._certificate.public_bytes(serialization.Encoding.PEM), pem(self._key))

    def server(self, name: str, *, addresses: Sequence[str], names: Sequence[str]) -> Pair:
        alternatives = [
            *(x509.IPAddress(ipaddress.ip_address(address)) for address in addresses),
            *(x509.DNSName(each) for each in names),
        ]
        return self._issue(name, (), ExtendedKeyUsageOID.SERVER_AUTH, alternatives)

    def client(self, name: str, *, groups: Sequence[str] = ()) -> Pair:
        """Kubernetes takes the common name for the user and the organisations for groups."""
        return self._issue(name, groups, ExtendedKeyUsageOID.CLIENT_AUTH, ())

    def _issue(
        self,
        name: str,
        groups: Sequence[str],
        purpose: x509.ObjectIdentifier,
        alternatives: Sequence[x509.GeneralName],
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
            + [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        )
        builder = (
            _builder(subject, self._name, key.public_key(), self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(ca=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        )
        if alternatives:
            builder = builder.add_extension(
                x509.SubjectAlternativeName(alternatives), critical=False
            )
        certificate = builder.sign(self._key, hashes.SHA256())
        return Pair(certificate.public_bytes(serialization.Encoding.PEM), pem(key))


def signing_key() -> bytes:
    """The private key of service account tokens; its public half is read from it."""
    return pem(ec.generate_private_key(ec.SECP256R1()))


def pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def write_private(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)


def base64_of(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + _LIFE)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False
        )
    )


def _usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=ca,
        crl_sign=ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
