"""What goes wrong for a client. The text of a `ClientError` is a line to show to the user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from barnabas.wire.errors import ErrorCode

T = TypeVar("T")


class ClientError(Exception):
    """What the user is told, in one line. `may_repeat`: the same may be asked again, and may then go well."""

    may_repeat = False


class LostError(ClientError):
    """There is no connection, or it has ended; what was asked on it did nothing, or does nothing when done twice."""

    may_repeat = True


class UnknownFateError(ClientError):
    """The connection has ended after a request that must not be done twice was sent: it may have been carried out."""


class RefusedError(ClientError):
    """A broker has answered with an error code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.may_repeat = is_known(code) and ErrorCode(code).retriable


class NoLeaderError(ClientError):
    """A partition or group has no broker at the moment."""

    may_repeat = True


def is_known(code: int) -> bool:
    """Whether it is one of Kafka's error codes."""
    return code in set(ErrorCode)


def name_of(code: int) -> str:
    """An error code as Kafka calls it."""
    return ErrorCode(code).name if is_known(code) else f"error {code}"


def only(answers: Sequence[T], what: str) -> T:
    """The answer to what was asked alone. Raises ClientError if there is none."""
    if not answers:
        raise ClientError(f"{what}: the broker's answer does not have it")
    return answers[0]


def check(code: int, what: str, message: str | None = None) -> None:
    """Raises RefusedError for an error code, with its name and what was being done."""
    if code:
        raise RefusedError(code, f"{what}: {name_of(code)}" + (f" ({message})" if message else ""))
