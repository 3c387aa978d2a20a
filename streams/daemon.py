"""The process that Spark's Python workers are forked from: what they all need is loaded here once and shared.

Spark starts it instead of its own daemon (`spark.python.daemon.module`), once for each kind of worker, and lets it
fork. Only the workers that process records load the libraries for that; the other kinds do a little work when a query
starts.

Invariant: of the libraries loaded here only the allocator and the linear algebra have threads, and both restart them in
a fork.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys

from pyspark.daemon import manager

from barnabas.streams.quick_arrow import WITHOUT_PANDAS, import_arrow

_OF_RECORDS = "pyspark.worker"
_LOADED = ("pyarrow.compute", "pyarrow.acero", "barnabas.streams.windows.source", "barnabas.streams.windows.sink")


def load_for_records() -> None:
    """Load what workers for records need."""
    if WITHOUT_PANDAS in os.environ:
        import_arrow(numpy=True)
    for name in (_OF_RECORDS, *_LOADED):
        importlib.import_module(name)


def keep_shared() -> None:
    """Exclude all objects from collections: one in a worker would write to all shared memory, and so copy it."""
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    if sys.argv[1:] in ([], [_OF_RECORDS]):
        load_for_records()
    keep_shared()
    manager()
