"""PostgreSQL servers that listen on the loopback, ask for passwords and speak TLS."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
from anyio.from_thread import start_blocking_portal
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from paddock.store.embedded import EmbeddedPostgres
from paddock.store.server_checks import OLDEST_SERVER
from paddock.store.server_user import server_user
from tools.ports import free_port

# The directories of Debian and its derivatives.
OTHER_BINARIES = sorted(
    path
    for path in Path("/usr/lib/postgresql").glob("*/bin")
    if path.parent.name.isdigit() and int(path.parent.name) >= OLDEST_SERVER
)

PASSWORD = "right-p@ss/word"
PASSWORD_IN_URL = "right-p%40ss%2Fword"


@dataclass(frozen=True)
class TcpServer:
    server: EmbeddedPostgres
    port: int

    def url(
        self, query: str = "", *, password: str = PASSWORD_IN_URL, database: str = "paddock"
    ) -> str:
        return f"postgresql://alice:{password}@localhost:{self.port}/{database}{query}"


@contextmanager
def tcp_server(
    directory: Path, binaries: Path | None = None, **settings: str
) -> Iterator[TcpServer]:
    hba = directory / "pg_hba.conf"
    hba.write_text("local all all trust\nhost all alice 127.0.0.1/32 scram-sha-256\n")
    hba.chmod(0o644)
    port = free_port()
    settings |= {"fsync": "off", "listen_addresses": "127.0.0.1", "port": str(port)}
    settings["hba_file"] = str(hba)
    server = EmbeddedPostgres(directory / "data", settings=settings, binaries=binaries)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(server):
        portal.call(_create_alice, server.url)
        yield TcpServer(server, port)


async def _create_alice(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f"CREATE ROLE alice LOGIN PASSWORD '{PASSWORD}'")
        await connection.execute("GRANT CREATE ON SCHEMA public TO alice")
    finally:
        await connection.close()


def write_certificate(directory: Path) -> tuple[Path, Path]:
    """A self-signed certificate for localhost, and its key, as PostgreSQL wants them."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = directory / "server.crt", directory / "server.key"
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    certificate_file.chmod(0o644)
    key_file.chmod(0o600)
    server_user(None).give(key_file)
    return certificate_file, key_file
