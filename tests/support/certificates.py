"""Certificates of a test's own authority, and files that are replaced as a kubelet replaces them."""

from __future__ import annotations

import ipaddress
import itertools
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY = timedelta(days=1)
_numbers = itertools.count()


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def private_pem(key: ec.EllipticCurvePrivateKey, password: bytes | None = None) -> bytes:
    encryption = (
        serialization.BestAvailableEncryption(password)
        if password
        else serialization.NoEncryption()
    )
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    )


@dataclass(frozen=True)
class Issued:
    certificate: bytes
    key: bytes


@dataclass
class Authority:
    """Its certificates pass the stricter checks of Python 3.13."""

    name: str = "an authority"
    key: ec.EllipticCurvePrivateKey = field(
        default_factory=lambda: ec.generate_private_key(ec.SECP256R1())
    )

    def __post_init__(self) -> None:
        subject = x509.SubjectKeyIdentifier.from_public_key(self.key.public_key())
        self._certificate = (
            self._begun(self.name, self.key.public_key(), -_DAY, 10 * _DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(subject, critical=False)
            .sign(self.key, hashes.SHA256())
        )

    @property
    def pem(self) -> bytes:
        return _pem(self._certificate)

    def issue(
        self,
        *names: str,
        valid_from: timedelta = -_DAY,
        valid_to: timedelta = _DAY,
    ) -> Issued:
        """A certificate for these names and addresses; `valid_from` and `valid_to` count from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        authority = self._certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
        certificate = (
            self._begun(f"server {next(_numbers)}", key.public_key(), valid_from, valid_to)
            .add_extension(x509.SubjectAlternativeName([_san(each) for each in names]), False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority.value),
                critical=False,
            )
            .sign(self.key, hashes.SHA256())
        )
        return Issued(_pem(certificate), private_pem(key))

    def _begun(
        self, name: str, key: ec.EllipticCurvePublicKey, start: timedelta, end: timedelta
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(_named(name))
            .issuer_name(_named(self.name))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + start)
            .not_valid_after(now + end)
        )


def _san(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


@dataclass(frozen=True)
class SecretVolume:
    """A directory as a kubelet mounts it: files are links into `..data`, which is a link to a directory
    of their version, and is swapped."""

    path: Path

    @property
    def certificate(self) -> Path:
        return self.path / "tls.crt"

    @property
    def key(self) -> Path:
        return self.path / "tls.key"

    def put(self, issued: Issued) -> None:
        self.write(**{"tls.crt": issued.certificate, "tls.key": issued.key})

    def write(self, **files: bytes) -> None:
        version = self.path / f"..{next(_numbers)}"
        version.mkdir(parents=True)
        for name, content in files.items():
            (version / name).write_bytes(content)
            link = self.path / name
            if not link.is_symlink():
                link.symlink_to(f"..data/{name}")
        swapped = self.path / "..data_tmp"
        swapped.symlink_to(version.name)
        swapped.replace(self.path / "..data")
