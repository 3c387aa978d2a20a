"""The template's process: `python -m barnabas.streams.template SOCKET PADDING`. It ends when its standard input ends.

Invariant: it has one thread, so that a fork of it can do anything. The libraries loaded here have threads only in the
allocator and the linear algebra, and both restart them in a fork.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import time
from contextlib import suppress

#: What the modules of Spark's Python processes need besides what workers for records need.
_LOADED = (
    "pyspark.daemon",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.streaming.python_streaming_source_runner",
)
_ARGUMENTS = 45  # where the first argument begins, of the fields after the name in /proc/PID/stat; the next is the end


def main() -> None:
    """Fork for each connection, with the libraries that the first one makes this process load."""
    for each in (signal.SIGINT, signal.SIGCHLD):  # the driver ends its processes; the system collects ended forks
        signal.signal(each, signal.SIG_IGN)
    _show([sys.executable, "-m", "barnabas.streams.template"])
    is_loaded = False
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        while True:
            if 0 in select.select([0, listening.fileno()], [], [])[0]:
                return
            if not is_loaded:  # many an SQL query does without Python
                _load()
                is_loaded = True
            connection, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                break
            connection.close()
    _be(connection)


def _load() -> None:
    from barnabas.streams.daemon import keep_shared, load_for_records

    load_for_records()
    for name in _LOADED:
        with suppress(ImportError):  # another version of Spark
            importlib.import_module(name)
    keep_shared()


def _be(connection: socket.socket) -> None:
    """Do the work of the process at the other end of the connection."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    text, descriptors = _asked(connection)
    asked = json.loads(text)
    if asked["python"] != [sys.executable, sys.prefix, sys.version]:
        return
    os.chdir(asked["folder"])
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(asked["environment"])
    time.tzset()
    module, *words = asked["words"]
    sys.path[:] = [asked["folder"], *asked["path"]]  # as with `python -m`
    sys.argv[:] = [module, *words]
    _show([asked["python"][0], "-m", module, *words])
    _end_with(connection)
    try:
        connection.sendall(b"\1")
    except OSError:  # the other process was killed
        return
    sys.modules.pop(module, None)  # it runs as the main module
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _asked(connection: socket.socket) -> tuple[bytes, list[int]]:
    """A request: its length in 4 bytes, with the descriptors 0, 1 and 2, and the request."""
    head, descriptors, _, _ = socket.recv_fds(connection, 4, 3)
    with connection.makefile("rb") as rest:
        length = int.from_bytes(head, "big")
        text = rest.read(length)
    if len(descriptors) != 3 or len(text) != length:
        sys.exit(1)  # the other process was killed
    return text, descriptors


def _end_with(connection: socket.socket) -> None:
    """End this process when the other one ends, as the JVM knows only that one. Where this is not possible, the ends of
    its pipes tell it."""
    os.register_at_fork(after_in_child=connection.close)
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(connection, fcntl.F_SETSIG, signal.SIGTERM)
        fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(connection, fcntl.F_SETFL, fcntl.fcntl(connection, fcntl.F_GETFL) | os.O_ASYNC)


def _show(words: list[str]) -> None:
    """Have `ps` show the command line of the process whose work this is."""
    with suppress(OSError, ValueError, IndexError), open("/proc/self/stat", "rb") as stat:
        start, end = map(int, stat.read().rpartition(b")")[2].split()[_ARGUMENTS : _ARGUMENTS + 2])
        with open("/proc/self/mem", "r+b", 0) as memory:
            memory.seek(start)
            memory.write(b"\0".join(map(os.fsencode, words))[: end - start - 1].ljust(end - start, b"\0"))


if __name__ == "__main__":
    main()
