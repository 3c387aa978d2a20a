"""A statement's tokens, from left to right; an error tells its place."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.wire.streams.durations import milliseconds
from barnabas.wire.streams.tokens import SyntaxProblem, Token, closing, problem, split_at, tokens


class Cursor:
    """The tokens of one text, where it is in them, and the clauses that have been there."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokens(text)
        self.at = 0
        self.seen: dict[str, Token] = {}

    def peek(self, ahead: int = 0) -> Token:
        """A token from here; behind the last one there is an empty one."""
        at = self.at + ahead
        return self.tokens[at] if at < len(self.tokens) else Token("end", "", len(self.text), len(self.text))

    def take(self) -> Token:
        """The next token."""
        token = self.peek()
        self.at += 1
        return token

    def wrong(self, what: str, token: Token | None = None) -> SyntaxProblem:
        """An error about a token, by default the next one."""
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

    def once(self, token: Token) -> None:
        """Note a clause, which may stand there once."""
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
        """A duration, which may stand in quotes."""
        if len(part) != 1:
            raise self.wrong("expected a duration, such as 10s", part[0] if part else opening)
        try:
            return milliseconds(part[0].text.strip("'\""))
        except ValueError as error:
            raise self.wrong(str(error), part[0]) from None
