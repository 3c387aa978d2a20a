"""Reads a statement's tokens from left to right. Errors have a position."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.wire.streams.durations import milliseconds
from barnabas.wire.streams.tokens import (
    NUMBER,
    QUOTED,
    STRING,
    WORD,
    SyntaxProblem,
    Token,
    closing,
    problem,
    split_at,
    string_value,
    tokens,
)


class Cursor:
    """The tokens of one text, the current position, and the clauses already seen."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokens(text)
        self.at = 0
        self.seen: dict[str, Token] = {}

    def peek(self, ahead: int = 0) -> Token:
        """The current token, or a later one; an empty one after the end."""
        at = self.at + ahead
        return self.tokens[at] if at < len(self.tokens) else Token("end", "", len(self.text), len(self.text))

    def take(self) -> Token:
        """The next token."""
        token = self.peek()
        self.at += 1
        return token

    def wrong(self, what: str, token: Token | None = None) -> SyntaxProblem:
        """An error about a token; by default, the next one."""
        return problem(self.text, (token or self.peek()).start, what)

    def expect(self, *words: str) -> Token:
        """The next token, which must be one of these."""
        if not self.peek().says(*words):
            raise self.wrong(f"expected {' or '.join(words)}")
        return self.take()

    def inside(self) -> list[Token]:
        """The tokens in the parentheses that begin here."""
        if not self.peek().says("("):
            raise self.wrong("expected (")
        end = closing(self.text, self.tokens, self.at)
        found = self.tokens[self.at + 1 : end]
        self.at = end + 1
        return found

    def takes(self, *words: str) -> bool:
        """Take these words if they come next, and return whether they did."""
        if not all(self.peek(number).says(word) for number, word in enumerate(words)):
            return False
        self.at += len(words)
        return True

    def end(self) -> None:
        """Raises SyntaxProblem if anything follows."""
        if self.at < len(self.tokens):
            raise self.wrong("expected the end")

    def rest(self) -> str:
        """The text from here on."""
        return self.text[self.peek().start :]

    def topic(self, what: str = "topic") -> str:
        """A topic's name: in backquotes, or bare with dots and dashes, which are tokens of their own."""
        token = self.peek()
        if token.kind not in (WORD, QUOTED, NUMBER):
            raise self.wrong(f"expected the name of a {what}")
        self.take()
        if token.kind == QUOTED:
            return token.name
        end = token.end
        while self.peek().start == end and (self.peek().kind in (WORD, NUMBER) or self.peek().says(".", "-")):
            end = self.take().end
        return self.text[token.start : end]

    def options(self) -> dict[str, str]:
        """('key' = 'value', ...)."""
        opening, found = self.peek(), {}
        for part in split_at(self.inside(), ","):
            if len(part) != 3 or not part[1].says("=") or {part[0].kind, part[2].kind} != {STRING}:
                raise self.wrong("expected 'key' = 'value', ... in parentheses", part[0] if part else opening)
            found[string_value(part[0])] = string_value(part[2])
        return found

    def once(self, token: Token) -> None:
        """Note a clause, which may occur only once."""
        word = token.text.upper()
        if word in self.seen:
            raise self.wrong(f"{word} is given twice", token)
        self.seen[word] = token

    def durations(self, clause: Token, least: int, most: int) -> list[int]:
        """The durations in the parentheses of a clause."""
        opening = self.peek()
        parts = split_at(self.inside(), ",")
        if not least <= len(parts) <= most:
            raise self.wrong(f"{clause.text.upper()} takes {least} or {most} durations", opening)
        return [self.duration(part, opening) for part in parts]

    def duration(self, part: Sequence[Token], opening: Token) -> int:
        """A duration, which may be in quotes."""
        if len(part) != 1:
            raise self.wrong("expected a duration, such as 10s", part[0] if part else opening)
        try:
            return milliseconds(string_value(part[0]) if part[0].kind == STRING else part[0].text)
        except ValueError as error:
            raise self.wrong(str(error), part[0]) from None
