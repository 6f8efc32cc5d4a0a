"""Which Pod a token belongs to, for the local fleet. Each Pod has its own secrets; only their hashes
are compared."""

from __future__ import annotations

import asyncio
import hmac
from datetime import timedelta
from pathlib import Path
from typing import Final

from paddock.domain.names import PodName
from paddock.domain.pods.pod import Audience, PodIdentity
from paddock.fleet.local import layout
from paddock.fleet.local.pod_directory import PodDirectory, PodUnreadable, pod_names, token_hash
from paddock.ports import Clock, FleetUnavailable

#: Rolling: a caller that caches an answer asks again after this. The lifetime of Kubernetes' tokens.
LIFETIME: Final = timedelta(hours=1)
#: Forged tokens must not make the server read the directory a thousand times per second. A Pod takes
#: longer than this from its creation to its first request.
_SCAN_EVERY: Final = 0.05


class LocalReviewer:
    def __init__(self, root: Path, clock: Clock) -> None:
        self._root = root.absolute()
        self._clock = clock
        #: By the token's hash: the Pod's name and the token's audience.
        self._index: dict[str, tuple[str, Audience]] = {}
        self._versions: dict[str, tuple[int, int]] = {}
        self._unreadable = ""
        self._scanned_at = -_SCAN_EVERY
        self._scanned: int | None = None

    async def review(self, token: str, *, peer: str) -> PodIdentity | None:
        try:
            return await asyncio.to_thread(self._review, token_hash(token))
        except (OSError, PodUnreadable) as error:
            raise FleetUnavailable(f"The local fleet could not review a token: {error}.") from error

    def _review(self, digest: str) -> PodIdentity | None:
        if digest not in self._index:
            self._scan()
        if digest not in self._index:
            if self._unreadable:
                raise PodUnreadable(self._unreadable)
            return None
        return self._identity(*self._index[digest], digest)

    def _identity(self, name: str, audience: Audience, digest: str) -> PodIdentity | None:
        """Read from the directory each time: a token is invalid once its Pod has ended or is gone."""
        directory = PodDirectory(self._root / name)
        record, status = directory.record(), directory.status()
        if record is None or not hmac.compare_digest(record.tokens[audience], digest):
            return None
        if status is not None and status.finished_at is not None:
            return None
        return PodIdentity(
            pod_name=PodName(record.name),
            pod_uid=record.uid,
            expires_at=self._clock.now() + LIFETIME,
            audience=audience,
        )

    def _scan(self) -> None:
        changed, now = self._root.stat().st_mtime_ns, self._clock.monotonic()
        if changed == self._scanned and now - self._scanned_at < _SCAN_EVERY:
            return
        self._scanned, self._scanned_at, self._unreadable = changed, now, ""
        names = set(pod_names(self._root))
        self._index = {key: known for key, known in self._index.items() if known[0] in names}
        self._versions = {name: known for name, known in self._versions.items() if name in names}
        for name in names:
            try:
                self._read(name)
            except (OSError, PodUnreadable) as error:
                self._unreadable = str(error)  # an unknown token may belong to this Pod

    def _read(self, name: str) -> None:
        try:
            found = (self._root / name / layout.POD).stat()
        except FileNotFoundError:
            return
        version = found.st_ino, found.st_mtime_ns
        if self._versions.get(name) == version:
            return
        record = PodDirectory(self._root / name).record()
        if record is not None:
            self._versions[name] = version
            self._index |= {key: (name, audience) for audience, key in record.tokens.items()}
