"""HTTP to the paddock server, by hand, one request per connection.

`http.client` imports `email` and `ssl`: seven megabytes for every idle Pod. The agent needs only a POST
whose answer has a known end, so that a truncated reply is never taken for a whole one (I20), and a
deadline that also holds in the resolver, where sockets have none.
"""

from __future__ import annotations

import _thread
import os
import socket
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from paddock.agent.log import log

if TYPE_CHECKING:
    import ssl

#: For each address; the kernel has resent a lost packet by then.
_CONNECT_SECONDS: Final = 5.0
#: A resolver repeats its query after 5 s.
_RESOLVE_SECONDS: Final = 12.0

_MOST_HEAD: Final = 32 * 1024
#: A JIT has some 5 KB.
_MOST_BODY: Final = 256 * 1024
#: A projected token has some 1.5 KB.
_MOST_TOKEN: Final = 32 * 1024


class Unreachable(Exception):
    """The request was not sent."""


class ResponseLost(Exception):
    """The request was sent, but no whole answer came back: the server may have done what it asked."""


class NoToken(Exception):
    """There is no token to send."""


class Response(NamedTuple):
    status: int
    #: By lower-case name.
    headers: dict[str, str]
    body: bytes

    @property
    def retry_after(self) -> float | None:
        text = self.headers.get("retry-after", "")
        return float(text) if text.isascii() and text.isdigit() and len(text) < 6 else None


class Url(NamedTuple):
    secure: bool
    authority: str
    host: str
    port: int
    path: str

    @staticmethod
    def parse(text: str) -> Url:
        """Raises ValueError."""
        scheme, _, rest = text.partition("://")
        authority, _, path = rest.partition("/")
        host, _, port = authority.rpartition(":")
        if not port.isdigit() or not host:  # no port; or an IPv6 address without one
            host, port = authority, "443" if scheme == "https" else "80"
        is_plain = text.isascii() and text.isprintable() and not set(" ?#@") & set(text)
        if scheme not in ("http", "https") or not host or not is_plain or int(port) > 65535:
            raise ValueError(f"{text!r} is not an address like https://paddock.example:8080")
        base = ("/" + path.strip("/")).rstrip("/")
        return Url(scheme == "https", authority, host.strip("[]"), int(port), base)


class UrlFile(NamedTuple):
    """A file with the address. A server on this machine may come back at another port, and its Pods
    outlive it."""

    path: str

    def read(self) -> Url:
        """Raises Unreachable."""
        try:
            with open(self.path, encoding="ascii") as file:
                url = Url.parse(file.read(_MOST_TOKEN).strip())
        except (OSError, ValueError) as error:
            raise Unreachable(f"{self.path}: {_sentence(error)}") from None
        if url.secure:
            raise Unreachable(f"{self.path} holds an https address, which it may not")
        return url


class Server:
    def __init__(self, url: Url | UrlFile, *, token_file: str, ca_file: str | None = None) -> None:
        """Raises OSError when the certificates cannot be read."""
        self._where = url
        self._token_file = token_file
        self._ca_file = ca_file
        self._ca_stamp = _stamp(ca_file)
        self._tls = _tls(ca_file) if isinstance(url, Url) and url.secure else None

    def post(self, path: str, body: bytes = b"", *, patience: float) -> Response:
        """Raises NoToken, Unreachable or Lost."""
        deadline = time.monotonic() + patience
        url = self._where.read() if isinstance(self._where, UrlFile) else self._where
        request = (
            f"POST {url.path}{path} HTTP/1.1\r\n"
            f"Host: {url.authority}\r\n"
            "User-Agent: paddock-agent\r\n"
            "Accept: application/json\r\n"
            "Connection: close\r\n"
            f"Authorization: Bearer {self._token()}\r\n"
            "Content-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode() + body
        with self._connect(url, deadline) as connection:
            try:
                connection.settimeout(_left(deadline))
                connection.sendall(request)
                return _Reader(connection, deadline).answer()
            except (OSError, ValueError) as error:
                raise ResponseLost(_sentence(error)) from None

    def _token(self) -> str:
        """Read for each request: the kubelet replaces the token long before it expires (I21)."""
        try:
            with open(self._token_file, encoding="ascii") as file:
                token = file.read(_MOST_TOKEN).strip()
        except (OSError, ValueError) as error:
            raise NoToken(f"{self._token_file} cannot be read: {_sentence(error)}") from None
        if not token or not token.isprintable() or " " in token:
            raise NoToken(f"{self._token_file} does not hold a token.")
        return token

    def _connect(self, url: Url, deadline: float) -> socket.socket:
        failure: Exception = OSError("the name has no address")
        try:
            for address in _resolve(url, min(_RESOLVE_SECONDS, _left(deadline))):
                try:
                    return self._open(url, address, min(_CONNECT_SECONDS, _left(deadline)))
                except OSError as error:
                    failure = error
        except OSError as error:
            failure = error
        raise Unreachable(f"{url.authority}: {_sentence(failure)}")

    def _open(self, url: Url, address: tuple[str, int], patience: float) -> socket.socket:
        plain = socket.create_connection(address, timeout=patience)
        if self._tls is None:
            return plain
        self._renew_authorities()
        try:
            # This verifies the server's certificate and name, before anything is sent.
            return self._tls.wrap_socket(plain, server_hostname=url.host)
        except OSError as error:
            plain.close()
            raise OSError(_refusal(error)) from None
        except BaseException:
            plain.close()
            raise

    def _renew_authorities(self) -> None:
        """Load the CA file again if it has changed: the kubelet replaces it when the server's CA
        changes. A file that cannot be used leaves the previous CAs in force."""
        stamp = _stamp(self._ca_file)
        if stamp == self._ca_stamp:
            return
        self._ca_stamp = stamp
        try:
            self._tls = _tls(self._ca_file)
        except OSError as error:
            log("authorities.rejected", file=self._ca_file, why=_sentence(error))
        else:
            log("authorities.replaced", file=self._ca_file)


def _tls(ca_file: str | None) -> ssl.SSLContext:
    import ssl  # four megabytes, loaded only if needed

    context = ssl.create_default_context(cafile=ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _stamp(file: str | None) -> tuple[int, ...] | None:
    """Changes when the file changes, or a symbolic link on its path."""
    try:
        found = os.stat(file or "")
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _refusal(error: OSError) -> str:
    """Why TLS with the server failed."""
    if why := getattr(error, "verify_message", None):
        return f"the server's certificate is rejected: {why}"
    if code := getattr(error, "reason", None):
        return f"the server does not speak TLS as it should: {code}"
    return _sentence(error)


def _resolve(url: Url, patience: float) -> list[tuple[str, int]]:
    """Resolve in a thread: a resolver that waits for an answer heeds no time-out and delays signals, so
    SIGTERM would have to wait for it."""
    found: list[tuple[str, int]] = []
    failed: list[OSError] = []
    done = _thread.allocate_lock()
    done.acquire()

    def look() -> None:
        try:
            infos = socket.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
            found.extend((str(info[4][0]), url.port) for info in infos)
        except (OSError, UnicodeError) as error:
            failed.append(OSError(_sentence(error)))
        finally:
            done.release()

    _thread.start_new_thread(look, ())
    if not done.acquire(timeout=patience):
        raise TimeoutError("the resolver does not answer")
    if failed:
        raise failed[0]
    return found


class _Reader:
    """Reads one answer from a connection, until a deadline. Raises OSError or ValueError."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline
        self._buffer = bytearray()

    def answer(self) -> Response:
        status, headers = self._head()
        if status == 204:
            return Response(status, headers, b"")
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return Response(status, headers, self._chunks())
        length = headers.get("content-length", "")
        if not length.isascii() or not length.isdigit():
            raise ValueError("the answer does not say where it ends")
        return Response(status, headers, self._exactly(int(length)))

    def _head(self) -> tuple[int, dict[str, str]]:
        first, *lines = self._until(b"\r\n\r\n", _MOST_HEAD).decode("latin-1").split("\r\n")
        words = first.split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
            raise ValueError("the answer is not HTTP")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        return int(words[1]), headers

    def _chunks(self) -> bytes:
        """A chunked body: an ingress may choose this form for any answer."""
        body = bytearray()
        while size := int(self._until(b"\r\n", 64).partition(b";")[0], 16):
            if not 0 < size <= _MOST_BODY - len(body):
                raise ValueError("the answer is too long")
            body += self._exactly(size)
            self._exactly(2)
        return bytes(body)

    def _until(self, mark: bytes, most: int) -> bytes:
        while (end := self._buffer.find(mark)) < 0:
            if len(self._buffer) > most:
                raise ValueError("the answer is too long")
            self._more()
        taken = bytes(self._buffer[:end])
        del self._buffer[: end + len(mark)]
        return taken

    def _exactly(self, length: int) -> bytes:
        if length > _MOST_BODY:
            raise ValueError("the answer is too long")
        while len(self._buffer) < length:
            self._more()
        taken = bytes(self._buffer[:length])
        del self._buffer[:length]
        return taken

    def _more(self) -> None:
        self._connection.settimeout(_left(self._deadline))
        received = self._connection.recv(16384)
        if not received:
            raise ConnectionResetError("the connection was closed before the answer was complete")
        self._buffer += received


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("no answer in time")
    return left


def _sentence(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
