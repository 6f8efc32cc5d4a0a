"""Sphinx' settings: `make site`. Pages are read on a code forge as well, so links are plain paths
between files, and a page may use no syntax that a forge does not show."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

project = html_title = "paddock"
extensions = ["myst_parser", "tools.site.extension"]
root_doc = "README"
include_patterns = ["*.md", "docs/**.md"]

# Anchors of headings as a forge makes them.
myst_heading_anchors = 4
# Drawn when the site is built (tools/site/diagrams.py).
myst_fence_as_directive = ["mermaid"]
# A fragment of PostgreSQL's language is shown without colours where the lexer gives up.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
