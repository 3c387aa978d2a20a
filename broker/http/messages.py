"""A request, its answer, and who asks. Plain values."""

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
    """Who asks. `csrf` is the token that a change has to send in its header `x-csrf-token`."""

    principal: Principal
    host: str
    csrf: str


@dataclass(frozen=True, slots=True)
class Request:
    """A request whose body has come. Names of headers are in small letters; of a query, the first value counts."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    who: Visitor


@dataclass(frozen=True, slots=True)
class Response:
    """An answer. A body that is a generator is sent as it comes, for as long as the client listens."""

    status: int = 200
    body: bytes | AsyncGenerator[bytes, None] = b""
    content_type: str = JSON
    headers: Sequence[tuple[str, str]] = field(default=())


def json_answer(value: object, status: int = 200, headers: Sequence[tuple[str, str]] = ()) -> Response:
    """An answer that is a value in JSON."""
    return Response(status, msgspec.json.encode(value), JSON, headers)


def refusal(status: int, why: str, headers: Sequence[tuple[str, str]] = ()) -> Response:
    """An answer that says why there is none."""
    return json_answer({"error": why}, status, headers)


class Refused(Exception):
    """A request that is not answered as it asks; `response` says why."""

    def __init__(self, status: HTTPStatus | int, why: str, headers: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(why)
        self.response = refusal(int(status), why, headers)
