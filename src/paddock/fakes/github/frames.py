"""The receiving half of a websocket, as far as a feed of log lines needs it (RFC 6455).

The fake only listens and sends no messages. So it implements only the handshake, masked frames, and
the answers to ping and close. Every limit is on what is kept, not on what arrives.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Final

_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
#: Of one message. A runner sends the lines of a moment, of at most some kilobytes each.
MESSAGE_OCTETS: Final = 256 << 10
_CONTROL_OCTETS: Final = 125

_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
_NORMAL, _PROTOCOL_ERROR, _TOO_LARGE = 1000, 1002, 1009


def accept_key(key: str) -> str:
    digest = hashlib.sha1(key.encode() + _GUID, usedforsecurity=False).digest()
    return base64.b64encode(digest).decode()


def close_frame(code: int = _NORMAL) -> bytes:
    return bytes((0x80 | _CLOSE, 2)) + code.to_bytes(2, "big")


class FrameReader:
    """Takes octets as they arrive; holds whole messages, and the octets to send back."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._message: bytearray | None = None
        self.closed = False

    @property
    def waits(self) -> bool:
        """Whether the rest of a frame is missing."""
        return bool(self._buffer)

    def feed(self, data: bytes) -> tuple[list[bytes], bytes]:
        """The whole messages, and the answer to what arrived."""
        self._buffer += data
        messages: list[bytes] = []
        answer = bytearray()
        while not self.closed and self._buffer:
            frame = self._frame()
            if isinstance(frame, int):
                answer += self._close(frame)
            elif frame is None:
                break
            else:
                answer += self._take(*frame, messages)
        return messages, bytes(answer)

    def _close(self, code: int) -> bytes:
        self.closed = True
        self._buffer.clear()
        return close_frame(code)

    def _frame(self) -> tuple[int, bool, bytes] | int | None:
        """Operation, whether its message ends with it, content; or a reason to close; or `None`."""
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        first, second = buffer[0], buffer[1]
        operation, size, start = first & 0x0F, second & 0x7F, 2
        # A client masks what it sends; extensions were not agreed on.
        if first & 0x70 or not second & 0x80:
            return _PROTOCOL_ERROR
        if operation >= _CLOSE and size > _CONTROL_OCTETS:
            return _PROTOCOL_ERROR
        if size > _CONTROL_OCTETS:
            start += 2 if size == 126 else 8
            if len(buffer) < start:
                return None
            size = int.from_bytes(buffer[2:start], "big")
        if size + len(self._message or b"") > MESSAGE_OCTETS:
            return _TOO_LARGE
        end = start + 4 + size
        if len(buffer) < end:
            return None
        content = _unmasked(bytes(buffer[start + 4 : end]), bytes(buffer[start : start + 4]))
        del buffer[:end]
        return operation, bool(first & 0x80), content

    def _take(self, operation: int, last: bool, content: bytes, messages: list[bytes]) -> bytes:
        match operation:
            case 0x8:
                return self._close(_NORMAL)
            case 0x9:
                return bytes((0x80 | _PONG, len(content))) + content
            case 0xA:
                return b""
            case 0x0 | 0x1 | 0x2 if (operation == _CONTINUATION) is (self._message is not None):
                if self._message is None:
                    self._message = bytearray()
                # In place: a copy for each of a million empty frames would take minutes.
                self._message += content
                if last:
                    messages.append(bytes(self._message))
                    self._message = None
                return b""
            case _:
                return self._close(_PROTOCOL_ERROR)


def _unmasked(content: bytes, mask: bytes) -> bytes:
    size = len(content)
    repeated = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return (int.from_bytes(content, "big") ^ repeated).to_bytes(size, "big")
