"""The words of a statement, with their places: what stands in quotes or parentheses is never taken for a clause.

Invariant: the kept text of a token is the statement's own, so a text made of tokens means what it meant before, without
its comments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

#: What a token is. Topics and columns may be words or stand in backquotes.
WORD, QUOTED, STRING, NUMBER, SYMBOL = "word", "quoted", "string", "number", "symbol"
_TWO = frozenset({"<=", ">=", "<>", "!=", "==", "||", "->", "=>", "::", "<<", ">>", "&&"})
_SHOWN = 30


class SyntaxProblem(ValueError):
    """Why a statement is none, in one line, with the place."""


class Token(NamedTuple):
    """A token, and where it stands."""

    kind: str
    text: str
    start: int
    end: int

    def says(self, *words: str) -> bool:
        """Whether it is one of these words or symbols, which are in upper case."""
        return self.kind in (WORD, SYMBOL) and self.text.upper() in words

    @property
    def name(self) -> str:
        """The name that a word or a text in backquotes is."""
        return self.text[1:-1].replace("``", "`") if self.kind == QUOTED else self.text


def problem(text: str, at: int, what: str) -> SyntaxProblem:
    """An error about a place."""
    line = text.count("\n", 0, at) + 1
    column = at - (text.rfind("\n", 0, at) + 1) + 1
    rest = text[at:].split("\n")[0].rstrip()
    near = f'"{rest[:_SHOWN]}{"…" if len(rest) > _SHOWN else ""}"' if rest else "the end"
    return SyntaxProblem(f"line {line}, column {column}, at {near}: {what}")


def tokens(text: str) -> list[Token]:
    """All tokens. Raises SyntaxProblem for quotes that do not end, and for comments that may hold hints."""
    return list(_tokens(text))


def _tokens(text: str) -> Iterator[Token]:
    at = 0
    while at < len(text):
        char = text[at]
        if char.isspace():
            at += 1
        elif text.startswith("--", at):
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        elif text.startswith("/*", at):
            raise problem(text, at, "comments like /* this */ and hints are not possible here")
        elif char in "'\"`":
            end = _end_of_quotes(text, at)
            yield Token(QUOTED if char == "`" else STRING, text[at:end], at, end)
            at = end
        else:
            end, kind = _end_of_word(text, at)
            yield Token(kind, text[at:end], at, end)
            at = end


def _end_of_quotes(text: str, start: int) -> int:
    quote, at = text[start], start + 1
    while at < len(text):
        if text[at] == "\\" and quote != "`":
            at += 2
        elif text[at] == quote:
            if quote != "`" or not text.startswith("``", at):
                return at + 1
            at += 2
        else:
            at += 1
    raise problem(text, start, f"the quote {quote} is not closed")


def _end_of_word(text: str, start: int) -> tuple[int, str]:
    at = start
    if text[at].isdigit():
        while at < len(text) and (text[at].isalnum() or text[at] in "._"):
            at += 1
            if text[at - 1] in "eE" and at < len(text) - 1 and text[at] in "+-" and text[at + 1].isdigit():
                at += 1
        return at, NUMBER
    if text[at].isalpha() or text[at] == "_":
        while at < len(text) and (text[at].isalnum() or text[at] in "_$"):
            at += 1
        return at, WORD
    return start + (2 if text[start : start + 2] in _TWO else 1), SYMBOL


def joined(found: Sequence[Token]) -> str:
    """The tokens as a text. What stood together stays together: a space between may mean something else."""
    parts: list[str] = []
    for number, token in enumerate(found):
        if number and found[number - 1].end != token.start:
            parts.append(" ")
        parts.append(token.text)
    return "".join(parts)


def closing(text: str, found: Sequence[Token], opening: int) -> int:
    """The number of the token that closes the parenthesis at `opening`. Raises SyntaxProblem if there is none."""
    depth = 0
    for number in range(opening, len(found)):
        if found[number].says("(", "["):
            depth += 1
        elif found[number].says(")", "]"):
            depth -= 1
            if not depth:
                return number
    raise problem(text, found[opening].start, "the parenthesis is not closed")


def split_at(found: Sequence[Token], *symbols: str) -> list[list[Token]]:
    """The tokens between symbols that stand in no parentheses."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in found:
        depth += token.says("(", "[") - token.says(")", "]")
        if not depth and token.says(*symbols):
            parts.append([])
        else:
            parts[-1].append(token)
    return parts
