"""`barnabas connect apply` in a process of its own, and checksums that show whether two servers have the same rows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from barnabas.connect.mysql.connection import name_quoted
from barnabas.connect.mysql.connection import quoted as literal
from compat_tests.binlog.mariadb import MariaDb
from compat_tests.tools import ROOT
from compat_tests.waiting import until

END_SECONDS = 120


class Applying:
    """One run of `apply`. Its process can be killed and started again."""

    def __init__(self, folder: Path, target: MariaDb, broker: str, name: str, *options: str) -> None:
        self.target, self.broker, self.name, self.options = target, broker, name, options
        self.log = folder / f"apply-{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        command = [sys.executable, "-m", "barnabas", "connect", "apply", "--bootstrap", self.broker]
        command += ["--target", f"mysql://root@127.0.0.1:{self.target.port}", "--name", self.name]
        environment = {**os.environ, "MYSQL_PWD": ""}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([*command, *self.options, *options], cwd=ROOT, env=environment, stderr=log)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(END_SECONDS)

    def told(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def to_the_end(self) -> None:
        """Apply all messages that the topics have now."""
        self.start("--until-end")
        assert self.process is not None
        assert self.process.wait(END_SECONDS) == 0, self.told()[-2000:]

    def refused(self) -> str:
        """Apply; returns the error with which it ends with status 1."""
        self.start("--until-end")
        assert self.process is not None
        assert self.process.wait(END_SECONDS) == 1, self.told()[-2000:]
        return self.told().splitlines()[-1]

    def moved(self) -> None:
        """Return when it has applied more than now."""
        before = self.position()

        def is_further() -> bool:
            assert self.process is not None
            assert self.process.poll() in (None, 0), self.told()[-2000:]
            return self.process.poll() == 0 or self.position() != before

        until(is_further, f"{self.name} applies: {self.told()[-500:]}", END_SECONDS)

    def position(self) -> object:
        there = self.target.sql("SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'barnabas_apply'")
        return there and self.target.sql(
            f"SELECT topic, part, next, pending FROM barnabas_apply.positions WHERE name = '{self.name}' ORDER BY 1, 2"
        )


def checksums(server: MariaDb, database: str) -> dict[str, str | None]:
    """The checksum and the definition of each table."""
    names = server.sql(
        f"SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = '{database}' "
        "AND TABLE_TYPE = 'BASE TABLE' ORDER BY 1"
    )
    found: dict[str, str | None] = {}
    for (name,) in names:
        table = f"{name_quoted(database)}.{name_quoted(name or '')}"
        found[str(name)] = checksum(server, database, str(name), table)
        ((_, made),) = server.sql(f"SHOW CREATE TABLE {table}")
        found[f"{name} made"] = " ".join(part for part in (made or "").split(" ") if "AUTO_INCREMENT=" not in part)
    return found


def checksum(server: MariaDb, database: str, name: str, quoted: str) -> str | None:
    """CHECKSUM TABLE, which differs between equal tables if they have virtual columns; then a checksum of the rows."""
    columns = server.sql(
        "SELECT COLUMN_NAME, EXTRA LIKE '%VIRTUAL%' FROM information_schema.COLUMNS "
        f"WHERE TABLE_SCHEMA = '{database}' AND TABLE_NAME = {literal(name)} ORDER BY ORDINAL_POSITION"
    )
    if all(virtual == "0" for _, virtual in columns):
        ((_, told),) = server.sql(f"CHECKSUM TABLE {quoted}")
        return told
    row = ", ".join(f"QUOTE({name_quoted(column or '')})" for column, _ in columns)
    ((told,),) = server.sql(f"SELECT CONCAT(COUNT(*), ' ', SUM(CRC32(CONCAT_WS(',', {row})))) FROM {quoted}")
    return told
