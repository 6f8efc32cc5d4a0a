"""A registry on the loopback, to see what happens while an image is pulled.

Imported images exist at once. A test of slow, failing or refused pulls needs a registry that it can
tell to wait.
"""

from __future__ import annotations

import dataclasses
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final, Self

from tools.cluster.archives import MANIFEST, Blobs, Image, Layer

#: As long as a test may take; the registry's end lets a held pull go.
_LONGEST_HOLD_S: Final = 120.0


class Registry:
    """`hold` and `release` are for all pulls alike."""

    def __init__(self) -> None:
        self._blobs = Blobs()
        self._tags: dict[str, str] = {}
        self._open = threading.Event()
        self._open.set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, name="registry")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def push(self, image: Image, name: str) -> str:
        """The reference by which a Pod names it. The image differs from all that were pulled before:
        it has one more layer, which contains only its name."""
        mark = Layer()
        mark.file("/etc/image", name.encode())
        image = dataclasses.replace(image, layers=(*image.layers, mark))
        self._tags[f"/v2/{name}/manifests/1"] = self._blobs.add_image(image)["digest"]
        return f"127.0.0.1:{self._server.server_port}/{name}:1"

    def hold(self) -> None:
        """Pulls wait."""
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    def find(self, path: str) -> tuple[str, bytes] | None:
        """A digest and what it is of, once it may be known."""
        self._open.wait(_LONGEST_HOLD_S)
        digest = self._tags.get(path, path.rpartition("/")[2])
        content = self._blobs.content.get(digest)
        return None if content is None else (digest, content)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self._answer()

            def do_GET(self) -> None:
                self.wfile.write(self._answer())

            def _answer(self) -> bytes:
                found = ("", b"{}") if self.path == "/v2/" else registry.find(self.path)
                status = HTTPStatus.OK if found else HTTPStatus.NOT_FOUND
                digest, content = found or ("", b"")
                kind = MANIFEST if "/manifests/" in self.path else "application/octet-stream"
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(content)))
                self.send_header("docker-content-digest", digest)
                self.end_headers()
                return content

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Replaces the server's access log: tests have their own."""

        return Handler
