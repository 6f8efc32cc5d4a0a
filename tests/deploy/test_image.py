"""The image: one description, of which the Dockerfile and what is built here are made."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.fleet.kube.settings import KubeSettings
from tests.support.chart import LEAST, named, rendered
from tools.image.description import CHECKOUT, DOCKERFILE, ROOT_SCRIPT, Description, dockerfile

OF = Description.read()
SOURCE = CHECKOUT / "src" / "paddock"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """paddock's part of the files, as both ways make it."""
    root = tmp_path_factory.mktemp("image") / "root"
    root.mkdir()
    subprocess.run(
        ["/bin/sh", ROOT_SCRIPT, "program", str(root)],
        cwd=CHECKOUT,
        env={"PATH": "/usr/bin:/bin", "PYTHON": sys.executable},
        check=True,
    )
    return root


def test_the_dockerfile_is_up_to_date() -> None:
    assert DOCKERFILE.read_text() == dockerfile(OF), "run `python -m tools.image dockerfile`"


def test_both_ways_run_the_same_script_on_the_same_packages() -> None:
    text = DOCKERFILE.read_text().replace("\\\n", " ")
    [base] = re.findall(rf"^RUN sh {ROOT_SCRIPT} base /image (.*)$", text, re.MULTILINE)
    assert base.split() == OF.packages
    assert f"FROM debian:{OF.release}-slim@${{BASE_DIGEST}} AS files" in text
    assert f"RUN sh {ROOT_SCRIPT} program /image" in text


def test_no_base_is_taken_without_its_digest() -> None:
    """A tag can be moved to another image, a digest cannot. None is guessed, so it has no default."""
    text = DOCKERFILE.read_text()
    bases = [base for base in re.findall(r"^FROM (\S+)", text, re.MULTILINE) if base != "scratch"]
    assert bases
    assert all(base.endswith("@${BASE_DIGEST}") for base in bases)
    assert re.findall(r"^ARG (.*)$", text, re.MULTILINE) == ["BASE_DIGEST"]


def test_no_postgresql_is_in_the_image() -> None:
    """It is the extra `embedded`, which run.lock is made without."""
    assert "pgserver" not in (CHECKOUT / "requirements/run.lock").read_text()


def test_both_ways_have_the_same_user_entrypoint_and_environment() -> None:
    text = DOCKERFILE.read_text().replace("\\\n", " ")
    said = dict(re.findall(r"^([A-Z]+) +(.*)$", text.partition("FROM scratch")[2], re.MULTILINE))
    assert said["USER"] == f"{OF.user}:{OF.user}"
    assert json.loads(said["ENTRYPOINT"]) == OF.entrypoint
    assert dict(each.split("=", 1) for each in said["ENV"].split()) == OF.environment


@pytest.mark.usefixtures("helm")
def test_the_chart_runs_it_as_its_own_user() -> None:
    spec = named(rendered(LEAST), "Deployment")["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsUser"] == OF.user
    # What the image starts, not a shell of it.
    assert "command" not in spec["containers"][0]


def test_every_file_of_the_program_is_in_it(program: Path) -> None:
    ours = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    inside = program / "opt" / "paddock"
    theirs = {
        str(path.relative_to(inside))
        for path in inside.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert theirs == ours
    assert (inside / "cli" / "__pycache__").exists()


def test_the_agent_is_where_pods_look_for_it(program: Path) -> None:
    *python, agent = KubeSettings().command
    assert python[0] == "python3"
    found = program / agent.lstrip("/")
    done = subprocess.run(
        [sys.executable, *python[1:], str(found), "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("usage:")


def test_it_starts_what_the_entrypoint_names(program: Path) -> None:
    start = program / OF.entrypoint[0].lstrip("/")
    assert start.stat().st_mode & 0o111
    assert start.read_text().startswith("#!/usr/bin/python3 -I\n")


def test_nothing_in_it_is_for_working_with() -> None:
    """No shell, no package manager."""
    assert not set(OF.packages) & {"bash", "dash", "busybox", "coreutils", "apt", "dpkg"}
