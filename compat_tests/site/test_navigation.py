"""Every page of the site is in its navigation exactly once; every decision is in their list exactly once."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from compat_tests.site.pages import DOCS, links, module, pages


def _names() -> list[str]:
    return [page for chapter in module("conf.py").NAVIGATION.values() for page in chapter]


def test_every_page_is_in_the_navigation_once() -> None:
    names = _names()
    assert [name for name, count in Counter(names).items() if count > 1] == []
    there = {str(path.relative_to(DOCS).with_suffix("")) for path in pages() if DOCS in path.parents}
    decisions = {name for name in there if re.match(r"decisions/\d", name)}
    assert there - decisions - {"index"} <= set(names), "add it to NAVIGATION in docs/conf.py"


def test_the_front_page_leads_to_every_way_in() -> None:
    targets = {link.target.removesuffix(".md") for link in links(DOCS / "index.md")}
    assert {name for name in _names() if name.startswith(("start/", "concepts/"))} <= targets


def test_every_decision_is_listed_once() -> None:
    listed = [link.target for link in links(DOCS / "decisions" / "README.md") if re.match(r"\d{4}-", link.target)]
    assert sorted(listed) == sorted(path.name for path in DOCS.glob("decisions/[0-9]*.md"))


def test_a_decision_is_listed_under_its_number() -> None:
    text = (DOCS / "decisions" / "README.md").read_text()
    rows = re.findall(r"^\| \[(\d+)\]\((\d{4})-\S+\.md\) \| \S.* \|$", text, re.MULTILINE)
    assert [(number, file) for number, file in rows if int(number) != int(file)] == []
    assert len(rows) == len(list(DOCS.glob("decisions/[0-9]*.md")))


def test_the_number_of_a_decision_is_its_own() -> None:
    titles = {path.name[:4]: path.read_text().splitlines()[0] for path in DOCS.glob("decisions/[0-9]*.md")}
    assert [name for name, title in titles.items() if not title.startswith(f"# {int(name)}. ")] == []


@pytest.mark.parametrize(
    ("page", "written", "target"),
    [
        ("architecture", "../CONTRIBUTING.md", "#page-contributing"),
        ("decisions/0001-wire-codecs", "../../CHANGELOG.md", "#page-changelog"),
        ("contributing", "docs/testing.md#waiting", "testing.md#waiting"),
        ("contributing", "SECURITY.md", "#page-security-policy"),
        ("contributing", "LICENSE", "../LICENSE"),
        ("contributing", "docs/decisions", "decisions/README.md"),
        ("architecture", "decisions/", "decisions/README.md"),
        ("start/sql", "../query-topics.md#columns", "../query-topics.md#columns"),
        ("start/sql", "#a-select", "#a-select"),
        ("contributing", "#here", "#here"),
    ],
)
def test_links_between_the_docs_and_the_top_of_the_repository_lead_to_pages(
    page: str, written: str, target: str
) -> None:
    text = [f"[a link]({written}) and [one](https://example.org/docs/)"]
    module("conf.py")._with_navigation(None, page, text)
    assert text[0].endswith(f"[a link]({target}) and [one](https://example.org/docs/)")
