"""The poller as a real process, against a server that fails in many ways."""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import signal
import ssl
import stat
import sys
from pathlib import Path

import pytest

from paddock.agent.backoff import MOST, MOST_ASKED_FOR, Backoff
from paddock.agent.options import AgentExit
from tests.agent.conftest import AGENT, JIT, PYTHON, TOKEN, Pod, command_line
from tests.agent.scripted import (
    ACK,
    DISPATCH,
    Answer,
    CutShort,
    Dribble,
    Hold,
    Reply,
    Rubbish,
    scripted_server,
)
from tests.support.servers import write_certificate
from tools.ports import free_port

DELIVERY = "8f14e45f-ceea-467f-a0e6-1f2b3c4d5e6f"
WORK = Reply(200, {"delivery": DELIVERY, "runner_name": "pool-a-1-1", "jit": JIT})
NOTHING_YET = Reply(204)

ROOT = os.geteuid() == 0


async def test_work_is_staged_and_acknowledged(pod: Pod) -> None:
    pod.server.will(DISPATCH, WORK)
    ended = await (await pod.poll()).ends()
    assert ended.code == AgentExit.STAGED
    assert pod.staged == ["jit", "name", "run"]
    assert (pod.stage / "jit").read_text() == JIT + "\n"
    assert (pod.stage / "name").read_text() == "pool-a-1-1\n"
    assert (pod.stage / "run").read_bytes() == (AGENT / "run.sh").read_bytes()
    assert [each.json for each in pod.server.of(ACK)] == [{"delivery": DELIVERY}]


async def test_only_the_runners_user_can_read_the_jit(pod: Pod) -> None:
    pod.server.will(DISPATCH, WORK)
    await (await pod.poll()).ends()
    found = (pod.stage / "jit").stat()
    assert (stat.S_IMODE(found.st_mode), found.st_uid) == (0o400, os.geteuid())


@pytest.mark.skipif(not ROOT, reason="only root may give files away")
async def test_the_jit_is_given_to_the_runners_user(pod: Pod) -> None:
    pod.server.will(DISPATCH, WORK)
    ended = await (await pod.poll("--runner-uid", "1001", "--runner-gid", "1002")).ends()
    found = (pod.stage / "jit").stat()
    assert ended.code == AgentExit.STAGED
    assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (0o400, 1001, 1002)


def _may_not_give_files_away() -> None:
    PR_CAPBSET_DROP, CAP_CHOWN = 24, 0  # noqa: N806 - the kernel's own names
    if ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_CHOWN, 0, 0, 0) and ROOT:
        raise OSError("CAP_CHOWN cannot be dropped")


async def test_a_poller_that_could_not_give_the_jit_away_does_not_ask_for_work(pod: Pod) -> None:
    uid = str(os.geteuid() + 1001)
    ended = await (await pod.poll("--runner-uid", uid, before=_may_not_give_files_away)).ends()
    assert ended.code == AgentExit.CANNOT_STAGE
    assert ended.says("cannot stage")
    assert pod.server.asked == []


async def test_without_a_stage_no_work_is_asked_for(pod: Pod) -> None:
    pod.stage.rmdir()
    ended = await (await pod.poll()).ends()
    assert (ended.code, pod.server.asked) == (AgentExit.CANNOT_STAGE, [])
    assert str(pod.stage) in ended.err


async def test_the_token_is_read_anew_for_every_call(pod: Pod) -> None:
    """I21: idle Pods got 401 after an hour, when the token they had read was an hour old."""
    answered = asyncio.Event()

    class AfterTheTokenIsReplaced:
        async def give(self, writer: asyncio.StreamWriter) -> None:
            pod.token_file.write_text("second")
            answered.set()
            await NOTHING_YET.give(writer)

    pod.server.will(DISPATCH, AfterTheTokenIsReplaced(), WORK)
    await (await pod.poll()).ends()
    assert [each.token for each in pod.server.asked] == [TOKEN, "second", "second"]


async def test_nothing_yet_is_asked_again(pod: Pod) -> None:
    pod.server.will(DISPATCH, NOTHING_YET, NOTHING_YET, WORK)
    assert (await (await pod.poll()).ends()).code == AgentExit.STAGED
    assert len(pod.server.of(DISPATCH)) == 3


async def test_a_server_that_never_has_anything_is_not_asked_without_pause(pod: Pod) -> None:
    pod.speedup = "1"
    pod.server.will(DISPATCH, *[NOTHING_YET] * 10_000)
    poller = await pod.poll()
    await pod.server.until_asked(DISPATCH, 5)
    await asyncio.sleep(1)
    assert poller.alive
    assert len(pod.server.of(DISPATCH)) < 20


async def test_told_to_leave_it_leaves_so_that_no_runner_starts(pod: Pod) -> None:
    """I24. An init container that fails takes its Pod along."""
    pod.server.will(DISPATCH, Reply(410, {"reason": "it is being retired"}))
    ended = await (await pod.poll()).ends()
    assert ended.code == AgentExit.LEFT
    assert pod.staged == []
    assert ended.events[-1]["why"] == "it is being retired"


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_token_is_tried_again_for_a_while(pod: Pod, status: int) -> None:
    pod.server.will(DISPATCH, *[Reply(status, {"error": "no"})] * 3, WORK)
    assert (await (await pod.poll()).ends()).code == AgentExit.STAGED


async def test_a_token_that_is_refused_for_good_ends_the_poller(pod: Pod) -> None:
    pod.server.will(DISPATCH, *[Reply(401, {"error": "Not one of a Pod's."})] * 50)
    ended = await (await pod.poll()).ends()
    assert (ended.code, pod.staged) == (AgentExit.TOKEN_REFUSED, [])
    assert "Not one of a Pod's." in ended.events[-1]["why"]
    assert len(pod.server.of(DISPATCH)) == 10


@pytest.mark.parametrize("content", ["", "two words", "line\nbreak: injected"])
async def test_a_file_that_holds_no_token_is_said_to(pod: Pod, content: str) -> None:
    pod.token_file.write_text(content)
    ended = await (await pod.poll()).ends()
    assert (ended.code, pod.server.asked) == (AgentExit.TOKEN_REFUSED, [])
    assert str(pod.token_file) in ended.events[-1]["why"]


BROKEN: dict[str, Answer] = {
    "500": Reply(500, {"error": "a bug"}),
    "503": Reply(503, {"error": "later"}, ("Retry-After: 1",)),
    "404": Reply(404, {"error": "an ingress that knows no such place"}),
    "302": Reply(302, None, ("Location: http://elsewhere/",)),
    "no HTTP": Rubbish(b"SSH-2.0-OpenSSH_9.2p1\r\n\r\n"),
    "no end": Rubbish(b"HTTP/1.1 200 OK\r\n\r\n{}"),
    "endless head": Rubbish(b"HTTP/1.1 200 OK\r\n" + b"X-Filler: y\r\n" * 9000),
    "too long": Rubbish(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"),
    "negative chunk": Rubbish(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n"),
    "no JSON": Reply(200, "work!"),
    "no JIT": Reply(200, {"delivery": DELIVERY, "runner_name": "r"}),
    "a JIT of two lines": Reply(200, {"delivery": "d", "runner_name": "r", "jit": "a\nb"}),
    "a JIT of no letters": Reply(200, {"delivery": "d", "runner_name": "r", "jit": ""}),
    "a JIT that is a number": Reply(200, {"delivery": "d", "runner_name": "r", "jit": 7}),
    "a name without end": Reply(200, {"delivery": "d", "runner_name": "r" * 65, "jit": "j"}),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
async def test_it_outlives_a_server_that_is_unwell(pod: Pod, broken: Answer) -> None:
    pod.server.will(DISPATCH, broken, broken, WORK)
    assert (await (await pod.poll()).ends()).code == AgentExit.STAGED
    assert (pod.stage / "jit").read_text() == JIT + "\n"


async def test_it_outlives_a_server_that_is_away(pod: Pod) -> None:
    port = free_port()
    pod.server.url = f"http://127.0.0.1:{port}"
    poller = await pod.poll()
    await poller.says('"failures": 4')
    async with scripted_server(port=port) as back:
        back.will(DISPATCH, NOTHING_YET, WORK)
        ended = await poller.ends()
    assert ended.code == AgentExit.STAGED
    assert ended.says("answered again")


CUTS = {
    "before the answer": CutShort(WORK, 0),
    "in the status": CutShort(WORK, 7),
    "in the head": CutShort(WORK, 30),
    "in the body": CutShort(WORK, -40),
    "before the last byte": CutShort(WORK, -1),
    "between chunks": CutShort(Reply(200, WORK.content, chunked=True), -5),
}


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS.keys())
async def test_a_lost_reply_is_asked_for_again_at_once(pod: Pod, cut: CutShort) -> None:
    """I20: the same JIT comes again until it is acknowledged. Half of one is never staged."""
    pod.server.will(DISPATCH, cut, WORK)
    ended = await (await pod.poll()).ends()
    assert ended.code == AgentExit.STAGED
    assert (pod.stage / "jit").read_text() == JIT + "\n"
    assert len(pod.server.of(DISPATCH)) == 2
    assert len(pod.server.of(ACK)) == 1
    assert not ended.says("failed")


async def test_a_server_that_falls_silent_is_asked_again(pod: Pod) -> None:
    pod.server.will(DISPATCH, Hold(), WORK)
    ended = await (await pod.poll("--wait", "0.1")).ends()
    assert ended.code == AgentExit.STAGED
    assert ended.says("lost an answer")


@pytest.mark.parametrize("answer", [Dribble(WORK), Reply(200, WORK.content, chunked=True)])
async def test_an_answer_may_come_in_pieces(pod: Pod, answer: Answer) -> None:
    pod.server.will(DISPATCH, answer)
    assert (await (await pod.poll()).ends()).code == AgentExit.STAGED
    assert len(pod.server.of(DISPATCH)) == 1


async def test_a_lost_acknowledgement_is_repeated(pod: Pod) -> None:
    pod.server.will(DISPATCH, WORK)
    pod.server.will(ACK, CutShort(Reply(204), 0), Reply(503, {"error": "later"}), Reply(204))
    ended = await (await pod.poll()).ends()
    assert (ended.code, len(pod.server.of(ACK))) == (AgentExit.STAGED, 3)
    assert ended.says("acknowledged")


@pytest.mark.parametrize("answer", [Reply(503, {"error": "later"}), Hold()], ids=["503", "silence"])
async def test_an_acknowledgement_is_given_up_after_a_few_seconds(pod: Pod, answer: Answer) -> None:
    """The runner waits, and in_progress acknowledges too."""
    pod.server.will(DISPATCH, WORK)
    pod.server.will(ACK, *[answer] * 1000)
    ended = await (await pod.poll()).ends()
    assert (ended.code, pod.staged) == (AgentExit.STAGED, ["jit", "name", "run"])
    assert ended.says("not acknowledged")


@pytest.mark.parametrize("status", [409, 410])
async def test_a_jit_that_is_not_ours_is_not_run(pod: Pod, status: int) -> None:
    """I20"""
    pod.server.will(DISPATCH, WORK)
    pod.server.will(ACK, Reply(status, {"error": "That delivery was not made to this Pod."}))
    ended = await (await pod.poll()).ends()
    assert (ended.code, pod.staged) == (AgentExit.LEFT, [])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_told_to_stop_while_it_polls_it_stages_nothing(pod: Pod, number: int) -> None:
    poller = await pod.poll()
    await pod.server.until_asked(DISPATCH)
    poller.signal(number)
    assert (await poller.ends()).code == 128 + number
    assert pod.staged == []


async def test_told_to_stop_while_it_backs_off_it_stops(pod: Pod) -> None:
    pod.speedup = "1"
    pod.server.will(DISPATCH, *[Reply(503, {}, ("Retry-After: 60",))] * 5)
    poller = await pod.poll()
    await pod.server.until_asked(DISPATCH)
    await asyncio.sleep(0.1)
    poller.signal(signal.SIGTERM)
    assert (await poller.ends()).code == 143


async def test_told_to_stop_before_it_has_ended_it_takes_the_jit_back(pod: Pod) -> None:
    """The Pod is being deleted: no runner may start with the JIT on the stage."""
    pod.server.will(DISPATCH, WORK)
    pod.server.will(ACK, Hold())
    poller = await pod.poll()
    await pod.server.until_asked(ACK)
    poller.signal(signal.SIGTERM)
    assert (await poller.ends()).code == 143
    assert pod.staged == []


@pytest.mark.skipif(not ROOT or not shutil.which("unshare"), reason="needs a pid namespace")
async def test_told_to_stop_as_a_containers_first_process_it_stops(pod: Pod) -> None:
    """The kernel drops signals to the first process of a container that installed no handler."""
    options = ["--server", pod.server.url, "--token-file", str(pod.token_file)]
    options += ["--stage", str(pod.stage)]
    unshare = ["unshare", "--pid", "--fork", "--kill-child"]
    outer = await pod.start(*unshare, *PYTHON, str(AGENT), "poll", *options)
    await pod.server.until_asked(DISPATCH)
    children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGTERM)
    assert (await outer.ends()).code == 143


async def test_what_it_says_and_how_it_was_started_betray_no_secret(pod: Pod) -> None:
    pod.server.will(DISPATCH, Reply(500, {"error": TOKEN}), CutShort(WORK, -3), WORK)
    pod.server.will(ACK, Hold())
    poller = await pod.poll()
    await pod.server.until_asked(ACK)
    line = command_line(poller.pid)
    ended = await poller.ends()
    for secret in (TOKEN, JIT):
        assert secret not in line + ended.out + ended.err


async def test_what_an_earlier_poller_staged_is_not_left_there(pod: Pod) -> None:
    pod.put("from an earlier life")
    poller = await pod.poll()
    await pod.server.until_asked(DISPATCH)
    assert pod.staged == []
    poller.signal(signal.SIGKILL)


async def test_links_on_the_stage_are_replaced_not_followed(pod: Pod) -> None:
    victim = pod.directory / "victim"
    victim.write_text("untouched")
    for name in ("jit", "run", "name", ".jit.unfinished", ".run.unfinished", ".probe.unfinished"):
        (pod.stage / name).symlink_to(victim)
    pod.server.will(DISPATCH, WORK)
    assert (await (await pod.poll()).ends()).code == AgentExit.STAGED
    assert victim.read_text() == "untouched"
    assert not (pod.stage / "jit").is_symlink()
    assert (pod.stage / "jit").read_text() == JIT + "\n"


async def test_a_stage_that_cannot_be_cleared_is_not_used(pod: Pod) -> None:
    (pod.stage / "jit").mkdir()
    ended = await (await pod.poll()).ends()
    assert (ended.code, pod.server.asked) == (AgentExit.CANNOT_STAGE, [])


async def test_over_tls_with_its_own_authority(pod: Pod, directory: Path) -> None:
    certificate, key = write_certificate(directory)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    async with scripted_server(tls) as server:
        server.will(DISPATCH, NOTHING_YET)
        pod.server = server
        poller = await pod.poll("--ca-file", str(certificate))
        await server.until_asked(DISPATCH, 2)
        assert poller.resident_mb <= 30
        stranger = await pod.poll()
        await stranger.says("the server's certificate is rejected")


async def test_an_idle_poller_is_small(pod: Pod) -> None:
    pod.server.will(DISPATCH, *[NOTHING_YET] * 3)
    poller = await pod.poll()
    await pod.server.until_asked(DISPATCH, 4)
    assert poller.resident_mb <= 30  # 20 is the goal; other Pythons are built otherwise


async def test_what_is_not_needed_is_not_imported() -> None:
    program = (
        f"import sys; sys.path.append({str(AGENT.parents[1])!r}); "
        "import paddock.agent.poll, paddock.agent.vitals; print(*sys.modules)"
    )
    process = await asyncio.create_subprocess_exec(
        *PYTHON, "-c", program, stdout=asyncio.subprocess.PIPE
    )
    loaded = (await process.communicate())[0].decode().split()
    ours = {name for name in loaded if name.startswith("paddock.")}
    assert all(name.startswith("paddock.agent") for name in ours)
    assert not {"asyncio", "dataclasses", "email", "http", "logging", "ssl", "pathlib"} & set(
        loaded
    )
    assert {name.partition(".")[0] for name in loaded} - {"paddock"} - sys.stdlib_module_names <= {
        "__main__",
        "sitecustomize",
    }


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "There is no command ''."),
        (["poll"], "Missing: --server, --token-file, --stage."),
        (["poll", "--serve", "x"], "There is no option '--serve'."),
        (["poll", "--server"], "--server needs a value."),
        (
            ["poll", "--server", "ftp://x", "--token-file", "t", "--stage", "s"],
            "--server: 'ftp://x'",
        ),
        (
            ["poll", "--server=http://x", "--token-file=t", "--stage=s", "--wait=-1"],
            "--wait is not",
        ),
        (["vitals", "--server=http://x", "--token-file=t", "--stage=s", "--runner-uid=me"], "'me'"),
        (
            ["poll", "--server=https://x", "--token-file=t", "--stage=.", "--ca-file=none"],
            "--ca-file cannot be used",
        ),
    ],
)
async def test_a_wrong_command_line_is_explained(
    pod: Pod, arguments: list[str], sentence: str
) -> None:
    ended = await (await pod.start(sys.executable, "-m", "paddock.agent", *arguments)).ends()
    assert ended.code == AgentExit.USAGE
    assert sentence in ended.err
    assert "Traceback" not in ended.err


def test_back_off_grows_to_a_bound_and_is_never_in_step() -> None:
    backoff = Backoff()
    delays = [backoff.next() for _ in range(40)]
    assert delays[0] < 1
    assert all(MOST / 2 <= delay <= MOST for delay in delays[6:])
    assert len(set(delays)) == len(delays)


def test_back_off_is_as_long_as_the_server_asks_within_reason() -> None:
    assert 20 <= Backoff().next(20) <= 30
    assert Backoff().next(86400) <= MOST_ASKED_FOR * 1.5
