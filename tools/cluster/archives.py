"""Images as archives in the format of the Open Container Initiative, which containerd imports."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"


class Layer:
    """Files to write; directories above them are added."""

    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._buffer, mode="w")  # noqa: SIM115  closed by content()
        self._seen: set[str] = set()

    def directory(self, path: str, *, mode: int = 0o755, owner: int = 0) -> None:
        if path in self._seen:
            return
        self._add(path, tarfile.DIRTYPE, mode=mode, owner=owner)

    def file(self, path: str, content: bytes, *, mode: int = 0o644, modified: float = 0) -> None:
        """`modified` matters where compiled Python lies beside its source."""
        self._add(path, tarfile.REGTYPE, mode=mode, content=content, modified=modified)

    def link(self, path: str, target: str) -> None:
        self._add(path, tarfile.SYMTYPE, target=target)

    def copy(self, source: Path, path: str | None = None) -> None:
        about = source.stat()
        mode = 0o755 if about.st_mode & 0o100 else 0o644
        self.file(path or str(source), source.read_bytes(), mode=mode, modified=about.st_mtime)

    def content(self) -> bytes:
        self._tar.close()
        return self._buffer.getvalue()

    def _add(
        self,
        path: str,
        kind: bytes,
        *,
        mode: int = 0o777,
        owner: int = 0,
        content: bytes = b"",
        target: str = "",
        modified: float = 0,
    ) -> None:
        if path in self._seen:
            return
        parent = path.rpartition("/")[0]
        if parent:
            self.directory(parent)
        self._seen.add(path)
        entry = tarfile.TarInfo(path.lstrip("/"))
        entry.type, entry.mode, entry.linkname = kind, mode, target
        entry.uid = entry.gid = owner
        entry.mtime, entry.size = modified, len(content)
        self._tar.addfile(entry, io.BytesIO(content))


@dataclass(frozen=True)
class Image:
    name: str
    layers: Sequence[Layer]
    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    environment: Sequence[str] = ()
    user: str = ""
    directory: str = "/"


@dataclass
class Blobs:
    """The blobs of images, by digest: shared ones are stored once."""

    content: dict[str, bytes] = field(default_factory=dict)

    def add_image(self, image: Image) -> dict[str, Any]:
        """The descriptor of its manifest."""
        layers = [self._add(layer.content(), _LAYER) for layer in image.layers]
        config = self._add(_config(image, layers), _CONFIG)
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers}
        return self._add(json.dumps(manifest).encode(), MANIFEST)

    def _add(self, content: bytes, media_type: str) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self.content[digest] = content
        return {"mediaType": media_type, "digest": digest, "size": len(content)}


def write_archive(path: Path, images: Sequence[Image]) -> None:
    blobs = Blobs()
    manifests = [
        blobs.add_image(image) | {"annotations": {"io.containerd.image.name": image.name}}
        for image in images
    ]
    with tarfile.open(path, "w") as tar:
        _put(tar, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        _put(tar, "index.json", json.dumps({"schemaVersion": 2, "manifests": manifests}).encode())
        for digest, content in blobs.content.items():
            _put(tar, f"blobs/{digest.replace(':', '/')}", content)


def _config(image: Image, layers: Sequence[dict[str, Any]]) -> bytes:
    machine = platform.machine()
    return json.dumps(
        {
            "architecture": _ARCHITECTURES.get(machine, machine),
            "os": "linux",
            "config": {
                "Entrypoint": list(image.entrypoint),
                "Cmd": list(image.command),
                "Env": list(image.environment),
                "User": image.user,
                "WorkingDir": image.directory,
            },
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]},
        }
    ).encode()


def _put(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))
