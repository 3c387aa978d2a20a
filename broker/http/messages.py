"""A request, its answer, and the visitor who asks. Plain values."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

import msgspec

from barnabas.broker.security.principals import Principal

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Visitor:
    """The sender of a request. A change has to send the token `csrf` in the header `x-csrf-token`."""

    principal: Principal
    host: str
    csrf: str


@dataclass(frozen=True, slots=True)
class Request:
    """A complete request. Header names are in lower case. If a query parameter repeats, its first value counts."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    who: Visitor


@dataclass(frozen=True, slots=True)
class Response:
    """An answer. If the body is a generator, its parts are sent as they arrive, until the client leaves."""

    status: int = 200
    body: bytes | AsyncGenerator[bytes, None] = b""
    content_type: str = JSON
    headers: Sequence[tuple[str, str]] = field(default=())


def json_answer(value: object, status: int = 200, headers: Sequence[tuple[str, str]] = ()) -> Response:
    """An answer with a value as JSON."""
    return Response(status, msgspec.json.encode(value), JSON, headers)


def refusal(status: int, why: str, headers: Sequence[tuple[str, str]] = ()) -> Response:
    """An answer that says why a request is refused."""
    return json_answer({"error": why}, status, headers)


class Refused(Exception):
    """The request is refused; `response` says why."""

    def __init__(self, status: HTTPStatus | int, why: str, headers: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(why)
        self.response = refusal(int(status), why, headers)
