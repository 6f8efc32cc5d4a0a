"""A plan is written into the files that carry versions, and into changelogs."""

from __future__ import annotations

import pytest

from paddock.docs import ROOT
from tests.support.scratch import Scratch
from tools.release.components import Place, read
from tools.release.errors import ReleaseError
from tools.release.places import version_at, with_version


def test_a_release_updates_the_version_pinned_in_the_chart(scratch: Scratch) -> None:
    scratch.commit("feat(infra): more", "infra/host-bootstrap/bootstrap.go")
    said = scratch.run("apply")
    assert scratch.text("chart/values.yaml") == (
        "# Which image.\nimage:\n  repository: paddock\n"
        '  tag: "0.1.0"  # the server\'s\n'
        'operator:\n  replicas: 1\n  image:\n    tag: "0.2.0"\n'
    )
    assert scratch.text("chart/Chart.yaml") == 'name: paddock\nversion: "0.2.0"\n'
    assert said.splitlines()[-1].endswith("on that commit: operator-0.2.0 chart-0.2.0")


def test_a_release_that_is_tagged_leaves_nothing_to_release(scratch: Scratch) -> None:
    scratch.commit("fix: server", "server/app.py")
    before = scratch.plan()
    scratch.run("apply")
    assert scratch.plan() == before, "written, but not committed"
    scratch.commit("Release server 0.1.1")
    assert scratch.versions() == {"server": "0.1.1", "chart": "0.1.1"}, "committed, but not tagged"
    scratch.tag("server-0.1.1", "chart-0.1.1")
    assert scratch.plan() == {}
    assert '__version__ = "0.1.1"' in scratch.text("server/__init__.py")


def test_notes_can_be_written_again_and_keep_what_is_older(scratch: Scratch) -> None:
    scratch.commit("fix(infra): flush the anchor", "infra/host-bootstrap/bootstrap.go")
    scratch.run("apply")
    scratch.commit("Release operator 0.1.1")
    scratch.tag("operator-0.1.1", "chart-0.1.1")
    scratch.commit("feat!: another name\n\nwith a body", "infra/operator/main.go")
    scratch.commit("A sentence", "infra/operator/main.go")
    scratch.run("notes")
    first = scratch.text("changelogs/operator.md")
    scratch.run("notes")
    assert scratch.text("changelogs/operator.md") == first
    day = scratch.git("show", "--no-patch", "--format=%cs", "HEAD").strip()
    kept = [
        line.partition(" (")[0] if line.startswith("-") else line for line in first.splitlines()
    ]
    assert kept == [
        "# Changelog of the operator",
        "",
        f"## 0.2.0 ({day})",
        "",
        "### Breaking",
        "",
        "- Another name",
        "",
        "### Changed",
        "",
        "- A sentence",
        "",
        f"## 0.1.1 ({day})",
        "",
        "### Fixed",
        "",
        "- Flush the anchor",
    ]
    assert "### Pinned\n\n- operator 0.2.0\n" in scratch.text("changelogs/chart.md")


def test_notes_of_nothing_are_not_written(scratch: Scratch) -> None:
    scratch.commit("docs: words", "docs/page.md")
    assert scratch.run("notes") == "There is nothing to release.\n"
    assert not (scratch.root / "changelogs").exists()


def test_what_cannot_be_pinned_is_said_before_anything_is_written(scratch: Scratch) -> None:
    scratch.commit("fix: server", "server/app.py")
    (scratch.root / "chart/values.yaml").write_text("image: {tag: 0.1.0}\n")
    code, _, said = scratch.attempt("apply")
    assert code == 1
    assert "chart/values.yaml has no version under `image.tag` that could be changed" in said
    assert '__version__ = "0.1.0"' in scratch.text("server/__init__.py")


@pytest.mark.parametrize(
    "text",
    ["a:\n  b: 1\n", "a:\n  - tag: x\n", "a: [\n", "a:\n  tag: |\n    x\n"],
)
def test_a_file_in_which_a_version_cannot_be_found_is_left_alone(text: str) -> None:
    with pytest.raises(ReleaseError):
        with_version(Place("a.yaml", "a.tag"), text, "1.0.0")


def test_a_key_of_the_same_name_elsewhere_is_left_alone() -> None:
    text = 'tag: "1"\na:\n  c:\n    tag: "2"\n  tag: "3"\nb:\n  tag: "4"\n'
    written = with_version(Place("a.yaml", "a.tag"), text, "9.9.9")
    assert written == text.replace('"3"', '"9.9.9"')
    assert version_at(Place("a.yaml", "b.tag"), written) == "4"


def test_every_file_that_is_deployed_belongs_to_a_component() -> None:
    """What nobody ships is never released, whatever its fixes."""
    components = read(ROOT)
    files = [
        path.relative_to(ROOT).as_posix()
        for directory in ("src", "deploy")
        for path in (ROOT / directory).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    assert [file for file in files if not any(each.ships(file) for each in components)] == []


def test_every_version_of_ours_is_where_the_components_say() -> None:
    for component in read(ROOT):
        for place in component.versions:
            text = (ROOT / place.file).read_text("utf-8")
            version = version_at(place, text)
            assert with_version(place, text, version) == text
