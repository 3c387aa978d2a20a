"""A coordinator's log, piece by piece, without records that later ones with the same key have replaced.

A coordinator needs the last state of each key. Most records of a busy group are replaced by its next commit, and
decoding them takes most of the start's time. So each piece of the log is first compacted in memory. Batches of
transactions and markers are left unchanged, because their meaning depends on more than their keys.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from barnabas.wire import batch, compact
from barnabas.wire.aliases import BytesLike

# The most keys of one piece; records after that many are all decoded.
_MOST_KEYS = 1 << 16
_LEAST, _MOST = -(2**63), 2**63 - 2
_NO_LASTS = b""


def without_superseded(data: BytesLike) -> Iterator[tuple[BytesLike, int]]:
    """The remaining batches in order, each with the offset after those it covers; -1 if its header says that.

    Damaged batches, and everything after the first of them, are passed on unchanged.
    """
    if not compact.NATIVE:  # the Python version takes longer than it saves
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
    """Index the keys, and return the last offset that the map covers."""
    at = low = 0
    latest = -1
    while True:
        at, low, seen, status = keys.index(data, at, low, _MOST, 0, _MOST)
        latest = max(latest, seen)
        if status != compact.SPECIAL:
            return latest
        header = batch.parse_header(data, at)
        at, low, latest = at + header.size_in_bytes, header.last_offset + 1, header.last_offset
