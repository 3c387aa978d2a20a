"""Whether a streams driver could run on this machine: looked for before one is started, as the answer comes at once.

Only what is there is looked at. Whether it is new enough, the driver itself finds out, and says so before it ends.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil

from barnabas.wire.text import SPARK_REMEDY

NEEDED = ("pyspark", "pyarrow")


def missing() -> str | None:
    """What is missing for a driver, in one line with the remedy."""
    importlib.invalidate_caches()  # it may have been installed since the broker's start
    absent = [name for name in NEEDED if not _is_installed(name)]
    if absent:
        verb = "is" if len(absent) == 1 else "are"
        return f"Query topics need Spark, and {' and '.join(absent)} {verb} not installed: {SPARK_REMEDY}"
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None or not os.access(java, os.X_OK):
        where = f"JAVA_HOME={home} has none" if home else "there is none on the PATH"
        return (
            f"Spark needs Java 17 or newer, and {where}: install it (Debian: apt install openjdk-17-jre-headless) or "
            "set JAVA_HOME, and start the broker again"
        )
    return None


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
