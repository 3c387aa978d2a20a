"""Starts the template, from which Spark's Python processes of this machine are forked."""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

from barnabas.streams.quick_arrow import WITHOUT_PANDAS

#: The environment of Spark's Python processes names the template's socket.
TEMPLATE = "BARNABAS_TEMPLATE"
#: What Spark gives its Python processes, and what has an effect before any code of theirs runs.
ENVIRONMENT = {"PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "YES", "OMP_NUM_THREADS": "1"}
_LONGEST_PATH = 100  # bytes; the system has 104 or 108 for the name of a socket
_WAITING = 64
_ROOM_FOR_NAMES = 500  # bytes; a fork's command line takes the place of this argument


class Template:
    """The template of a driver. It ends with the driver, however that one ends."""

    def __init__(self, process: subprocess.Popen[bytes], path: Path) -> None:
        self._process, self.path = process, path

    @classmethod
    def start(cls, folder: Path, python: str, *, has_functions: bool) -> Template | None:
        """Start one with a socket in a folder that only this user may enter.

        `has_functions` says whether its forks may run an operator's functions, which may use pandas. None if there can
        be no such process: every process of Spark then loads its libraries itself.
        """
        path = folder / "template.sock"
        if len(os.fsencode(path)) > _LONGEST_PATH:
            return None
        environment = {**os.environ, **ENVIRONMENT, **({} if has_functions else {WITHOUT_PANDAS: "1"})}
        # The driver listens, so that processes can connect before the template has loaded anything.
        with suppress(OSError), socket.socket(socket.AF_UNIX) as listening:
            path.unlink(missing_ok=True)
            listening.bind(str(path))
            listening.listen(_WAITING)
            process = subprocess.Popen(
                [python, "-m", "barnabas.streams.template", str(listening.fileno()), " " * _ROOM_FOR_NAMES],
                stdin=subprocess.PIPE,
                pass_fds=[listening.fileno()],
                env=environment,
            )
            return cls(process, path)
        return None

    @property
    def pid(self) -> int:
        """Its process. Forks of it are its children."""
        return self._process.pid
