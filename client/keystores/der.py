"""The part of DER that certificates and key stores need: one element at a time, with its tag and content.

Source: X.690, chapter 8 and 10. Lengths of more than four bytes and tags of more than one are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

SEQUENCE, SET, OID, OCTETS = 0x30, 0x31, 0x06, 0x04


class DerError(ValueError):
    """The bytes are not DER, or end too early."""


class Element(NamedTuple):
    """One element. `whole` includes its tag and its length."""

    tag: int
    content: bytes
    whole: bytes


def elements(data: bytes) -> Iterator[Element]:
    """The consecutive elements in `data`. Raises DerError."""
    at = 0
    while at < len(data):
        if at + 2 > len(data) or data[at] & 0x1F == 0x1F:
            raise DerError("a tag that is not known")
        begin, length = at + 2, data[at + 1]
        if length & 0x80:
            width = length & 0x7F
            if not 0 < width <= 4 or begin + width > len(data):
                raise DerError("a length that is not known")
            length = int.from_bytes(data[begin : begin + width], "big")
            begin += width
        if begin + length > len(data):
            raise DerError("an element that ends too early")
        yield Element(data[at], data[begin : begin + length], data[at : begin + length])
        at = begin + length


def only(data: bytes, tag: int) -> Element:
    """The first element, which must have this tag. Raises DerError."""
    element = next(elements(data), None)
    if element is None or element.tag != tag:
        raise DerError(f"an element that is not of tag {tag:#x}")
    return element


def oid(content: bytes) -> str:
    """An object identifier in dotted form. Raises DerError."""
    numbers: list[int] = []
    value = 0
    for byte in content:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    if not numbers or content[-1] & 0x80:
        raise DerError("an object identifier that is cut short")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
