"""No link of the docs to a page, a heading or a file is dead. Web addresses are not requested."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.site.pages import DOCS, Link, anchors, links, pages, problem
from compat_tests.tools import ROOT


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    wrong = [f"line {link.line}: {link.target}: {why}" for link in links(page) if (why := problem(link))]
    assert wrong == []


def test_the_links_are_seen() -> None:
    targets = {link.target for link in links(ROOT / "README.md")}
    assert {"docs/reference/apis.md", "LICENSE", "docs/console/overview.png"} <= targets


def test_what_is_dead_is_seen(tmp_path: Path) -> None:
    def said(target: str) -> str | None:
        return problem(Link(DOCS / "index.md", 1, target))

    assert said("install.md") is None
    assert said("install.md#with-pip") is None
    assert said("../LICENSE") is None
    assert said("install.md#by-hand") == "there is no such heading"
    assert said("installing.md") == "there is no such file"
    assert said("../../elsewhere.md") == "it leads out of the repository"


def test_links_in_code_are_none(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("`[a](b)` [c](d)\n```\n[e](f)\n```\n![g](h) [i](https://example.org)\n")
    assert [(link.line, link.target) for link in links(page)] == [(1, "d"), (5, "h")]


def test_anchors_are_those_of_repository_views(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A page\n## `code`, and [a link](x.md)\n## Twice\n## Twice\n```\n# none\n```\n### Öl & Wasser\n")
    assert anchors(page) == {"a-page", "code-and-a-link", "twice", "twice-1", "öl--wasser"}
