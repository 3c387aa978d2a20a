"""Arrow rows to record batches with offsets that the caller gives.

    for batch in encode(rows, base_offset=100, compression=CompressionType.ZSTD):
        send(batch.data)                     # covers the offsets batch.base_offset to batch.next_offset - 1

The offsets of the rows may have gaps, like those of a filtered or compacted log; `empty` covers a range without any
row. A small C module does the work on records if it was built; otherwise Python does, with the same bytes.
"""

from __future__ import annotations

from barnabas.streams.encode.batches import Encoded, backend, empty, encode

__all__ = ["Encoded", "backend", "empty", "encode"]
