"""Sphinx's settings for the documentation site. `make docs` builds it.

The source folder is the repository, so a link in a page works on GitHub and on the site alike.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from sphinx.application import Sphinx

REPOSITORY = Path(__file__).resolve().parents[2]

project = "pdinference"
version = release = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
author = "The authors of pdinference"
root_doc = "docs/index"
include_patterns = [
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "benchmarks/README.md",
    "benchmarks/results/*.md",
    "charts/pdinference-operator/README.md",
    "docs/**.md",
]
# Folders that Sphinx need not search for pages.
exclude_patterns = [".*", "build", "dist", "operator", "tests", "images", "examples", "e2e", "crds"]

extensions = ["myst_parser"]
myst_heading_anchors = 4  # as GitHub names them
myst_fence_as_directive = ["mermaid"]
nitpicky = True
# GitHub shows a fence of an unknown language as text. So does the site.
suppress_warnings = ["misc.highlighting_failure"]
highlight_language = "text"

html_theme = "furo"
html_title = f"pdinference {version}"
html_static_path = ["static"]
html_extra_path = ["root", "../llms.txt"]
html_css_files = ["site.css"]
html_js_files = ["drawings.js", "versions.js"]
html_search_scorer = str(Path(__file__).with_name("search.js"))
html_sourcelink_suffix = ""  # the Markdown of each page is in _sources, for programs: see docs/llms.txt
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
html_theme_options: dict[str, list[str]] = {"top_of_page_buttons": []}

_FIELD_COLUMNS = 4
"""Name, type, default or labels, and meaning."""


class Mermaid(SphinxDirective):
    """A drawing. static/drawings.js renders it in the browser."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """The source of the drawing, which stays in view where there are no scripts."""
        text = "\n".join(self.content)
        return [nodes.literal_block(text, text, classes=["mermaid-source"], language="text")]


def mark_tables_of_fields(_app: Sphinx, page: nodes.document) -> None:
    """Give the tables of the reference a class: static/site.css lays them out anew on a phone."""
    for table in page.findall(nodes.table):
        heads = [entry.astext() for entry in next(table.findall(nodes.row)).findall(nodes.entry)]
        if len(heads) == _FIELD_COLUMNS and heads[-1] == "meaning":
            table["classes"].append("fields")


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the directive, and the class of tables."""
    app.add_directive("mermaid", Mermaid)
    app.connect("doctree-read", mark_tables_of_fields)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
