"""The start script in every shell on this machine, with runners that end in every way."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import sys
from pathlib import Path
from random import Random

import pytest

from paddock.agent.samples import FIELDS, parse
from paddock.domain.runners.dialects import program_of_command, program_of_log
from paddock.fakes.github import FakeGitHub, JobSpec, Step
from paddock.fakes.github.server import serving, wall_clock
from tests.agent.conftest import JIT, Pod, Process, command_line, environment, processes
from tests.agent.scripted import DISPATCH, Reply

pytestmark = pytest.mark.slow

NO_JIT, NO_RUNNER = 66, 72
UNTIL_ENOUGH = "until [ -e enough ]; do sleep 0.02; done"


def sh(script: str) -> tuple[str, ...]:
    """A runner."""
    return ("sh", "-c", script)


async def _said(process: Process, words: str) -> None:
    assert process.process.stdout is not None
    async with asyncio.timeout(120):
        while words not in (line := (await process.process.stdout.readline()).decode()):
            assert line, f"It ended without saying {words!r}."


@pytest.mark.parametrize("code", [0, 1, 2, 3, 5, 7, *range(100, 106), 126, 127, 130, 137, 143, 255])
async def test_the_runners_own_exit_code_survives(pod: Pod, shell: list[str], code: int) -> None:
    """I60: the stock script turns most of these into 0, or starts the runner again."""
    pod.put()
    ended = await (await pod.run(shell, *sh(f"echo once >> ran; exit {code}"))).ends()
    assert ended.code == code
    assert (pod.directory / "ran").read_text() == "once\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
async def test_a_runner_killed_by_a_signal_is_told_apart(
    pod: Pod, shell: list[str], number: int
) -> None:
    pod.put()
    ended = await (await pod.run(shell, *sh(f"kill -{int(number)} $$; sleep 9"))).ends()
    assert ended.code == 128 + number


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_reaches_the_runner_which_is_waited_for(
    pod: Pod, shell: list[str], number: int
) -> None:
    """I59"""
    pod.put()
    runner = f"trap 'sleep 0.5; echo > unloaded; exit 103' TERM; echo ready; {UNTIL_ENOUGH}"
    process = await pod.run(shell, *sh(runner))
    await _said(process, "ready")
    process.signal(number)
    assert (await process.ends()).code == 103
    assert (pod.directory / "unloaded").exists()


async def test_signals_that_keep_coming_do_not_change_the_exit_code(
    pod: Pod, shell: list[str]
) -> None:
    """I60: each signal interrupts `wait`, which then returns 143."""
    pod.put()
    process = await pod.run(shell, *sh(f"trap '' TERM; echo ready; {UNTIL_ENOUGH}; exit 104"))
    await _said(process, "ready")
    for _ in range(50):
        process.signal(signal.SIGTERM)
        await asyncio.sleep(0.005)
    (pod.directory / "enough").touch()
    assert (await process.ends()).code == 104


@pytest.mark.parametrize("n", range(4))
async def test_signals_at_the_very_moment_of_the_end_change_nothing(
    pod: Pod, shell: list[str], n: int
) -> None:
    """I60, I59. bash loses the exit code at such a moment, but must not wait for an ended process."""
    pod.put()
    process = await pod.run(shell, *sh(f"trap '' TERM; echo ready; {UNTIL_ENOUGH}; exit 104"))
    await _said(process, "ready")
    (pod.directory / "enough").touch()

    def signals() -> None:
        with contextlib.suppress(ProcessLookupError):
            for _ in range(20_000):
                os.kill(process.pid, signal.SIGTERM)

    await asyncio.to_thread(signals)
    assert (await process.ends()).code in ([104, 143] if "bash" in shell else [104])


async def test_a_runner_that_ignores_the_signal_is_still_waited_for(
    pod: Pod, shell: list[str]
) -> None:
    """I59: its grace period belongs to it."""
    pod.put()
    runner = f"trap '' TERM; echo ready; {UNTIL_ENOUGH}; exit 102"
    process = await pod.run(shell, *sh(runner))
    await _said(process, "ready")
    process.signal(signal.SIGTERM)
    await asyncio.sleep(0.5)
    assert process.alive
    (pod.directory / "enough").touch()
    assert (await process.ends()).code == 102


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare"), reason="needs a pid namespace"
)
async def test_as_a_containers_first_process(pod: Pod, shell: list[str]) -> None:
    """I59: it also has to reap what a job leaves behind, and must not take that for the runner."""
    pod.put()
    runner = f"trap 'exit 103' TERM; (sleep 0.1 &); echo ready; {UNTIL_ENOUGH}"
    unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    process = await pod.start(*unshare, *shell, str(pod.stage / "run"), *sh(runner))
    await _said(process, "ready")
    await asyncio.sleep(0.3)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGTERM)
    assert (await process.ends()).code == 103


async def test_without_a_jit_nothing_is_started(pod: Pod, shell: list[str]) -> None:
    pod.put()
    (pod.stage / "jit").unlink()
    ended = await (await pod.run(shell, *sh("echo > started"))).ends()
    assert ended.code == NO_JIT
    assert "no JIT is staged" in ended.err
    assert not (pod.directory / "started").exists()


async def test_a_second_start_finds_no_jit(pod: Pod, shell: list[str]) -> None:
    """I20: a JIT is used once."""
    pod.put()
    assert (await (await pod.run(shell, *sh("exit 100"))).ends()).code == 100
    assert (await (await pod.run(shell, *sh("exit 100"))).ends()).code == NO_JIT


WAITS = """
import os, pathlib, time
pathlib.Path("seen").write_text(os.environ["ACTIONS_RUNNER_INPUT_JITCONFIG"])
pathlib.Path("stage-then").write_text(" ".join(os.listdir("stage")))
print("runner", os.getpid(), flush=True)
while not os.path.exists("enough"):
    time.sleep(0.01)
"""


#: As the listener does, and its job: a process of the same user.
LISTENS = """
import os, subprocess
del os.environ["ACTIONS_RUNNER_INPUT_JITCONFIG"]
job = f"tr '\\\\0' '\\\\n' < /proc/{os.getpid()}/environ > read; env > own"
raise SystemExit(subprocess.call(["sh", "-c", job]))
"""


async def test_only_the_runner_ever_has_the_jit(pod: Pod, shell: list[str]) -> None:
    """I21: not on a command line, not in another process's environment, not on the stage any more."""
    jit = f"{JIT}-{pod.directory.name}"
    pod.put(jit)
    program = pod.directory / "program.py"
    program.write_text(WAITS)
    fast = {"PADDOCK_SAMPLE_SECONDS": "0"}
    process = await pod.run(shell, sys.executable, str(program), env=fast)
    assert process.process.stdout is not None
    runner = int((await process.process.stdout.readline()).split()[1])
    seen = set()
    for _ in range(100):
        await asyncio.sleep(0.005)  # the sampler starts one process after the other
        for pid in processes():
            assert jit not in command_line(pid)
            if jit in environment(pid):
                seen.add(pid)
    (pod.directory / "enough").touch()
    assert (await process.ends()).code == 0
    assert seen == {runner}
    assert (pod.directory / "seen").read_text() == jit
    assert "jit" not in (pod.directory / "stage-then").read_text().split()


async def test_a_job_can_read_the_jit_that_was_used_for_it(pod: Pod, shell: list[str]) -> None:
    """docs/security.md says so. The runner removes the variable from its own environment, but the
    kernel still shows the original environment to processes of the same user."""
    jit = f"{JIT}-{pod.directory.name}"
    pod.put(jit)
    program = pod.directory / "program.py"
    program.write_text(LISTENS)
    ended = await (await pod.run(shell, sys.executable, str(program))).ends()
    assert ended.code == 0
    assert f"ACTIONS_RUNNER_INPUT_JITCONFIG={jit}" in (pod.directory / "read").read_text()
    assert jit not in (pod.directory / "own").read_text()


async def test_the_runner_is_told_to_tell_all(pod: Pod, shell: list[str]) -> None:
    pod.put()
    ended = await (await pod.run(shell, "env")).ends()
    assert "ACTIONS_RUNNER_PRINT_LOG_TO_STDOUT=1" in ended.out
    assert "ACTIONS_RUNNER_RETURN_JOB_RESULT_FOR_HOSTED=true" in ended.out
    assert "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE=1" in ended.out


async def test_what_a_template_says_about_it_goes_first(pod: Pod, shell: list[str]) -> None:
    pod.put()
    theirs = {"ACTIONS_RUNNER_PRINT_LOG_TO_STDOUT": "0"}
    ended = await (await pod.run(shell, "env", env=theirs)).ends()
    assert "ACTIONS_RUNNER_PRINT_LOG_TO_STDOUT=0" in ended.out


def _install_listener(home: Path, script: str = "exit 100") -> None:
    program = home / "bin" / "Runner.Listener"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@pytest.mark.parametrize("where", ["here", "told"])
async def test_the_listener_is_found_and_started_itself(
    pod: Pod, shell: list[str], where: str
) -> None:
    """I60"""
    pod.put()
    home = pod.directory if where == "here" else pod.directory / "a home"
    _install_listener(home, 'echo "$1 in $PWD"; exit 102')
    env = {} if where == "here" else {"PADDOCK_RUNNER_HOME": str(home)}
    ended = await (await pod.run(shell, env=env)).ends()
    assert (ended.code, ended.out) == (102, f"run in {home}\n")


async def test_a_third_party_runner_is_found_and_started_too(pod: Pod, shell: list[str]) -> None:
    pod.put()
    program = pod.directory / "github-act-runner"
    program.write_text('#!/bin/sh\necho "$1 in $PWD"\n')
    program.chmod(0o755)
    ended = await (await pod.run(shell)).ends()
    assert (ended.code, ended.out) == (0, f"run in {pod.directory}\n")
    assert ended.err == "paddock: starting the runner (act-runner)\n"


@pytest.mark.parametrize("program", ["actions", "act-runner"])
async def test_the_program_of_the_pool_is_looked_for_and_no_other(
    pod: Pod, shell: list[str], program: str
) -> None:
    pod.put()
    _install_listener(pod.directory, "echo Runner.Listener")
    other = pod.directory / "github-act-runner"
    other.write_text("#!/bin/sh\necho github-act-runner\n")
    other.chmod(0o755)
    ended = await (await pod.run(shell, env={"PADDOCK_RUNNER": program})).ends()
    expected = {"actions": "Runner.Listener", "act-runner": "github-act-runner"}[program]
    assert ended.out == f"{expected}\n"
    assert ended.err == f"paddock: starting the runner ({program})\n"


@pytest.mark.parametrize(
    ("command", "told", "program"),
    [
        (("./bin/Runner.Listener", "run"), "", "actions"),
        (("sh", "-c", "exit 0"), "", "unknown"),
        (("sh", "-c", "exit 0"), "act-runner", "act-runner"),
        (("sh", "-c", "exit 0"), "another", "unknown"),
    ],
)
async def test_the_first_line_names_the_program_in_the_words_of_the_product(
    pod: Pod, shell: list[str], command: tuple[str, ...], told: str, program: str
) -> None:
    """I89: recovery reads in it whose words the log has."""
    pod.put()
    _install_listener(pod.directory, "exit 0")
    ended = await (await pod.run(shell, *command, env={"PADDOCK_RUNNER": told})).ends()
    assert ended.err == f"paddock: starting the runner ({program})\n"
    assert program_of_log(ended.err) == program
    if not told:
        assert program_of_command(command) == program


async def test_an_image_without_a_runner_is_explained(pod: Pod, shell: list[str]) -> None:
    pod.put()
    _install_listener(pod.directory)  # not where it is said to be
    ended = await (await pod.run(shell, env={"PADDOCK_RUNNER_HOME": "/nowhere"})).ends()
    assert ended.code == NO_RUNNER
    assert "set PADDOCK_RUNNER_HOME" in ended.err


def _lines(pod: Pod) -> list[bytes]:
    return (pod.stage / "vitals" / "samples").read_bytes().splitlines()


async def test_this_machines_own_numbers_are_sampled(pod: Pod, shell: list[str]) -> None:
    pod.put()
    await (await pod.run(shell, *sh("sleep 0.2"))).ends()
    samples = [parse(line) for line in _lines(pod)]
    assert samples
    for sample in samples:
        assert sample is not None
        known = {name for name, number in zip(FIELDS, sample, strict=True) if number is not None}
        assert {"at", "memory_used", "cpu_seconds", "disk_used", "load"} <= known


def _cgroup(root: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)


V2 = {
    "memory.current": "1000000\n",
    "memory.stat": "anon 5\ninactive_anon 7\ninactive_file 400000\nactive_file 9\n",
    "memory.max": "2147483648\n",
    "memory.events": "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n",
    "memory.pressure": "some avg10=1.50 avg60=0 avg300=0 total=9\nfull avg10=9 avg60=0\n",
    "cpu.pressure": "some avg10=22.25 avg60=0.00 avg300=0.00 total=9\n",
    "io.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=9\n",
    "cpu.stat": "usage_usec 2500000\nuser_usec 1\nsystem_usec 2\n",
}
V1 = {
    "memory/memory.usage_in_bytes": "1000000\n",
    "memory/memory.stat": "cache 1\ninactive_file 1\ntotal_inactive_file 400000\n",
    "memory/memory.limit_in_bytes": "2147483648\n",
    "memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    "cpuacct/cpuacct.usage": "2500000999\n",
}
SAME = [600000, 2147483648, 2]
V2_TABLE = "0::/\n"
V1_TABLE = "5:cpu,cpuacct:/kubepods/x\n4:memory:/kubepods/x\n1:name=systemd:/\n0::/\n"


def _below(path: str, files: dict[str, str]) -> dict[str, str]:
    """The path as seen from outside the container, where each controller has a tree."""
    controller_of = {name: name.partition("/") for name in files}
    return {
        f"{first}{path}/{rest}" if slash else f"{path.strip('/')}/{name}": files[name]
        for name, (first, slash, rest) in controller_of.items()
    }


OTHERS = dict.fromkeys(V1, "77\n")

CGROUPS = {
    "v2, in a container": (V2_TABLE, V2, [*SAME, 1.5, 22.25, 0.0, 2.5]),
    "v2, on a machine": ("0::/a.slice\n", _below("/a.slice", V2), [*SAME, 1.5, 22.25, 0.0, 2.5]),
    "v2, without a limit": (
        V2_TABLE,
        V2 | {"memory.max": "max\n"},
        [600000, None, 2, 1.5, 22.25, 0.0, 2.5],
    ),
    "v2, without pressure": (
        V2_TABLE,
        {name: text for name, text in V2.items() if "pressure" not in name},
        [*SAME, None, None, None, 2.5],
    ),
    "v2, the root of all": (
        V2_TABLE,
        {"cpu.stat": "usage_usec 9\n", "cpu.pressure": "some avg10=9 avg60=9\n"},
        [None] * 7,
    ),
    "v1, in a container": (V1_TABLE, V1, [*SAME, None, None, None, 2.5]),
    "v1, on a machine": (
        V1_TABLE,
        OTHERS | _below("/kubepods/x", V1),
        [*SAME, None, None, None, 2.5],
    ),
    "v1, without a limit": (
        V1_TABLE,
        V1 | {"memory/memory.limit_in_bytes": "9223372036854771712\n"},
        [600000, None, 2, None, None, None, 2.5],
    ),
    "none": ("", {}, [None] * 7),
}


@pytest.mark.parametrize(("table", "files", "numbers"), CGROUPS.values(), ids=CGROUPS.keys())
async def test_the_containers_own_cgroup_is_read(
    pod: Pod, shell: list[str], table: str, files: dict[str, str], numbers: list[float | None]
) -> None:
    pod.put()
    root = pod.directory / "cgroup"
    _cgroup(root, files)
    (pod.directory / "table").write_text(table)
    where = {
        "PADDOCK_CGROUP_ROOT": str(root),
        "PADDOCK_CGROUP_TABLE": str(pod.directory / "table"),
    }
    await (await pod.run(shell, "true", env=where)).ends()
    last = parse(_lines(pod)[-1])
    assert last is not None
    assert last[1:8] == numbers


async def test_samples_are_bounded_however_many_there_are(pod: Pod, shell: list[str]) -> None:
    pod.put()
    most = 2048
    fast = {"PADDOCK_SAMPLE_SECONDS": "0", "PADDOCK_SAMPLE_BYTES": str(most)}
    process = await pod.run(shell, *sh(UNTIL_ENOUGH), env=fast)
    vitals = pod.stage / "vitals"
    rotations: set[int] = set()
    async with asyncio.timeout(60):
        while len(rotations) < 3:
            await asyncio.sleep(0.005)
            for file in vitals.glob("samples*"):
                try:
                    found = file.stat()
                except FileNotFoundError:
                    continue
                assert found.st_size <= most
                if file.suffix:
                    rotations.add(found.st_mtime_ns)
    (pod.directory / "enough").touch()
    assert (await process.ends()).code == 0
    assert {path.name for path in vitals.iterdir()} <= {"samples", "samples.old", "ended"}


WORKS = "mkdir -p _diag; echo > _diag/Worker_20300101-000000-utc.log"


async def test_the_jobs_start_is_marked_while_it_runs(pod: Pod, shell: list[str]) -> None:
    pod.put()
    mark = pod.stage / "vitals" / "job-started"
    process = await pod.run(shell, *sh(f"sleep 0.1; {WORKS}; {UNTIL_ENOUGH}"))
    await pod.until(mark.exists)
    assert process.alive
    assert mark.read_text().strip().isdigit()
    (pod.directory / "enough").touch()
    assert (await process.ends()).code == 0


async def test_the_job_of_a_third_party_runner_is_marked_while_it_has_one(
    pod: Pod, shell: list[str]
) -> None:
    pod.put()
    mark = pod.stage / "vitals" / "job-started"
    runner = f"sleep 0.1; echo > jobrun.json; {UNTIL_ENOUGH}; rm jobrun.json"
    process = await pod.run(shell, *sh(runner), env={"PADDOCK_RUNNER": "act-runner"})
    await pod.until(mark.exists)
    assert process.alive
    (pod.directory / "enough").touch()
    assert (await process.ends()).code == 0


async def test_a_job_that_is_over_in_no_time_is_marked_too(pod: Pod, shell: list[str]) -> None:
    """I68"""
    pod.put()
    await (await pod.run(shell, *sh(f"{WORKS}; exit 100"))).ends()
    assert (pod.stage / "vitals" / "job-started").exists()


async def test_the_log_of_a_job_that_the_image_was_built_with_is_no_mark(
    pod: Pod, shell: list[str]
) -> None:
    """I24: a runner that got no job is retired; one that seems to have one is not."""
    pod.put()
    (pod.directory / "_diag").mkdir()
    (pod.directory / "_diag" / "Worker_20200101-000000-utc.log").touch()
    await (await pod.run(shell, *sh("echo > _diag/Runner_20300101-000000-utc.log"))).ends()
    assert not (pod.stage / "vitals" / "job-started").exists()


async def test_the_runners_end_is_marked_with_its_code(pod: Pod, shell: list[str]) -> None:
    pod.put()
    await (await pod.run(shell, *sh("exit 102"))).ends()
    assert (pod.stage / "vitals" / "ended").read_text().split()[1] == "102"


HOSTILE = {
    "pipes": "rm -rf v/*; mkfifo v/samples v/.ended v/ended v/.job-started; sleep 1.5",
    "a link elsewhere": "rm -rf v; ln -s /proc/self v",
    "a file": "rm -rf v; echo > v",
    "nothing": "rm -rf v",
    "directories": "rm -rf v/*; mkdir v/samples v/ended v/.ended v/samples.old",
    "a full file": "dd if=/dev/zero of=v/samples bs=1024 count=200 2>/dev/null",
}


@pytest.mark.parametrize("harm", HOSTILE.values(), ids=HOSTILE.keys())
async def test_nothing_that_a_job_leaves_on_the_stage_changes_the_end(
    pod: Pod, shell: list[str], harm: str
) -> None:
    """I60. Above all a pipe without a reader: a process that opens it for writing waits for ever."""
    pod.put()
    script = f"{WORKS}; cd stage; until [ -e v/samples ]; do sleep 0.01; done; {harm}; exit 103"
    script = re.sub(r"\bv\b", "vitals", script)
    ended = await (await pod.run(shell, *sh(script), env={"PADDOCK_SAMPLE_SECONDS": "1"})).ends()
    assert ended.code == 103
    await pod.until(lambda: pod.left_behind() == [])


async def test_a_stage_that_cannot_be_written_to_still_runs_the_job(
    pod: Pod, shell: list[str]
) -> None:
    pod.put()
    (pod.stage / "vitals").write_text("in the way")
    assert (await (await pod.run(shell, *sh("exit 100"))).ends()).code == 100


async def test_nothing_is_left_running(pod: Pod, shell: list[str]) -> None:
    pod.put()
    await (await pod.run(shell, *sh("sleep 0.1; exit 100"))).ends()
    await pod.until(lambda: pod.left_behind() == [])


async def test_the_sampler_does_not_outlive_a_killed_script(pod: Pod, shell: list[str]) -> None:
    pod.put()
    process = await pod.run(shell, *sh("echo $$ > pid; echo ready; exec sleep 60"))
    await _said(process, "ready")
    process.signal(signal.SIGKILL)
    os.kill(int((pod.directory / "pid").read_text()), signal.SIGKILL)
    await pod.until(lambda: pod.left_behind() == [])


async def test_poller_script_and_runner_together_run_a_job(pod: Pod, shell: list[str]) -> None:
    github = FakeGitHub(now=wall_clock, rng=Random(1))
    async with serving(github):
        organization = github.accounts.add_organization("octo-org")
        repository = github.accounts.add_repository(organization, "hello")
        github.accounts.install(github.accounts.add_app("paddock"), organization)
        steps = (Step("look around", 'env > environment; ls "$STAGE" > stage-then; exit 1'),)
        spec = JobSpec(name="build", labels=("linux",), steps=steps, die=None)
        job = github.jobs.queue_run(repository, [spec]).jobs[0]
        group = github.world.groups[organization.id][0]
        minted = github.runners.mint(organization, name="r-1", group=group, labels=["linux"])
        jit = minted.encoded_jit_config
        work = {"delivery": "d-1", "runner_name": "r-1", "jit": jit}
        pod.server.will(DISPATCH, Reply(200, work))
        assert (await (await pod.poll()).ends()).code == 0
        env = {"STAGE": str(pod.stage), "PADDOCK_FAKE_RUNNER_SPEEDUP": "100"}
        runner = [sys.executable, "-m", "paddock.fakes.runner", "run"]
        ended = await (await pod.run(shell, *runner, env=env)).ends()
    assert (ended.code, job.conclusion) == (102, "failure")
    assert "Running job: build" in ended.out
    assert jit not in (pod.directory / "environment").read_text()
    assert "jit" not in (pod.directory / "stage-then").read_text().split()
    assert (pod.stage / "vitals" / "job-started").exists()
