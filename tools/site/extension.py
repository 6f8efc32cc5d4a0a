"""The site's additions to Sphinx: diagrams, a menu, and pages for source files that are linked to.

The menu is the list of pages in docs/README.md. Links to files that are no pages (`../src/…`, or a
directory) lead to the repository on a forge. Here they lead to pages with the same content, so the site
is complete without the forge, and shows the code that it was built with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from docutils import nodes
from docutils.parsers.rst import Directive
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx.addnodes import download_reference, pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms import SphinxTransform

from tools.site.diagrams import DiagramError, draw

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = "source"
#: Pages that are in no list of docs/README.md.
PROJECT: Final = ("CONTRIBUTING", "CHANGELOG", "SECURITY", "CODE_OF_CONDUCT")


class Mermaid(Directive):
    has_content = True

    def run(self) -> list[nodes.Node]:
        try:
            drawn = draw("\n".join(self.content))
        except DiagramError as error:
            raise self.error(f"A diagram cannot be drawn: {error}") from error
        html = f'<div class="diagram-frame">{drawn}</div>'
        return [nodes.raw("", html, format="html")]


def add_menu(_app: Sphinx, docname: str, content: list[str]) -> None:
    if docname == "README":
        content[0] += "".join(menu((ROOT / "docs/README.md").read_text("utf-8")))
    elif docname == "docs/decisions/README":
        numbered = sorted(page.stem for page in (ROOT / "docs/decisions").glob("0*.md"))
        content[0] += _toctree(numbered)


def menu(overview: str) -> Iterator[str]:
    """A part of the menu for each section of the list of pages, in its order."""
    for section in re.split(r"^## ", overview, flags=re.MULTILINE)[1:]:
        heading, _, text = section.partition("\n")
        pages = re.findall(r"^\| \[[^\]]+\]\(([\w/-]+)\.md\)", text, re.MULTILINE)
        yield _toctree([f"docs/{page}" for page in pages], heading)
    yield _toctree(["docs/README", *PROJECT], "The project")


def _toctree(pages: list[str], caption: str = "") -> str:
    options = f":hidden:\n:caption: {caption}\n" if caption else ":hidden:\n"
    return "\n\n```{toctree}\n" + options + "\n" + "\n".join(pages) + "\n```\n"


class LinkToSource(SphinxTransform):
    """A link to a file that is no page, or to a directory, becomes a link to its page of source."""

    default_priority = 1

    def apply(self, **_: Any) -> None:
        for node in [
            *self.document.findall(download_reference),
            *self.document.findall(pending_xref),
        ]:
            path = (Path(self.env.doc2path(self.env.docname)).parent / node["reftarget"]).resolve()
            is_page = path.suffix == ".md" or not path.exists()
            if is_page or not path.is_relative_to(ROOT):
                continue
            known: set[Path] = self.env.__dict__.setdefault("linked_sources", set())
            known.add(path)
            depth = self.env.docname.count("/")
            where = path.relative_to(ROOT).as_posix()
            link = nodes.reference(refuri=f"{'../' * depth}{SOURCE}/{where}.html", internal=True)
            link += node.children
            node.replace_self(link)


def source_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Builds all of them anew each time: Sphinx keeps only pages."""
    for path in sorted(app.env.__dict__.get("linked_sources", ())):
        where = path.relative_to(ROOT).as_posix()
        shown = _listing(path) if path.is_dir() else _code(path)
        context = {"title": where, "body": f"<h1>{where}</h1>{shown}"}
        yield f"{SOURCE}/{where}", context, "page.html"


def _code(path: Path) -> str:
    try:
        lexer = get_lexer_for_filename(path.name)
    except ClassNotFound:
        lexer = TextLexer()
    return str(highlight(path.read_text("utf-8"), lexer, HtmlFormatter(cssclass="highlight")))


def _listing(path: Path) -> str:
    """Only files of the repository; a directory also holds what was built from it."""
    hidden = ("__pycache__", "node_modules")
    names = sorted(
        f"{each.name}/" if each.is_dir() else each.name
        for each in path.iterdir()
        if each.name not in hidden
    )
    return "<ul>" + "".join(f"<li><code>{name}</code></li>" for name in names) + "</ul>"


def merge(_app: Sphinx, env: BuildEnvironment, _names: set[str], other: BuildEnvironment) -> None:
    env.__dict__.setdefault("linked_sources", set()).update(
        other.__dict__.get("linked_sources", ())
    )


def write_index(app: Sphinx, error: Exception | None) -> None:
    """The first page is the README; a server of files looks for index.html."""
    if error is None:
        (Path(app.outdir) / "index.html").write_text(
            '<!doctype html><meta http-equiv="refresh" content="0; url=README.html">'
            '<a href="README.html">paddock</a>\n',
            "utf-8",
        )


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("mermaid", Mermaid)
    app.add_transform(LinkToSource)
    app.connect("source-read", add_menu)
    app.connect("env-merge-info", merge)
    app.connect("html-collect-pages", source_pages)
    app.connect("build-finished", write_index)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
