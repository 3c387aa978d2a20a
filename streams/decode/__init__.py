"""Record batches to Arrow.

`open_batch` checks, trims and decompresses one batch of a buffer; `decode` turns many batches into Arrow arrays. A
small C module does the work on records if it was built; otherwise Python does, with the same results.
"""

from __future__ import annotations

from barnabas.streams.decode.arrow import backend, decode
from barnabas.streams.decode.batches import Aborted, AbortedSet, Records, open_batch
from barnabas.streams.decode.types import SCHEMA

__all__ = ["SCHEMA", "Aborted", "AbortedSet", "Records", "backend", "decode", "open_batch"]
