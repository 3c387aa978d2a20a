"""A streams driver that kills itself at a given place: `driver_that_dies.py PLACE NUMBER [option ...]`.

Places are after each write of a batch: its rows are written (`rows`), the number of the batch is written (`number`),
the transaction is committed but Spark does not know it (`committed`). NUMBER counts the batches from 1.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from barnabas.client.transactional import TransactionalProducer
from barnabas.streams.query.__main__ import main

place, number = sys.argv[1], int(sys.argv[2])
_met = {"rows": 0, "number": 0, "committed": 0}
_commit_offsets, _end = TransactionalProducer.commit_offsets, TransactionalProducer.end


def die_at(here: str) -> None:
    _met[here] += 1
    if here == place and _met[here] == number:
        os.kill(os.getpid(), signal.SIGKILL)


def commit_offsets(self: TransactionalProducer, *args: Any) -> None:
    die_at("rows")
    _commit_offsets(self, *args)


def end(self: TransactionalProducer, *, commit: bool) -> None:
    die_at("number")
    _end(self, commit=commit)
    die_at("committed")


TransactionalProducer.commit_offsets = commit_offsets  # type: ignore[assignment,method-assign]
TransactionalProducer.end = end  # type: ignore[method-assign]

if __name__ == "__main__":
    status = main(sys.argv[3:])
    sys.stdout.flush()
    os._exit(status)
