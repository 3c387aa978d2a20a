"""The fenced blocks of the project's pages, in Markdown as GitHub and MyST read it.

The first word after a fence is the block's language. Further words are attributes for the tests: in a `text numbers`
block, each number stands for any number.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from compat_tests.tools import ROOT

#: The languages of blocks: `text` is output, a picture or a grammar.
LANGUAGES = ("sh", "sql", "python", "java", "js", "go", "yaml", "properties", "json", "text")
#: Directives of MyST that hold code: a plain fence shows the same, on GitHub too.
_CODE_DIRECTIVE = re.compile(r"\{(code|code-block|sourcecode|code-cell|prompt|parsed-literal)\}")
_FENCE = re.compile(r"^(?P<indent>\s*)(?P<fence>`{3,}|~{3,})(?P<info>[^`]*)$")
_HEADING = re.compile(r"^(?P<level>#{1,6}) +(?P<title>.+?)\s*$")
_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.S)


@dataclass(frozen=True)
class Block:
    """A fenced block: `section` is the heading of the second level above it, `heading` the nearest heading."""

    page: str
    line: int
    section: str
    heading: str
    language: str
    attributes: tuple[str, ...]
    text: str
    adjoins: bool  # only empty lines are between the previous block and this one

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Page:
    """A page: its blocks, its headings of the second level, and the `code` within its sentences."""

    name: str
    blocks: tuple[Block, ...]
    sections: tuple[str, ...]
    spans: tuple[tuple[int, str], ...]


@cache
def pages() -> dict[str, Page]:
    """Every page, by its path in the project."""
    files = [ROOT / name for name in ("README.md", "CONTRIBUTING.md")] + sorted((ROOT / "docs").rglob("*.md"))
    return {
        name: read(name, file.read_text())
        for file in files
        if file.exists() and not file.is_symlink()
        for name in [_name(file)]
    }


def blocks() -> list[Block]:
    """The blocks of all pages."""
    return [block for page in pages().values() for block in page.blocks]


def _name(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def read(name: str, text: str) -> Page:
    """A page of this text."""
    found: list[Block] = []
    section = heading = ""
    sections: list[str] = []
    prose: list[str] = []
    adjoins = False
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if match := _FENCE.match(line):
            words = match["info"].split()
            language = words[0] if words else ""
            inside = textwrap.dedent("".join(_until(match["fence"], lines)))
            if not language.startswith("{") or _CODE_DIRECTIVE.match(language):
                found.append(Block(name, number, section, heading, language, tuple(words[1:]), inside, adjoins))
                adjoins = True
            prose += [""] * (inside.count("\n") + 2)
            continue
        adjoins = adjoins and not line.strip()
        prose.append(line)
        if match := _HEADING.match(line):
            heading = match["title"]
            if len(match["level"]) == 2:
                section = heading
                sections.append(section)
    return Page(name, tuple(found), tuple(sections), tuple(_spans(prose)))


def _until(fence: str, lines: Iterator[tuple[int, str]]) -> Iterator[str]:
    """The lines up to a fence that closes this one."""
    for _, line in lines:
        if line.strip().startswith(fence) and not line.strip().strip(fence[0]):
            return
        yield line + "\n"


def _spans(prose: list[str]) -> Iterator[tuple[int, str]]:
    """The texts in `code`, with their lines; a span may continue on the next line of its paragraph."""
    text = "\n".join(prose)
    for paragraph in re.finditer(r"(?:.+\n?)+", text):
        for match in _SPAN.finditer(paragraph[0]):
            yield text.count("\n", 0, paragraph.start() + match.start()) + 1, " ".join(match[2].split())
