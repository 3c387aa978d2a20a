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


def load(kind: str) -> None:
    """Load what workers of this kind need."""
    if kind == _OF_RECORDS:
        if WITHOUT_PANDAS in os.environ:
            import_arrow(numpy=True)
        for name in (kind, *_LOADED):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a worker would write to all shared memory, and so copy it


if __name__ == "__main__":
    load(sys.argv[1] if len(sys.argv) > 1 else _OF_RECORDS)
    manager()
