"""docs/first-hour.md, pasted into a shell block by block."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest
import yaml

from paddock.fakes.github.records import Step
from tests.support.chart import CHART, helm
from tests.support.release import NOW, REPOSITORY, Release, reachable
from tools.cluster.images import RUNNER

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

PAGE = CHART.parents[1] / "docs" / "first-hour.md"


NEVER = "imagePullPolicy: Never"


def blocks() -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


class Reader:
    """A shell in a checkout, with kubectl and helm; blocks are pasted one after the other."""

    def __init__(self, release: Release, directory: Path) -> None:
        self._directory = directory
        self._blocks = blocks()
        self._environment = {
            **os.environ,
            "KUBECONFIG": str(release.cluster.kubeconfig),
            "PATH": f"{self._tools(release)}:{os.environ['PATH']}",
        }
        (directory / "deploy").symlink_to(CHART.parent)

    def _tools(self, release: Release) -> Path:
        tools = self._directory / "tools"
        tools.mkdir()
        program = helm()
        assert program is not None
        (tools / "kubectl").symlink_to(release.cluster.facts.programs["kubectl"])
        # Like the reader's, except for this cluster's peculiarities.
        (tools / "helm").write_text(
            f'#!/bin/sh\nexec {program} "$@" --values {self._directory}/peculiar.yaml\n'
        )
        (tools / "helm").chmod(0o755)
        return tools

    async def paste(self, begins: str, **filled_in: str) -> str:
        """Pastes the next block, which must begin like this."""
        block = self._blocks.pop(0)
        assert block.startswith(begins), block
        for name, value in filled_in.items():
            block, times = re.subn(rf"\b{name}=('[^']*'|\S+)", f"{name}='{value}'", block)
            assert times == 1, name
        process = await asyncio.create_subprocess_exec(
            *("bash", "-eu", "-c", f"{block}\nenv -0 > {self._directory}/environment"),
            cwd=self._directory,
            env=self._environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said = (await process.communicate())[0].decode()
        assert process.returncode == 0, f"{block}\n{said}"
        lines = (self._directory / "environment").read_text().rstrip("\0").split("\0")
        self._environment = dict(line.split("=", 1) for line in lines)
        return said

    def replace(self, what: str, by: str) -> None:
        """In the next block."""
        assert what in self._blocks[0]
        self._blocks[0] = self._blocks[0].replace(what, by)

    def end(self) -> None:
        assert self._blocks == []


def peculiar(release: Release) -> str:
    """No resolver, no registry, an authority of its own: see `tests.support.release`."""
    values = {**release.values, "pools": {}}
    values["image"] = {**values["image"], "tag": NOW}
    values["ingress"] = {"enabled": False}
    return yaml.safe_dump(values)


async def test_the_first_hour_as_it_is_written(release: Release, tmp_path: Path) -> None:
    secrets = release.secrets
    for name, content in secrets["paddock-github"].items():
        (tmp_path / name).write_text(content)
    (tmp_path / "peculiar.yaml").write_text(peculiar(release))
    reader = Reader(release, tmp_path)

    await reader.paste(
        "export NAMESPACE",
        NAMESPACE=release.namespace,
        RUNNERS=release.runners,
        IMAGE=REPOSITORY,
        HOST="paddock.test",
        DATABASE_URL=secrets["paddock-database"]["url"],
    )
    await reader.paste("export APP_ID", APP_ID=str(release.app.id))
    await reader.paste("kubectl create namespace")
    await reader.paste("cat > values.yaml")
    async with reachable(release):
        said = await reader.paste("kubectl -n")
        assert "failed" not in said
        assert "acme" in said

        reader.replace("ghcr.io/actions/actions-runner:latest", f"{RUNNER}\n          {NEVER}")
        assert "linux" in await reader.paste("cat > pool.yaml")

        release.queue(name="hello", steps=(Step("hello", "echo hello"),))
        await release.until("SELECT 'yes' FROM jobs WHERE state = 'completed'")
        await release.until("SELECT 'yes' FROM verdicts")
        said = await reader.paste("kubectl -n")
        assert "hello" in said
        assert "completed" in said

        assert "paused" in await reader.paste("kubectl -n")
        release.queue(name="drill")
        await release.until("SELECT 'yes' FROM jobs WHERE name = 'drill'")
        said = await reader.paste("kubectl -n")
        assert "drill" in said
        assert "paused" in said
        await reader.paste("kubectl -n")
        assert await release.until("SELECT conclusion FROM jobs WHERE name = 'drill'") == "success"
    reader.end()
