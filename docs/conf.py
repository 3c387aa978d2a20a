"""How `make docs` builds a site of these pages, with Sphinx.

The pages are plain Markdown, and a repository view shows them as they are: nothing in them speaks to Sphinx. So the
navigation stands here. Invariant: every page is in it once (`compat_tests/site/test_navigation.py`).
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent

#: The navigation: pages by chapter, without `.md`. A page that is not there yet is left out.
NAVIGATION = {
    "Start": ["start/tests", "start/sql", "start/offsets", "start/binlog", "start/spark", "start/team", "install"],
    "Examples": [
        *("examples/README", "examples/orders/README", "examples/service_tests/README", "examples/dashboard/README"),
        *("examples/cdc_into_spark/README", "examples/edge/README", "examples/leaving_zookeeper/README"),
    ],
    "Concepts": ["concepts/vnodes", "concepts/durability", "concepts/query-topics", "concepts/streams"],
    "Topics and records": ["rows-in", "export", "compaction", "transactions", "offsets", "kafka-directory"],
    "SQL and Spark": [
        *("query-topics", "streams", "sql-shell", "spark"),
        *("windows/interval", "windows/sliding", "windows/session", "windows/state", "windows/event", "windows/count"),
    ],
    "Sources": ["binlog", "binlog-types"],
    "Running it": [
        *("nodes", "security", "monitoring", "console", "limits", "performance", "in-your-tests", "stays-compatible"),
    ],
    "Reference": [
        *("reference/when-something-is-wrong", "command-line", "reference/commands", "configuration"),
        *("reference/sql", "reference/apis", "reference/metrics", "compatibility", "left-out", "beside-others"),
    ],
    "The project": [
        *("contributing", "architecture", "one-request", "testing", "decisions/README", "changelog", "security-policy"),
    ],
}
#: Pages that are links to files at the top of the repository.
GUESTS = {"contributing": "CONTRIBUTING.md", "changelog": "CHANGELOG.md", "security-policy": "SECURITY.md"}

project = "barnabas"
project_copyright = "the authors of barnabas, Apache License 2.0"
root_doc = "index"
extensions = ["myst_parser"]
exclude_patterns = ["deploy/**", *(f"{name}.md" for name in GUESTS if not (HERE / f"{name}.md").exists())]
smartquotes = False  # two hyphens begin an option
highlight_language = "none"  # a block whose language is not named is shown as it is
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]  # "Results" of docs/compatibility.md is written by a test run

html_theme = "furo"
html_title = "barnabas"
html_copy_source = False
html_show_sphinx = False
html_show_search_summary = False  # Sphinx fetches pages for it, which a browser refuses for files
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}

_LINK = re.compile(r"(?<=\]\()(?!https?:|#|mailto:)([^)\s]+)")


def _with_navigation(app: Any, docname: str, source: list[str]) -> None:
    """Sphinx reads the navigation at the end of the front page, and that of the decisions at the end of theirs."""
    if docname == "index":
        source[0] += "".join(_tree(caption, pages) for caption, pages in NAVIGATION.items())
    elif docname == "decisions/README":
        source[0] += _tree("", sorted(path.stem for path in HERE.glob("decisions/[0-9]*.md")))
    source[0] = _LINK.sub(lambda found: _inside(docname, found[1]), source[0])
    if docname in GUESTS:
        source[0] = f"(page-{docname})=\n\n{source[0]}"


def _tree(caption: str, pages: list[str]) -> str:
    folder = HERE if caption else HERE / "decisions"
    there = [page for page in pages if (folder / f"{page}.md").exists()]
    options = [":hidden:", f":caption: {caption}"] if caption else [":hidden:"]
    return "\n".join(["", "```{toctree}", *options, "", *there, "```", ""])


def _inside(docname: str, target: str) -> str:
    """A link as it must be written in the site: to files at the top that are pages here, and to folders with a page."""
    path, hash_sign, anchor = target.partition("#")
    folder = "" if docname in GUESTS else posixpath.dirname(f"docs/{docname}")
    whole = posixpath.normpath(posixpath.join(folder, path)) if path else ""
    for guest, file in GUESTS.items():
        if whole == file:
            return f"#page-{guest}"  # by name, as a path would lead to the file at the top
    if whole.startswith("docs/") and (HERE.parent / whole / "README.md").exists():
        whole += "/README.md"
    elif docname not in GUESTS or not path:
        return target
    return posixpath.relpath(whole, posixpath.dirname(f"docs/{docname}")) + hash_sign + anchor


def setup(app: Any) -> None:
    """Sphinx calls it at its start."""
    app.connect("source-read", _with_navigation)
