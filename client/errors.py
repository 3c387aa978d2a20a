"""A client's errors. The text of a `ClientError` is one line to show to the user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from barnabas.wire.errors import ErrorCode

T = TypeVar("T")


class ClientError(Exception):
    """An error to show to the user, in one line. `may_repeat`: a repetition is allowed and may succeed."""

    may_repeat = False


class LostError(ClientError):
    """There is no connection, or it has ended. The request had no effect, or has none when repeated."""

    may_repeat = True


class UnknownFateError(ClientError):
    """The connection ended after a non-repeatable request was sent: it may have been carried out."""


class RefusedError(ClientError):
    """A broker answered with an error code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.may_repeat = is_known(code) and ErrorCode(code).retriable


class NoLeaderError(ClientError):
    """A partition or group currently has no broker."""

    may_repeat = True


def is_known(code: int) -> bool:
    """Whether this is one of Kafka's error codes."""
    return code in set(ErrorCode)


def name_of(code: int) -> str:
    """Kafka's name for an error code."""
    return ErrorCode(code).name if is_known(code) else f"error {code}"


def only(answers: Sequence[T], what: str) -> T:
    """The answer to a request about a single thing. Raises ClientError if there is none."""
    if not answers:
        raise ClientError(f"{what}: the broker's answer does not have it")
    return answers[0]


def check(code: int, what: str, message: str | None = None) -> None:
    """Raises RefusedError for an error code, with its name and the action that failed."""
    if code:
        raise RefusedError(code, f"{what}: {name_of(code)}" + (f" ({message})" if message else ""))
