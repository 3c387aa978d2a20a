"""Reads the values in an HTTP request: numbers within bounds, and strings. A refusal names the wrong value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from barnabas.broker.http.messages import Refused, Request

T = TypeVar("T")
MOST_TEXT = 32_767


def number(query: Mapping[str, str], name: str, default: int, least: int = 0, most: int = 2**63 - 1) -> int:
    """An integer within bounds. Raises Refused."""
    text = query.get(name, "")
    if not text:
        return default
    try:
        value = int(text) if len(text) <= 20 else None
    except ValueError:
        value = None
    if value is None or not least <= value <= most:
        raise Refused(400, f"{name} is a whole number from {least} to {most}")
    return value


def text(query: Mapping[str, str], name: str) -> str:
    """A string that must be present. Raises Refused."""
    value = query.get(name)
    if value is None or len(value) > MOST_TEXT:
        raise Refused(400, f"{name} is missing" if value is None else f"{name} is too long")
    return value


def body(request: Request, kind: type[T]) -> T:
    """A request's body, from JSON. Raises Refused with the error in it."""
    return decoded(request.body, kind)


def decoded(data: bytes | msgspec.Raw, kind: type[T]) -> T:
    """A body or a part of one, from JSON. Raises Refused with the error in it."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise Refused(400, f"the body: {error}"[:500]) from None
    except RecursionError:
        raise Refused(400, "the body is nested too deeply") from None
