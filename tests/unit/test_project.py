"""The project's metadata states what was tested."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools import audit
from tools.docs import ROOT
from tools.pythons import listed

_PYPROJECT = (ROOT / "pyproject.toml").read_text("utf-8")
_PROJECT: dict[str, Any] = tomllib.loads(_PYPROJECT)
_LOCKS = sorted((ROOT / "requirements").glob("*.lock"))


def _locked(file: Path) -> dict[str, str]:
    lines = re.findall(r"^([a-z0-9-]+)==(\S+)", file.read_text("utf-8"), re.MULTILINE)
    return dict(lines)


def _direct() -> list[tuple[str, str]]:
    declared = [
        *_PROJECT["project"]["dependencies"],
        *_PROJECT["project"]["optional-dependencies"]["embedded"],
        *_PROJECT["dependency-groups"]["test"],
    ]
    return re.findall(r"^([a-z0-9-]+)(?:\[\w+\])?>=([\d.]+)$", "\n".join(declared), re.MULTILINE)


@pytest.mark.parametrize(("name", "bound"), _direct(), ids=str)
def test_a_lower_bound_is_the_version_that_was_tested(name: str, bound: str) -> None:
    """`make test-lowest` installs lowest.lock. A bound that another package raises is never tested."""
    assert _locked(ROOT / "requirements/lowest.lock")[name].startswith(bound)


def test_every_dependency_has_a_lower_bound() -> None:
    declared = _PROJECT["project"]["dependencies"] + _PROJECT["dependency-groups"]["test"]
    declared += _PROJECT["project"]["optional-dependencies"]["embedded"]
    assert len(_direct()) == len(declared)


@pytest.mark.parametrize("file", _LOCKS, ids=lambda file: file.name)
def test_a_lock_file_has_no_address(file: Path) -> None:
    assert "://" not in file.read_text("utf-8")


def test_the_lowest_python_listed_is_the_lowest_that_is_allowed() -> None:
    assert _PROJECT["project"]["requires-python"] == f">={listed(_PYPROJECT)[0]}"


#: Another project's name, as what an installer is told to install: no path, and no longer name.
_OTHERS = "paddock"
_INSTALLS = re.compile(
    r"(?:\b(?:pip[\d.]*|pipx|uv|poetry|pdm|conda|mamba)\s(?:[^`]{0,60}\s)?"
    r"(?:install|add|inject|download|upgrade)|\b(?:uvx|pipx\s+run|uv\s+tool\s+run))\b"
    rf"[^`]{{0,80}}?[\s\"'=]{_OTHERS}(?![\w/:-]|\.\w)"
)


def test_no_text_tells_to_install_the_other_project() -> None:
    assert _PROJECT["project"]["name"] != _OTHERS
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    texts = {
        file: (ROOT / file).read_text("utf-8", errors="replace")
        for file in files.splitlines()
        if (ROOT / file).is_file()
    }
    assert [file for file, text in texts.items() if _INSTALLS.search(text)] == []
    assert [lock.name for lock in _LOCKS if _OTHERS in _locked(lock)] == []


@pytest.mark.parametrize(
    ("command", "is_theirs"),
    [
        ("pip install {}", True),
        ("python -m pip install --upgrade '{}[embedded]'", True),
        ("uv pip install {}==0.1.0", True),
        ("uv tool install {}.", True),
        ("`uvx {}`", True),
        ("use `pip install\n{}`", True),
        ("pip install {}-runners", False),
        ("pip install --editable src/{}", False),
        ("uv run {} up", False),
        ("docker pull registry.example.org/{}:0.1.0", False),
    ],
)
def test_the_check_above_knows_the_commands(command: str, *, is_theirs: bool) -> None:
    assert bool(_INSTALLS.search(command.format(_OTHERS))) is is_theirs


def test_hooks_use_only_what_is_locked() -> None:
    """Repositories of hooks are addresses; `language: system` fetches nothing."""
    configured = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    assert [each["repo"] for each in configured["repos"]] == ["local"]
    for hook in configured["repos"][0]["hooks"]:
        assert hook["language"] == "system"
        assert hook["entry"].startswith(".venv/bin/")


_CONTROL = {"name": audit.CONTROL[0], "version": audit.CONTROL[1], "vulns": [{"id": "PYSEC-1"}]}
_CLEAN = {"name": "jinja2", "version": "3.1.6", "vulns": []}


def test_an_audit_names_what_is_vulnerable_besides_its_control() -> None:
    vulnerable = {"name": "jinja2", "version": "3.1.2", "vulns": [{"id": "a"}, {"id": "b"}]}
    assert audit.vulnerable({"dependencies": [_CONTROL, vulnerable]}) == ["jinja2 3.1.2: a, b"]
    assert audit.vulnerable({"dependencies": [_CONTROL, _CLEAN]}) == []


@pytest.mark.parametrize(
    "dependencies",
    [
        [_CONTROL, {"name": "jinja2", "skip_reason": "not found"}],
        [{**_CONTROL, "vulns": []}, _CLEAN],
        [_CLEAN],
        [],
    ],
    ids=["skipped", "control is clean", "no control", "empty"],
)
def test_an_audit_without_complete_answers_counts_for_nothing(
    dependencies: list[dict[str, Any]],
) -> None:
    with pytest.raises(audit.NotAudited):
        audit.vulnerable({"dependencies": dependencies})
