"""The sidecar as a real process: a job may damage its files, and a server may refuse its reports."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from paddock.agent.options import AgentExit
from paddock.agent.samples import FIELDS, Samples, parse
from paddock.domain.runners.vitals import MOST_REPORTED, Sample
from paddock.web.pods import VitalsBody
from tests.agent.conftest import TOKEN, Pod, Process
from tests.agent.scripted import VITALS, Asked, CutShort, Hold, Reply

#: Only the time differs between samples.
REST = "600000 2147483648 0 0.00 12.50 - 2500000 41 0.52"
MEASURED = [600000, 2147483648, 0, 0.0, 12.5, None, 2.5, 41, 0.52]


class Runner:
    """What the start script leaves on the stage."""

    def __init__(self, stage: Path) -> None:
        self.vitals = stage / "vitals"
        self.vitals.mkdir()

    def measures(self, *times: int) -> None:
        with (self.vitals / "samples").open("a") as file:
            file.writelines(f"{at} {REST}\n" for at in times)

    def moves_samples_aside(self) -> None:
        (self.vitals / "samples").rename(self.vitals / "samples.old")

    def starts_its_job(self, at: int = 1700000000) -> None:
        (self.vitals / "job-started").write_text(f"{at}\n")

    def ends(self) -> None:
        (self.vitals / "ended").write_text("1700000009 100\n")


@pytest.fixture
def runner(pod: Pod) -> Runner:
    return Runner(pod.stage)


def _times(reports: list[Asked]) -> list[int]:
    return [int(sample[0]) for each in reports for sample in each.json["samples"]]


async def _reported(pod: Pod, *times: int) -> None:
    """In this order, over any number of reports."""
    await pod.until(lambda: _times(pod.server.of(VITALS)) == list(times))


async def _ends(pod: Pod, sidecar: Process, runner: Runner) -> None:
    runner.ends()
    assert (await sidecar.ends()).code == AgentExit.STAGED


async def test_samples_are_reported_as_they_come(pod: Pod, runner: Runner) -> None:
    sidecar = await pod.agent("vitals")
    runner.measures(1, 2)
    await _reported(pod, 1, 2)
    runner.measures(3)
    await _reported(pod, 1, 2, 3)
    first = pod.server.of(VITALS)[0]
    assert first.token == TOKEN
    assert first.json == {"samples": [[1, *MEASURED], [2, *MEASURED]], "job_started_at": None}
    await _ends(pod, sidecar, runner)


async def test_the_server_understands_a_report(pod: Pod, runner: Runner) -> None:
    runner.measures(*range(500))
    runner.starts_its_job()
    sidecar = await pod.agent("vitals")
    await _reported(pod, *range(500))
    for each in pod.server.of(VITALS):
        report = msgspec.json.decode(each.body, type=VitalsBody)
        assert 0 < len(report.samples) <= MOST_REPORTED
    assert report.job_started_at == 1700000000
    await _ends(pod, sidecar, runner)


def test_the_server_knows_samples_by_the_same_names() -> None:
    assert Sample.__struct_fields__ == FIELDS


async def test_the_jobs_start_is_reported_by_itself(pod: Pod, runner: Runner) -> None:
    sidecar = await pod.agent("vitals")
    runner.starts_its_job()
    report = await pod.server.until_asked(VITALS)
    assert report.json == {"samples": [], "job_started_at": 1700000000}
    await _ends(pod, sidecar, runner)
    assert len(pod.server.of(VITALS)) == 1


@pytest.mark.parametrize("answer", [Reply(503, {}), CutShort(Reply(204), 0)], ids=["503", "cut"])
async def test_what_could_not_be_reported_is_reported_later(
    pod: Pod, runner: Runner, answer: Reply | CutShort
) -> None:
    pod.server.will(VITALS, answer, answer)
    runner.measures(1, 2)
    runner.starts_its_job()
    sidecar = await pod.agent("vitals")
    last = await pod.server.until_asked(VITALS, 3)
    assert _times([last]) == [1, 2]
    assert last.json["job_started_at"] == 1700000000
    await _ends(pod, sidecar, runner)


@pytest.mark.parametrize("status", [400, 401, 403, 413, 429])
async def test_what_is_refused_is_dropped_and_the_rest_goes_on(
    pod: Pod, runner: Runner, status: int
) -> None:
    pod.server.will(VITALS, Reply(status, {"error": "no"}, ("Retry-After: 1",)))
    runner.measures(1)
    sidecar = await pod.agent("vitals")
    await pod.server.until_asked(VITALS)
    runner.measures(2)
    await _reported(pod, 1, 2)
    await _ends(pod, sidecar, runner)


async def test_a_mark_that_was_refused_is_reported_again(pod: Pod, runner: Runner) -> None:
    """The sidecar's mark is the best protection of a live job."""
    pod.server.will(VITALS, Reply(429, {"error": "slow down"}))
    runner.starts_its_job()
    sidecar = await pod.agent("vitals")
    assert (await pod.server.until_asked(VITALS, 2)).json["job_started_at"] == 1700000000
    await _ends(pod, sidecar, runner)


async def test_when_no_reports_are_wanted_it_is_silent_until_the_end(
    pod: Pod, runner: Runner
) -> None:
    """A sidecar that ends is started again."""
    pod.server.will(VITALS, Reply(410, {"reason": "the runner has ended"}))
    runner.measures(1)
    sidecar = await pod.agent("vitals")
    await sidecar.says("not wanted any more")
    runner.measures(2, 3)
    await asyncio.sleep(0.5)
    assert sidecar.alive
    await _ends(pod, sidecar, runner)
    assert len(pod.server.of(VITALS)) == 1


async def test_the_last_moments_are_reported_when_the_runner_ends(pod: Pod, runner: Runner) -> None:
    sidecar = await pod.agent("vitals")
    runner.measures(1)
    await _reported(pod, 1)
    runner.measures(2)
    await _ends(pod, sidecar, runner)
    assert _times(pod.server.of(VITALS)) == [1, 2]


async def test_the_last_moments_are_reported_when_it_is_told_to_stop(
    pod: Pod, runner: Runner
) -> None:
    sidecar = await pod.agent("vitals", "--every", "86000")
    await sidecar.says("watching")
    await asyncio.sleep(0.2)
    runner.measures(1, 2)
    sidecar.signal(signal.SIGTERM)
    assert (await sidecar.ends()).code == AgentExit.STAGED
    assert _times(pod.server.of(VITALS)) == [1, 2]


async def test_a_server_that_is_silent_does_not_keep_it_from_ending(
    pod: Pod, runner: Runner
) -> None:
    pod.server.will(VITALS, *[Hold()] * 10)
    runner.measures(1)
    runner.ends()
    sidecar = await pod.agent("vitals")
    assert (await sidecar.ends()).code == AgentExit.STAGED


async def test_without_a_runner_it_waits(pod: Pod) -> None:
    sidecar = await pod.agent("vitals")
    await sidecar.says("watching")
    await asyncio.sleep(0.3)
    assert sidecar.alive
    sidecar.signal(signal.SIGTERM)
    assert (await sidecar.ends()).code == AgentExit.STAGED
    assert pod.server.asked == []


async def test_an_outage_costs_the_oldest_samples_only(pod: Pod, runner: Runner) -> None:
    pod.server.will(VITALS, *[Reply(503, {})] * 3)
    runner.measures(*range(400))
    sidecar = await pod.agent("vitals")
    await pod.server.until_asked(VITALS)
    runner.measures(*range(400, 1000))
    await pod.until(lambda: 999 in _times(pod.server.of(VITALS)))
    kept = _times(pod.server.of(VITALS)[3:])
    assert kept == list(range(kept[0], 1000))
    assert len(kept) == 720
    await _ends(pod, sidecar, runner)


HOSTILE: dict[str, Callable[[Path, Path], object]] = {
    "rubbish": lambda v, _: (v / "samples").write_bytes(os.urandom(300_000)),
    "no line ever": lambda v, _: (v / "samples").write_bytes(b"1" * 300_000),
    "a sparse terabyte": lambda v, _: os.truncate(_touch(v / "samples"), 1 << 40),
    "a pipe": lambda v, _: os.mkfifo(v / "samples"),
    "a directory": lambda v, _: (v / "samples").mkdir(),
    "a link to the token": lambda v, secret: (v / "samples").symlink_to(secret),
    "a link for a mark": lambda v, secret: (v / "job-started").symlink_to(secret),
    "a pipe for a mark": lambda v, _: os.mkfifo(v / "job-started"),
    "a mark beyond time": lambda v, _: (v / "job-started").write_text("9" * 15),
    "a mark of words": lambda v, _: (v / "job-started").write_text("yesterday " * 100_000),
    "a link for all": lambda v, secret: _without(v).symlink_to(secret.parent),
    "a file for all": lambda v, _: _without(v).write_text("x"),
}


def _touch(path: Path) -> Path:
    path.touch()
    return path


def _without(path: Path) -> Path:
    shutil.rmtree(path)
    return path


@pytest.mark.parametrize("harm", HOSTILE.values(), ids=HOSTILE.keys())
async def test_other_files_that_a_job_puts_there_say_nothing(
    pod: Pod, runner: Runner, harm: Callable[[Path, Path], object]
) -> None:
    (pod.directory / "samples").write_text(f"7 {REST}\n")  # what "a link for all" would lead to
    sidecar = await pod.agent("vitals")
    harm(runner.vitals, pod.token_file)
    await asyncio.sleep(0.4)
    assert sidecar.alive
    sidecar.signal(signal.SIGTERM)
    ended = await sidecar.ends()
    assert ended.code == AgentExit.STAGED
    assert "Traceback" not in ended.err
    assert pod.server.asked == []


def test_a_sample_is_numbers_and_nothing_else() -> None:
    assert parse(f"5 {REST}".encode()) == [5, *MEASURED]


@pytest.mark.parametrize("word", ["-", "", "1e5", "-1", "nan", "inf", "0x1f", "1.", ".5", "9" * 17])
def test_a_word_that_is_no_number_is_left_out(word: str) -> None:
    sample = parse(f"5 {word} 7 - - - - - - -".encode())
    assert sample == [5, None, 7, *[None] * 7]


@pytest.mark.parametrize(
    "line",
    ["", "5", f"- {REST}", f"then {REST}", f"5 {REST} 6", f"5  {REST}", "5 " + "1" * 300, "²" * 10],
)
def test_what_is_no_sample_is_none(line: str) -> None:
    assert parse(line.encode()) is None


def test_nothing_is_lost_when_the_file_is_moved_aside(tmp_path: Path) -> None:
    runner, samples = Runner(tmp_path), Samples(str(tmp_path))
    runner.measures(1, 2)
    assert [sample[0] for sample in samples.new()] == [1, 2]
    runner.measures(3)
    runner.moves_samples_aside()
    assert samples.new() == []  # it looks where the new one will be
    runner.measures(4)
    assert [sample[0] for sample in samples.new()] == [3, 4]
    assert samples.new() == []


def test_a_sidecar_that_was_started_again_begins_with_the_oldest(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    runner.measures(1)
    runner.moves_samples_aside()
    runner.measures(2)
    assert [sample[0] for sample in Samples(str(tmp_path)).new()] == [1, 2]


def test_when_far_behind_the_last_moments_go_first(tmp_path: Path) -> None:
    runner, samples = Runner(tmp_path), Samples(str(tmp_path))
    runner.measures(*range(5000))
    times = [sample[0] for sample in samples.new()]
    assert times == list(range(5000 - len(times), 5000))
    assert samples.new() == []


def test_half_a_line_is_read_when_it_is_whole(tmp_path: Path) -> None:
    runner, samples = Runner(tmp_path), Samples(str(tmp_path))
    with (runner.vitals / "samples").open("a") as file:
        file.write("1 600000 2147")
        file.flush()
        assert samples.new() == []
        file.write("483648 0 0.00 12.50 - 2500000 41 0.52\n")
    assert samples.new() == [[1, *MEASURED]]


async def test_it_is_small(pod: Pod, runner: Runner) -> None:
    sidecar = await pod.agent("vitals")
    runner.measures(*range(700))
    await _reported(pod, *range(700))
    assert sidecar.resident_mb <= 30  # 20 is the goal; other Pythons are built otherwise
    await _ends(pod, sidecar, runner)
