"""The feed of log lines: a websocket within the limits of the listener."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os

import pytest

from paddock.fakes.github.frames import MESSAGE_OCTETS, FrameReader, accept_key
from paddock.fakes.github.records import Job
from paddock.fakes.runner import decode_jit
from paddock.fakes.runner_service import Service
from tests.fakes.conftest import World

#: More than the kernel's buffers hold.
MUCH = 64 << 20

CLOSED_IN_ORDER = b"\x88\x02\x03\xe8"


def frame(content: bytes, *, operation: int = 1, last: bool = True, masked: bool = True) -> bytes:
    size, bit = len(content), 0x80 if masked else 0
    head = bytes((operation | (0x80 if last else 0),))
    if size < 126:
        head += bytes((bit | size,))
    elif size < 1 << 16:
        head += bytes((bit | 126,)) + size.to_bytes(2)
    else:
        head += bytes((bit | 127,)) + size.to_bytes(8)
    if not masked:
        return head + content
    mask = os.urandom(4)
    return head + mask + bytes(one ^ mask[at % 4] for at, one in enumerate(content))


class TestFrames:
    @pytest.mark.parametrize("size", [0, 1, 125, 126, 70_000])
    def test_a_message_is_read_however_it_is_cut(self, size: int) -> None:
        content, reader = os.urandom(size), FrameReader()
        half = size // 2
        sent = frame(content[:half], last=False) + frame(content[half:], operation=0)
        messages: list[bytes] = []
        for at in range(0, len(sent), 1009):
            messages += reader.feed(sent[at : at + 1009])[0]
        assert messages == [content]
        assert not reader.waits

    def test_a_message_of_many_frames_grows_in_place(self) -> None:
        """A copy for each frame kept the fake busy for minutes, for a megabyte of empty frames."""
        reader = FrameReader()
        reader.feed(frame(b"x" * 1000, last=False))
        message = reader._message
        reader.feed(frame(b"", operation=0, last=False) * 100)
        assert reader._message is message
        assert reader.feed(frame(b"", operation=0))[0] == [b"x" * 1000]

    def test_a_ping_is_answered_within_a_message(self) -> None:
        sent = frame(b"a", last=False) + frame(b"?", operation=9) + frame(b"b", operation=0)
        assert FrameReader().feed(sent) == ([b"ab"], b"\x8a\x01?")

    @pytest.mark.parametrize(
        ("sent", "code"),
        [
            pytest.param(frame(b"", operation=8), 1000, id="closed"),
            pytest.param(frame(b"x", masked=False), 1002, id="not masked"),
            pytest.param(frame(b"x", operation=0), 1002, id="continues nothing"),
            pytest.param(frame(b"x", operation=3), 1002, id="unknown"),
            pytest.param(frame(b"x", last=False) + frame(b"y"), 1002, id="not continued"),
            pytest.param(frame(b"x" * 200, operation=9), 1002, id="large ping"),
            pytest.param(bytes((0xC1, 0x80)), 1002, id="extension"),
            pytest.param(b"\x81\xff" + (1 << 40).to_bytes(8), 1009, id="too large"),
            pytest.param(
                frame(b"x" * MESSAGE_OCTETS, last=False) + frame(b"y", operation=0),
                1009,
                id="too large in parts",
            ),
        ],
    )
    def test_what_is_no_frame_closes_the_connection(self, sent: bytes, code: int) -> None:
        reader = FrameReader()
        _, answer = reader.feed(sent)
        assert reader.closed
        assert answer == b"\x88\x02" + code.to_bytes(2)

    def test_the_key_is_answered_as_the_standard_says(self) -> None:
        assert accept_key("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@pytest.fixture
async def token(world: World) -> str:
    """The token of a running job."""
    service = Service(decode_jit(world.mint()[1]))
    world.queue("true")
    await asyncio.to_thread(service.connect, "r1", "2.330.0")
    message = await asyncio.to_thread(service.message, "2.330.0", busy=False, timeout=20.0)
    assert message is not None
    job = (await asyncio.to_thread(service.acquire, message)).job
    given: str = job["resources"]["endpoints"][0]["authorization"]["parameters"]["AccessToken"]
    return given


@pytest.fixture
def job(world: World, token: str) -> Job:
    return next(iter(world.github.world.jobs.values()))


async def connect(
    world: World, token: str, **more: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, str]:
    host = world.url.removeprefix("http://")
    name, _, port = host.partition(":")
    reader, writer = await asyncio.open_connection(name, int(port))
    headers = {
        "Host": host,
        "Authorization": f"Bearer {token}",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": "AAAA",
        **more,
    }
    lines = [f"{name}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join(["GET /_runner/feed HTTP/1.1", *lines, "", ""]).encode())
    async with asyncio.timeout(20):
        status = (await reader.readline()).decode()
        while (await reader.readline()).strip():
            pass
    return reader, writer, status.split()[1]


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(60):
        return await reader.read()


async def test_lines_arrive_while_the_job_runs(world: World, token: str, job: Job) -> None:
    reader, writer, status = await connect(world, token)
    assert status == "101"
    lines = {"Count": 2, "Value": ["one", "two"], "StepID": "s", "StartLine": 1}
    writer.write(frame(json.dumps(lines).encode()))
    await world.until(lambda: world.github.uploads.of(job.id).feed == ["one", "two"])
    writer.write(frame(b"no JSON") + frame(b"", operation=8))
    assert await rest_of(reader) == CLOSED_IN_ORDER
    writer.close()


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({"Authorization": "Bearer rubbish"}, "401"),
        ({"Host": "attacker.example"}, "403"),
        ({"Origin": "http://evil.example"}, "403"),
        ({"Upgrade": "h2c"}, "426"),
    ],
)
async def test_it_is_for_the_jobs_own_token_and_not_for_pages(
    world: World, token: str, wrong: dict[str, str], status: str
) -> None:
    _, writer, answered = await connect(world, token, **wrong)
    assert answered == status
    writer.close()


async def test_a_second_one_replaces_the_first(world: World, token: str) -> None:
    first, one, _ = await connect(world, token)
    _, two, status = await connect(world, token)
    assert status == "101"
    assert await rest_of(first) == CLOSED_IN_ORDER
    one.close()
    two.close()


async def test_a_frame_that_does_not_end_has_a_deadline(world: World, token: str) -> None:
    reader, writer, _ = await connect(world, token)
    writer.write(frame(b"x" * 1000)[:-1])
    with contextlib.suppress(ConnectionResetError):
        assert await rest_of(reader) == b""
    writer.close()


async def test_answers_to_pings_that_are_not_read_are_not_kept(world: World, token: str) -> None:
    _, writer, _ = await connect(world, token)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    pings, sent = frame(b"?" * 125, operation=9) * 8192, 0
    with contextlib.suppress(TimeoutError):  # the server reads no more
        while sent < MUCH:
            writer.write(pings)
            async with asyncio.timeout(5):
                await writer.drain()
            sent += len(pings)
    assert sent < MUCH
    writer.transport.abort()


async def test_there_is_none_for_a_job_that_is_over(world: World, token: str, job: Job) -> None:
    world.github.jobs.finish(job, "success")
    _, writer, status = await connect(world, token)
    assert status == "404"
    writer.close()
