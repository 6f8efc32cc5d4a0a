"""What the local fleet finds on its machine: an installed runner, a server that moved, a cgroup."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from paddock.domain.ids import RunnerId
from paddock.domain.names import PodName
from paddock.domain.pods.pod import PodOrder
from paddock.fleet.local.fleet import LocalFleet, Programs
from paddock.fleet.local.installation import Installation
from paddock.fleet.local.settings import LocalSettings
from paddock.fleet.local.shares import NoCgroup, cgroup_for_runners
from paddock.system import SystemClock, SystemIds

_PATIENCE = 30.0
STAGE = """echo 'exec "$@"' > stage/run; echo jit > stage/jit"""


def order(name: str) -> PodOrder:
    runner = RunnerId(SystemIds().uuid())
    return PodOrder(runner=runner, name=PodName(name), pool="linux", spec="{}")


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The parts of actions/runner that the fleet reads."""
    directory = tmp_path / "actions-runner"
    (directory / "bin").mkdir(parents=True)
    (directory / "externals" / "node20").mkdir(parents=True)
    (directory / ".env").write_text("LANG=C\n")
    program = directory / "bin" / "Runner.Listener"
    program.write_text('#!/bin/sh\nls externals .env > seen; echo "$0 $*" > "../ran"\n')
    program.chmod(0o755)
    built_from = directory / "bin" / "Runner.Listener.deps.json"
    built_from.write_text('{"targets": {"net8": {"Runner.Listener/2.336.0": {}}}}')
    return directory


async def test_each_pod_has_the_installed_runner_to_itself(tmp_path: Path, installed: Path) -> None:
    fleet = LocalFleet(
        tmp_path / "runners",
        Programs(poller=("/bin/sh", "-c", STAGE), vitals=None),
        clock=SystemClock(),
        ids=SystemIds(),
        runner=Installation(installed),
    )
    await fleet.open()
    try:
        names = ("linux-1", "linux-2")
        for name in names:
            await fleet.create(order(name))
        async with asyncio.timeout(_PATIENCE):
            while not all(pod.phase.terminal for pod in (await fleet.list()).pods):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        for name in names:
            assert (fleet.root / name / "ran").read_text() == "./bin/Runner.Listener run\n"
        assert {pod.runner_version for pod in (await fleet.list()).pods} == {"2.336.0"}
    finally:
        await fleet.stop_all()
    # What a job left behind went with its Pod, and what was only linked did not.
    assert not (fleet.root / "linux-1" / "work").exists()
    assert sorted(path.name for path in installed.iterdir()) == [".env", "bin", "externals"]
    assert (installed / "externals" / "node20").is_dir()


def test_a_directory_without_the_program_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no runner program"):
        LocalSettings(runner=tmp_path)


@pytest.mark.parametrize("name", ["github-act-runner", "bin/Runner.Listener"])
def test_a_directory_that_is_called_like_the_program_is_none(tmp_path: Path, name: str) -> None:
    """The sources of github-act-runner, for example."""
    (tmp_path / name).mkdir(parents=True)
    with pytest.raises(ValueError, match="holds no runner program"):
        LocalSettings(runner=tmp_path)


@pytest.mark.parametrize("name", ["github-act-runner", "bin/Runner.Listener"])
def test_a_program_that_may_not_be_executed_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("#!/bin/sh\n")
    with pytest.raises(ValueError, match=f"/{name}` may not be executed"):
        LocalSettings(runner=tmp_path)


async def test_a_pod_that_waits_finds_the_server_at_its_new_address(tmp_path: Path) -> None:
    fleet = LocalFleet(
        tmp_path / "runners", Programs.of_agent(), clock=SystemClock(), ids=SystemIds()
    )
    await fleet.open()
    await fleet.announce("http://127.0.0.1:9")  # the port of a server that is no more
    asked = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        writer.write(b'HTTP/1.1 410 Gone\r\nContent-Length: 15\r\n\r\n{"reason": "x"}')
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        try:
            await fleet.create(order("linux-1"))
            log = fleet.root / "linux-1" / "poller.log"
            async with asyncio.timeout(_PATIENCE):
                while not (log.exists() and "127.0.0.1:9" in log.read_text()):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
                port = server.sockets[0].getsockname()[1]
                await fleet.announce(f"http://127.0.0.1:{port}")
                await asked.wait()
        finally:
            await fleet.stop_all()


class Kernel:
    """Directories that stand for a cgroup file system."""

    def __init__(self, root: Path) -> None:
        self.root = root / "cgroup"
        self.table = root / "table"

    def group(self, path: str, **files: str) -> Path:
        directory = self.root / path
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (directory / name.replace("__", ".")).write_text(content)
        return directory


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


def test_a_cgroup_with_other_processes_in_it_is_not_divided(kernel: Kernel) -> None:
    kernel.group("", cgroup__controllers="memory")
    kernel.group(
        "user",
        cgroup__controllers="cpu memory",
        cgroup__subtree_control="",
        cgroup__type="domain",
        cgroup__procs="1\n",
    )
    kernel.table.write_text("0::/user\n")
    with pytest.raises(NoCgroup, match="other processes"):
        cgroup_for_runners("x", root=kernel.root, table=kernel.table)


def test_without_cgroups_there_is_a_reason_and_no_limit(kernel: Kernel) -> None:
    kernel.table.write_text("1:cpu:/\n")
    with pytest.raises(NoCgroup, match="no cgroups for memory"):
        cgroup_for_runners("x", root=kernel.root, table=kernel.table)
    with pytest.raises(NoCgroup, match="no such file"):
        cgroup_for_runners("x", root=kernel.root, table=kernel.table.with_name("none"))
