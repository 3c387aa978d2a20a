"""A MariaDB server for tests, on loopback."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import trio

from barnabas.connect.mysql.connection import Connection, LostError, Row, connect
from barnabas.connect.mysql.source import Source, source_of
from compat_tests.waiting import until

START_SECONDS = 60
LOG_FILE_SIZE = "16M"
USER, PASSWORD = "repl", "it's \\ secret"


class MariaDb:
    """`start` starts it, `stop` or `kill` ends it; data and port stay the same.

    `installed` is a folder that `install` has made; the server begins with a copy of it.
    """

    def __init__(self, folder: Path, installed: Path, **settings: str) -> None:
        self.folder = folder
        self.installed = installed
        self.settings = settings
        folder.mkdir(parents=True, exist_ok=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        """Its tables and logs, 50 to 180 MB."""
        return self.folder / "data"

    @property
    def url(self) -> str:
        """The URL of the user who may read the binary log; the password is in MYSQL_PWD."""
        return f"mysql://{USER}@127.0.0.1:{self.port}"

    def source(self, user: str = "root", password: str = "") -> Source:
        return Source("127.0.0.1", self.port, user, password)

    def reader(self) -> Source:
        return source_of(self.url.replace("@", f":{PASSWORD.replace(chr(92), '%5C').replace(' ', '%20')}@"))

    def start(self) -> None:
        data, own = self.data, self.folder / "tmp"
        own.mkdir(exist_ok=True)
        # A server that starts removes all temporary tables in this folder, so each server needs a folder of its own.
        environment = {**os.environ, "TMPDIR": str(own)}
        if not data.exists():
            shutil.copytree(self.installed, data)
        lines = {
            "user": _user(),
            "datadir": str(data),
            "socket": str(self.folder / "s.sock"),
            "pid-file": str(self.folder / "pid"),
            "log_error": str(self.folder / "err.log"),
            "port": str(self.port),
            "bind-address": "127.0.0.1",
            "server_id": "77",
            "log_bin": str(data / "bin"),
            "binlog_format": "ROW",
            "binlog_row_image": "FULL",
            "binlog_row_metadata": "FULL",
            "character-set-server": "utf8mb4",
            "innodb_buffer_pool_size": "64M",
            "innodb_log_file_size": LOG_FILE_SIZE,
            "max_allowed_packet": "64M",
            "gtid_strict_mode": "ON",
            **self.settings,
        }
        config = self.folder / "my.cnf"
        config.write_text("[mariadbd]\n" + "".join(f"{key}={value}\n" for key, value in lines.items()))
        with (self.folder / "out.log").open("ab") as out:
            command = ["mariadbd", f"--defaults-file={config}"]
            self._process = subprocess.Popen(command, env=environment, stdout=out, stderr=out)
        until(self._is_up, "MariaDB is up", START_SECONDS)

    def _is_up(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "err.log").read_text()[-2000:]
        try:
            self.sql("SELECT 1")
        except LostError:
            return False
        return True

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(START_SECONDS)

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(START_SECONDS)

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def sql(self, *statements: str) -> list[Row]:
        """Run statements on one connection, as root; returns the rows of the last one."""
        return trio.run(self._run, statements)

    async def _run(self, statements: tuple[str, ...]) -> list[Row]:
        rows: list[Row] = []
        async with await self.session() as session:
            for statement in statements:
                rows = await session.query(statement)
        return rows

    async def session(self) -> Connection:
        return await connect(self.source())

    def prepare(self) -> None:
        """Create the user who reads the binary log."""
        password = PASSWORD.replace("\\", "\\\\").replace("'", "''")
        rights = "REPLICATION SLAVE, REPLICATION CLIENT, BINLOG MONITOR, LOCK TABLES, SELECT"
        self.sql(
            f"CREATE USER {USER}@'127.0.0.1' IDENTIFIED BY '{password}'",
            f"GRANT {rights} ON *.* TO {USER}@'127.0.0.1'",
        )


def _user() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


def install(data: Path) -> None:
    """Make the data of a new server. This takes longer than the start of a server."""
    command = ["mariadb-install-db", "--no-defaults", f"--user={_user()}", f"--datadir={data}"]
    command += ["--auth-root-authentication-method=normal", "--skip-test-db", f"--innodb-log-file-size={LOG_FILE_SIZE}"]
    environment = {**os.environ, "TMPDIR": str(data.parent)}
    made = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=START_SECONDS)
    assert made.returncode == 0, f"mariadb-install-db: {(made.stdout + made.stderr)[-2000:]}"


def missing() -> str | None:
    """Why MariaDB is missing; None if it is there."""
    for name in ("mariadbd", "mariadb-install-db"):
        if shutil.which(name) is None:
            return f"{name} is not installed: apt-get install mariadb-server-core"
    return None
