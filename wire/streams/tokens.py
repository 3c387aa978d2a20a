"""The words of a statement, with their positions. Text in quotes or parentheses is never taken for a clause.

The rules are those of Spark SQL, and the only ones of the project. In quotes, a backslash escapes and a doubled quote
is one quote; r'...' is a text without escapes; a comment goes from -- to the end of the line.

Invariant: a token keeps the statement's own text, so a text made of tokens means the same as before, without its
comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

#: Kinds of tokens. Topics and columns may be plain words or in backquotes.
WORD, QUOTED, STRING, NUMBER, SYMBOL = "word", "quoted", "string", "number", "symbol"
#: Not tokens: comments to the end of a line, and comments that may hold hints.
COMMENT, BRACKETED = "comment", "bracketed"
_TWO = frozenset({"<=", ">=", "<>", "!=", "==", "||", "->", "=>", "::", "<<", ">>", "&&"})
_SHOWN = 30
_COMMENT = re.compile(r"--(?:\\\n|[^\r\n])*(?:\r\n|\r|\n)?")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([01][0-7]{2})|([%_])|(.))|''|\"\"", re.DOTALL)
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}


class SyntaxProblem(ValueError):
    """Why a statement is invalid, in one line, with the position."""


class Token(NamedTuple):
    """A token, and its position."""

    kind: str
    text: str
    start: int
    end: int

    def says(self, *words: str) -> bool:
        """Whether it is one of these words or symbols; they are given in upper case."""
        return self.kind in (WORD, SYMBOL) and self.text.upper() in words

    @property
    def name(self) -> str:
        """The name that a word or a backquoted text stands for."""
        return self.text[1:-1].replace("``", "`") if self.kind == QUOTED else self.text


def problem(text: str, at: int, what: str) -> SyntaxProblem:
    """An error about a position."""
    line = text.count("\n", 0, at) + 1
    column = at - (text.rfind("\n", 0, at) + 1) + 1
    rest = text[at:].split("\n")[0].rstrip()
    near = f'"{rest[:_SHOWN]}{"…" if len(rest) > _SHOWN else ""}"' if rest else "the end"
    return SyntaxProblem(f"line {line}, column {column}, at {near}: {what}")


def tokens(text: str) -> list[Token]:
    """All tokens. Raises SyntaxProblem for unclosed quotes, and for comments that may hold hints."""
    found = []
    for token in lexed(text):
        if token.kind == BRACKETED:
            raise problem(text, token.start, "comments like /* this */ and hints are not possible here")
        if token.kind != COMMENT:
            found.append(token)
    return found


def lexed(text: str) -> Iterator[Token]:
    """All tokens, and all comments. Raises SyntaxProblem for unclosed quotes."""
    at = 0
    while at < len(text):
        char = text[at]
        if char.isspace():
            at += 1
            continue
        comment = _COMMENT.match(text, at)
        if comment is not None:
            end, kind = comment.end(), COMMENT
        elif text.startswith("/*", at):
            end, kind = _end_of_comment(text, at), BRACKETED
        elif char in "'\"`":
            end, kind = _end_of_quotes(text, at), QUOTED if char == "`" else STRING
        elif char in "rR" and text[at + 1 : at + 2] in ("'", '"'):
            end, kind = _end_of_raw(text, at + 1), STRING
        else:
            end, kind = _end_of_word(text, at)
        yield Token(kind, text[at:end], at, end)
        at = end


def _end_of_comment(text: str, start: int) -> int:
    """The end of a comment. Comments may be nested; an unclosed one goes to the end."""
    depth, at = 0, start
    for found in re.finditer(r"/\*|\*/", text[start:]):
        depth += 1 if found[0] == "/*" else -1
        at = start + found.end()
        if not depth:
            return at
    return len(text)


def _end_of_raw(text: str, quote: int) -> int:
    end = text.find(text[quote], quote + 1)
    if end < 0:
        raise problem(text, quote, f"the quote {text[quote]} is not closed")
    return end + 1


def _end_of_quotes(text: str, start: int) -> int:
    quote, at = text[start], start + 1
    while at < len(text):
        if text[at] == "\\" and quote != "`":
            at += 2
        elif text[at] != quote:
            at += 1
        elif text.startswith(quote, at + 1):
            at += 2
        else:
            return at + 1
    why = f"the quote {quote} is not closed"
    if quote != "`" and text.endswith(f"\\{quote}"):
        why += f": a backslash is written as {quote}\\\\{quote}"
    raise problem(text, start, why)


def string_value(token: Token) -> str:
    """The text that a STRING stands for."""
    if token.text[0] in "rR":
        return token.text[2:-1]
    quote = token.text[0]

    def meant(found: re.Match[str]) -> str:
        short, long, octal, like, plain = found.groups()
        if short or long:
            return _character(int(short or long, 16))
        if octal:
            return chr(int(octal, 8))
        if like:
            return found[0]  # LIKE interprets it
        if plain:
            return _ESCAPED.get(plain, plain)
        return quote if found[0][0] == quote else found[0]

    return _without_halves(_ESCAPE.sub(meant, token.text[1:-1]))


def _character(code: int) -> str:
    return chr(code) if code <= 0x10FFFF else "?"


def _without_halves(text: str) -> str:
    """Two halves of a character that were escaped separately become that character; a single half becomes `?`."""
    joined = re.sub("[\ud800-\udbff][\udc00-\udfff]", lambda pair: _whole(pair[0]), text)
    return re.sub("[\ud800-\udfff]", "?", joined)


def _whole(pair: str) -> str:
    return pair.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


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
    """The tokens as a text. Adjacent tokens stay adjacent: a space between them may change the meaning."""
    parts: list[str] = []
    for number, token in enumerate(found):
        if number and found[number - 1].end != token.start:
            parts.append(" ")
        parts.append(token.text)
    return "".join(parts)


def closing(text: str, found: Sequence[Token], opening: int) -> int:
    """The index of the token that closes the parenthesis at `opening`. Raises SyntaxProblem if there is none."""
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
    """The tokens between these symbols, as far as they are outside parentheses."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in found:
        depth += token.says("(", "[") - token.says(")", "]")
        if not depth and token.says(*symbols):
            parts.append([])
        else:
            parts[-1].append(token)
    return parts
