"""The MariaDB servers of the tests do not disturb each other."""

from __future__ import annotations

import os
import tempfile
import uuid
from pathlib import Path

from compat_tests.binlog.mariadb import MariaDb


def test_a_server_that_starts_removes_no_temporary_table_of_another_one(own_mariadb: MariaDb) -> None:
    other = Path(tempfile.gettempdir(), f"#sql-temptable-{uuid.uuid4().hex}.MAD")
    other.touch()
    try:
        own_mariadb.kill()
        own_mariadb.start()
        assert other.exists()
        assert own_mariadb.sql("SELECT @@tmpdir") == [(str(own_mariadb.folder / "tmp"),)]
    finally:
        if other.exists():
            os.unlink(other)
