"""Record batches to Arrow.

`open_batch` checks, trims and decompresses one batch of a buffer; `decode` makes Arrow arrays of many. The work on
records is done by a small C module where it was built, else in Python, with the same results.
"""

from __future__ import annotations

from barnabas.streams.decode.arrow import backend, decode
from barnabas.streams.decode.batches import Aborted, AbortedSet, Records, open_batch
from barnabas.streams.decode.types import SCHEMA

__all__ = ["SCHEMA", "Aborted", "AbortedSet", "Records", "backend", "decode", "open_batch"]
