"""The interface of both backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Written(NamedTuple):
    """The encoded records of one batch, uncompressed and without its header."""

    records: bytes
    end: int  # the row after the last encoded one
    max_timestamp: int  # ms since 1970; -1 if no record has one


#: Called with a row, the base offset of its batch, and the most bytes that the records may have: as many of the rows as
#: fit, at least one. A batch also ends where a delta to its base offset or timestamp would not fit a record.
Writer = Callable[[int, int, int], Written]
