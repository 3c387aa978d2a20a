"""A coordinator's log without the records that later ones of the same keys have made void, piece by piece.

A coordinator wants the last state of each key. Most records of a busy group are void by the next commit, and to decode
them takes longest of all at a start. So each piece of the log is cleaned in memory first, as compaction does it.
Batches of transactions and markers are left as they are: what they say depends on more than their keys.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from barnabas.wire import batch, compact
from barnabas.wire.aliases import BytesLike

# Keys of one piece; what comes after that many is decoded, void or not.
_MOST_KEYS = 1 << 16
_LEAST, _MOST = -(2**63), 2**63 - 2
_NO_LASTS = b""


def without_superseded(data: BytesLike) -> Iterator[tuple[BytesLike, int]]:
    """The batches that count, in their order, and up to which offset they speak, -1 where they say it themselves.

    Damaged ones, and all behind the first of them, come as they are.
    """
    if not compact.NATIVE:  # the twin in Python takes longer than it saves
        yield data, -1
        return
    keys = compact.KeyMap(2 * _MOST_KEYS, _MOST_KEYS, secrets.token_bytes(16))
    latest = _index(keys, data)
    at = low = 0
    while at < len(data):
        out, at, low, status, *_ = keys.filter(data, at, low, _MOST, latest, _LEAST, _MOST, _NO_LASTS)
        yield out, low
        if status != compact.SPECIAL:
            break
        header = batch.parse_header(data, at)
        size = header.size_in_bytes
        yield memoryview(data)[at : at + size], -1
        at, low = at + size, header.last_offset + 1
    if at < len(data):
        yield memoryview(data)[at:], -1


def _index(keys: compact.KeyMap, data: BytesLike) -> int:
    """Note the keys; the last offset up to which the map speaks."""
    at = low = 0
    latest = -1
    while True:
        at, low, seen, status = keys.index(data, at, low, _MOST, 0, _MOST)
        latest = max(latest, seen)
        if status != compact.SPECIAL:
            return latest
        header = batch.parse_header(data, at)
        at, low, latest = at + header.size_in_bytes, header.last_offset + 1, header.last_offset
