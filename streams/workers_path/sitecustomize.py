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


def leave_work_to_a_fork() -> None:
    """Have a fork of the driver's template do this process's work, and wait until it has ended (`streams/template`).

    Returns if there is no template, or if it cannot do this.
    """
    place = os.environ.pop("BARNABAS_TEMPLATE", None)  # it is not for processes that this one starts
    if place is None or sys.orig_argv[1:2] != ["-m"] or "PYTHON_WORKER_FACTORY_SECRET" not in os.environ:
        return  # Spark's JVM has not started it
    if os.environ.get("PYTHONHASHSEED") != "0":
        return  # the hashes of a fork are those of the template
    import json
    import socket

    asked = json.dumps({
        "python": [sys.executable, sys.prefix, sys.version],
        "words": sys.orig_argv[2:],
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "path": sys.path,
    }).encode()  # fmt: skip
    with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.connect(place)
        socket.send_fds(connection, [len(asked).to_bytes(4, "big")], [0, 1, 2])
        connection.sendall(asked)
        if connection.recv(1):
            _wait(connection.fileno())


def _wait(connection: int) -> None:
    """Wait until the other end is closed, in a small process that keeps nothing else open, and end."""
    with suppress(OSError):
        os.dup2(connection, 0)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.execvp("cat", ["cat"])
    while os.read(connection, 1):
        pass
    os._exit(0)


put_zips_last()
# This module may hide another one of its name.
sys.path[:] = [each for each in sys.path if os.path.abspath(each) != os.path.dirname(os.path.abspath(__file__))]
leave_work_to_a_fork()
this = sys.modules.pop("sitecustomize")
try:
    importlib.import_module("sitecustomize")
except ImportError:
    sys.modules["sitecustomize"] = this  # Python expects it there
