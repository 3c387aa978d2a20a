"""Arrow rows to record batches whose offsets are given.

    for batch in encode(rows, base_offset=100, compression=CompressionType.ZSTD):
        send(batch.data)                     # covers the offsets batch.base_offset to batch.next_offset - 1

The offsets of the rows may have gaps, as those of a filtered or compacted log have; `empty` covers a range that has no
row at all. The work on records is done by a small C module where it was built, else in Python, with the same bytes.
"""

from __future__ import annotations

from barnabas.streams.encode.batches import Encoded, backend, empty, encode

__all__ = ["Encoded", "backend", "empty", "encode"]
