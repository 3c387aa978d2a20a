"""Whether a streams driver can run on this machine: checked before a start, so that clients get an answer at once.

Only the installed packages are checked. Only some queries need Java, so the driver looks for Java itself.
"""

from __future__ import annotations

import importlib
import importlib.util

from barnabas.wire.text import SPARK_REMEDY

NEEDED = ("pyspark", "pyarrow")


def missing() -> str | None:
    """The package that a driver needs and that is missing, in one line with the remedy; None if nothing is missing."""
    importlib.invalidate_caches()  # it may have been installed since the broker's start
    absent = [name for name in NEEDED if not _is_installed(name)]
    if absent:
        verb = "is" if len(absent) == 1 else "are"
        return f"Query topics need Spark, and {' and '.join(absent)} {verb} not installed: {SPARK_REMEDY}"
    return None


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
