"""Whether a streams driver could run on this machine: looked for before one is started, as the answer comes at once.

Only what is there is looked at. Java is the driver's to find: it needs it for some queries, and not for others.
"""

from __future__ import annotations

import importlib
import importlib.util

from barnabas.wire.text import SPARK_REMEDY

NEEDED = ("pyspark", "pyarrow")


def missing() -> str | None:
    """What is missing for a driver, in one line with the remedy."""
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
