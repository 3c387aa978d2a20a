"""Shows an uncaught error of the `wal` source as one line, in place of Spark's traces.

The source runs in Spark's processes, so its errors come back as Spark's, with the traces of two Pythons around the line
that says what to do. A program that catches them gets them as Spark raises them. Other errors are not touched.
"""

from __future__ import annotations

import os
import re
import sys
from types import TracebackType

from barnabas.streams.wal import WalError
from barnabas.wire.text import visible

_RAISED = re.compile(rf"^{re.escape(WalError.__module__)}\.\w+: (.+)", re.MULTILINE)


def in_one_line(error: BaseException) -> str | None:
    """The source's message about an error; None if the error is not the source's own."""
    if isinstance(error, WalError):
        return str(error)
    if type(error).__module__.startswith("pyspark.") and (found := _RAISED.findall(str(error))):
        return str(found[-1])
    return None


def _hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    line = in_one_line(error)
    if line is None:
        _before(kind, error, trace)
    else:
        print(visible(f"{os.path.basename(sys.argv[0]) or 'python'}: {line}"), file=sys.stderr)


_before = sys.excepthook


def tell_in_one_line() -> None:
    """From now on, show uncaught errors in one line."""
    global _before
    if sys.excepthook is not _hook:
        _before, sys.excepthook = sys.excepthook, _hook
