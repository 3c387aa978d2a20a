"""Spark's Python workers import the PySpark that is installed, rather than the one in Spark's zip file.

Spark puts `python/lib/pyspark.zip` first on their path. Modules in a zip file are compiled in every process that
imports them: half a second, and up to 20 MB of memory. Python runs this module when it starts, as this folder is on the
path of the workers (`streams/query/session.py`).

Invariant: it is the same PySpark, as the zip file is in its folder.
"""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress
from importlib.machinery import PathFinder


def put_zips_last() -> None:
    """Move PySpark's own zip files to the end of the path."""
    found = PathFinder.find_spec("pyspark", [each for each in sys.path if not each.endswith(".zip")])
    for place in (found and found.submodule_search_locations) or ():
        zips = [each for each in sys.path if each.startswith(os.path.join(place, "python", "lib", ""))]
        sys.path[:] = [*(each for each in sys.path if each not in zips), *zips]


put_zips_last()
# This module may hide another one of its name.
sys.path[:] = [each for each in sys.path if os.path.abspath(each) != os.path.dirname(os.path.abspath(__file__))]
del sys.modules["sitecustomize"]
with suppress(ImportError):
    importlib.import_module("sitecustomize")
