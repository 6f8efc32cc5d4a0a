"""A plan is written into the files that carry versions, and into the changelog."""

from __future__ import annotations

import pytest

from tests.support.scratch import Scratch
from tools.docs import ROOT
from tools.release import notes
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
    assert said.splitlines()[-1] == (
        "Commit this as `chore(release): operator 0.2.0, chart 0.2.0`, and put these tags on it: "
        "operator-0.2.0 chart-0.2.0"
    )


def test_a_release_that_is_tagged_leaves_nothing_to_release(scratch: Scratch) -> None:
    scratch.commit("fix: server", "server/app.py")
    before = scratch.plan()
    scratch.run("apply")
    assert scratch.plan() == before, "written, but not committed"
    scratch.commit("chore(release): server 0.1.1, chart 0.1.1")
    assert scratch.versions() == {"server": "0.1.1", "chart": "0.1.1"}, "committed, but not tagged"
    scratch.tag("server-0.1.1", "chart-0.1.1")
    assert scratch.plan() == {}
    assert '__version__ = "0.1.1"' in scratch.text("server/__init__.py")


def test_a_release_names_the_unreleased_section_of_the_changelog(scratch: Scratch) -> None:
    scratch.commit("fix(infra): flush the anchor", "infra/host-bootstrap/bootstrap.go")
    day = scratch.git("show", "--no-patch", "--format=%cs", "HEAD").strip()
    section = f"## operator 0.1.1, chart 0.1.1 ({day})\n\n### Fixed\n\n- A word.\n"
    before = scratch.text("CHANGELOG.md")
    assert scratch.run("notes") == section
    assert scratch.text("CHANGELOG.md") == before
    scratch.run("apply")
    assert scratch.text("CHANGELOG.md") == f"# Changelog\n\n## [Unreleased]\n\n{section}"

    scratch.commit("chore(release): operator 0.1.1, chart 0.1.1")
    scratch.tag("operator-0.1.1", "chart-0.1.1")
    after = scratch.text("CHANGELOG.md").replace("[Unreleased]\n", "[Unreleased]\n\n- Another.\n")
    (scratch.root / "CHANGELOG.md").write_text(after)
    scratch.commit("fix: server", "server/app.py")
    scratch.run("apply")
    assert scratch.text("CHANGELOG.md") == (
        "# Changelog\n\n## [Unreleased]\n\n"
        f"## server 0.1.1, chart 0.1.2 ({day})\n\n- Another.\n\n{section}"
    )


def test_a_release_of_which_the_changelog_says_nothing_is_refused(scratch: Scratch) -> None:
    (scratch.root / "CHANGELOG.md").write_text(
        "# Changelog\n\n## [Unreleased]\n\n## server 0.1.0\n"
    )
    scratch.commit("fix: server", "server/app.py")
    code, _, said = scratch.attempt("apply")
    assert code == 1
    assert "write what users should know about this release" in said
    assert '__version__ = "0.1.0"' in scratch.text("server/__init__.py")


def test_without_a_plan_there_is_nothing_to_release(scratch: Scratch) -> None:
    scratch.commit("docs: words", "docs/page.md")
    before = scratch.text("CHANGELOG.md")
    assert scratch.run("notes") == "There is nothing to release.\n"
    assert scratch.run("apply") == "There is nothing to release.\n"
    assert scratch.text("CHANGELOG.md") == before


def test_a_placeholder_for_an_address_is_not_released(scratch: Scratch) -> None:
    (scratch.root / "pyproject.toml").write_text(
        '[project.urls]\nSource = "https://paddock.example/source"\n'
    )
    scratch.commit("fix: server", "server/app.py")
    code, _, said = scratch.attempt("apply")
    assert code == 1
    assert "the address of Source is a placeholder" in said
    assert '__version__ = "0.1.0"' in scratch.text("server/__init__.py")


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
    """A file without a component is never released, and neither are its fixes."""
    components = read(ROOT)
    files = [
        path.relative_to(ROOT).as_posix()
        for directory in ("src", "deploy")
        for path in (ROOT / directory).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    assert [file for file in files if not any(each.ships(file) for each in components)] == []


def test_the_changelog_has_a_section_for_the_next_release() -> None:
    assert notes.UNRELEASED in (ROOT / notes.FILE).read_text("utf-8")


def test_every_version_of_ours_is_where_the_components_say() -> None:
    for component in read(ROOT):
        for place in component.versions:
            text = (ROOT / place.file).read_text("utf-8")
            version = version_at(place, text)
            assert with_version(place, text, version) == text
