"""The machine on which a page's reader types: a folder for the page, with the commands on its path.

A page names ports and folders that a test cannot use. Here each port becomes a free one, folders such as
`/var/lib/barnabas` are inside the page's folder, and other hosts become this one. `Machine.here` rewrites a text in
this way; the rest of a block does not change.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from barnabas.streams.java import options
from compat_tests.apache_kafka import free_ports
from compat_tests.broker_process import following_free_ports
from compat_tests.docs.session import Bash, Python
from compat_tests.java import tools
from compat_tests.tools import ROOT, missing

#: The broker and its TLS listener, or a broker of three nodes, which have consecutive ports.
BROKERS = ("9092", "9093", "9094")
#: HTTP; InfluxDB's writers; MariaDBs; ZooKeeper.
OTHERS = ("9644", "8086", "3306", "3307", "33061", "2181")
PORTS = (*BROKERS, *OTHERS)
_PORT = re.compile(rf"(?:(?<=:)|(?<=--port[ =]))(?:{'|'.join(PORTS)})\b")
_HOST = re.compile(r"\b(?:kafka\.example|zk\d?)(?=:\d)|\b0\.0\.0\.0\b")
_FOLDER = re.compile(r"(?<![\w.}])/(?=(?:var/lib|etc/barnabas|data)/|data\b)")
_SERVES_AT_THE_DEFAULT = re.compile(r"\bbarnabas serve\b(?!.*(?:--listen|--config|--port|listeners=))")
KAFKAS_TOOLS = {
    "kafka-acls": tools.ACLS,
    "kafka-client-metrics": tools.CLIENT_METRICS,
    "kafka-configs": tools.CONFIGS,
    "kafka-console-consumer": tools.CONSOLE_CONSUMER,
    "kafka-console-producer": tools.CONSOLE_PRODUCER,
    "kafka-consumer-groups": tools.GROUPS,
    "kafka-features": tools.FEATURES,
    "kafka-reassign-partitions": tools.REASSIGNMENTS,
    "kafka-topics": tools.TOPICS,
    "kafka-transactions": tools.TRANSACTIONS,
}
#: The tools that a command needs besides the project, by the pattern of a command.
_NEEDED = {
    re.compile(r"\bkcat\b"): "kcat",
    re.compile(r"\bkafka-[a-z-]+(\.sh)? --"): "java",
    **{re.compile(rf"(?:^|[|&] *){name}\b", re.M): name for name in ("curl", "openssl", "node", "go", "mariadb")},
    re.compile(r"(?:^|[|&] *)java\b", re.M): "javac",
}


#: Without these tools no block of a page can run: later blocks use their results.
_FIRST_OF_ALL = ("mariadb", "openssl")


def _free_ports() -> list[int]:
    """A free port for each of `PORTS`."""
    while True:
        first, others = following_free_ports(len(BROKERS)), free_ports(len(OTHERS))
        found = [*range(first, first + len(BROKERS)), *others]
        if len(set(found)) == len(found):
            return found


class Machine:
    """A folder that looks to commands like a checkout in which `make setup-all` has run."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.home = folder / "checkout"
        self.ports = dict(zip(PORTS, map(str, _free_ports()), strict=True))
        self._bin = self.home / ".venv" / "bin"
        self._bin.mkdir(parents=True)
        for name in ("var/lib", "etc/barnabas", "data"):
            (self.root / name).mkdir(parents=True)
        (self.home / "docs").symlink_to(ROOT / "docs")
        self._put_commands()
        self._bash: Bash | None = None
        self._python: Python | None = None

    def _put_commands(self) -> None:
        (self._bin / "activate").write_text('PATH="$PWD/.venv/bin:$PATH"\n')
        self._command("barnabas", f'exec {sys.executable} -m barnabas "$@"')
        self._command("python", f'exec {sys.executable} "$@"')
        self._command("pip", f'exec {sys.executable} -m compat_tests.docs.installed "$@"')
        # Each target must exist. Only `run` is carried out: the tests need an installed checkout anyway.
        make = f'make=$({shutil.which("make") or "make"} -s -n -C {shlex.quote(str(ROOT))} "$@") || exit'
        self._command("make", f'{make}\n[ "$1" != run ] || exec $(echo "$make" | tail -n 1)')
        for name, main in KAFKAS_TOOLS.items():
            for file in (name, f"{name}.sh"):
                self._command(file, f'exec {shlex.join(tools.command(main))} "$@"')

    def _command(self, name: str, script: str) -> None:
        file = self._bin / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    def environment(self) -> Mapping[str, str]:
        """The environment of all commands; PORT_9092 is the port that stands for 9092."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("BARNABAS_")}
        return {
            **kept,
            "PATH": f"{self._bin}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "XDG_STATE_HOME": str(self.root / "state"),
            "BARNABAS_BOOTSTRAP_SERVERS": f"127.0.0.1:{self.ports['9092']}",
            **{f"PORT_{name}": port for name, port in self.ports.items()},
        }

    def here(self, text: str) -> str:
        """A text with this machine's ports, folders and hosts."""
        text = _PORT.sub(lambda match: self.ports[match[0]], text)
        text = _HOST.sub("127.0.0.1", text)
        text = _FOLDER.sub(f"{self.root}/", text)
        listen = f"127.0.0.1:{self.ports['9092']}"
        text = _SERVES_AT_THE_DEFAULT.sub(f"barnabas serve --listen {listen}", text)
        text = re.sub(r"\bmake run\b", f"make run ARGS='--listen {listen}'", text)
        text = re.sub(r"^barnabas sql$", "barnabas sql <<< 'SHOW TOPICS;'", text)  # no user types at a prompt
        return re.sub(r"\bbarnabas trace\b", f"barnabas trace --url http://127.0.0.1:{self.ports['9644']}", text)

    def there(self, text: str) -> str:
        """An output of this machine, with the folders of the page."""
        return text.replace(f"{self.root}/", "/")

    @property
    def bash(self) -> Bash:
        """The page's shell."""
        if self._bash is None:
            self._bash = Bash(self.home, self.environment())
        return self._bash

    @property
    def python(self) -> Python:
        """The page's Python."""
        if self._python is None:
            # A user's own program also starts Spark with the archive of its classes.
            spark = {"SPARK_SUBMIT_OPTS": options(brief=True)}
            self._python = Python(self.home, {**self.environment(), **spark})
        return self._python

    def close(self) -> None:
        """End all sessions and their processes."""
        for session in (self._python, self._bash):
            if session is not None:
                session.close()


def lacking(command: str) -> str:
    """Why a command cannot be run on this machine; "" if it can."""
    return next(
        (reason for pattern, tool in _NEEDED.items() if pattern.search(command) and (reason := _lacks(tool))), ""
    )


def lacking_for(commands: str) -> str:
    """Why none of these commands can be run on this machine; "" if they can."""
    needed = [tool for pattern, tool in _NEEDED.items() if tool in _FIRST_OF_ALL and pattern.search(commands)]
    return next((reason for tool in needed if (reason := _lacks(tool))), "")


def _lacks(tool: str) -> str:
    if tool in ("kcat", "java"):
        return missing(tool) or ""
    return "" if shutil.which(tool) else f"{tool} is not installed"
