"""The pages of the docs as Markdown: their blocks, links and anchors. Anchors follow GitHub's rules."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from compat_tests.tools import ROOT

DOCS = ROOT / "docs"
_FENCE = re.compile(r"^( *)(`{3,}|~{3,})[^\n]*\n.*?^\1\2 *$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)")
_HEADING = re.compile(r"^(#{1,6}) +(.+?)(?: +#+)? *$", re.MULTILINE)
#: The beginning of a web address; those are not fetched.
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


class Link(NamedTuple):
    """A link as it is written in a page."""

    page: Path
    line: int
    target: str


def pages() -> list[Path]:
    """Every page of the docs, and those at the top of the repository; some files in the docs are links to these."""
    return sorted(path for path in [*DOCS.rglob("*.md"), *ROOT.glob("*.md")] if path.is_file())


def links(page: Path) -> Iterator[Link]:
    """The links of a page to other pages, to its own anchors and to files."""
    text = _without_code(page.read_text())
    for found in _LINK.finditer(text):
        if not _ELSEWHERE.match(found[1]):
            yield Link(page, text.count("\n", 0, found.start()) + 1, found[1])


def problem(link: Link) -> str | None:
    """The error of a link; None if it is good."""
    path, _, anchor = link.target.partition("#")
    target = (link.page.resolve().parent / path).resolve() if path else link.page.resolve()
    if ROOT not in target.parents:
        return "it leads out of the repository"
    if not target.exists():
        return "there is no such file"
    if anchor and (target.suffix != ".md" or anchor not in anchors(target)):
        return "there is no such heading"
    return None


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings."""
    text = _FENCE.sub("", page.read_text())
    found: Counter[str] = Counter()
    for heading in _HEADING.finditer(text):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[2]).strip().lower()
        found[re.sub(r"[^\w\- ]", "", words).replace(" ", "-")] += 1
    return frozenset(f"{slug}-{n}" if n else slug for slug, count in found.items() for n in range(count))


def _without_code(text: str) -> str:
    """A text with its code replaced by blanks; line numbers stay the same."""

    def blank(found: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", found[0])

    return _CODE.sub(blank, _FENCE.sub(blank, text))


@cache
def module(path: str) -> ModuleType:
    """Import a Python file of the docs, which is not in a package."""
    spec = importlib.util.spec_from_file_location(path.replace("/", "_").removesuffix(".py"), DOCS / path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found
