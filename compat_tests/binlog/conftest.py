"""One MariaDB for the tests of a file, and databases of their own for the tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.binlog.mariadb import MariaDb, missing


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    if reason := missing():
        pytest.skip(reason)
    server = MariaDb(tmp_path_factory.mktemp("mariadb"), innodb_flush_log_at_trx_commit="0")
    server.start()
    server.prepare()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    """Another one, into which changes are applied."""
    if reason := missing():
        pytest.skip(reason)
    server = MariaDb(tmp_path_factory.mktemp("target"), innodb_flush_log_at_trx_commit="0", server_id="78")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def own_mariadb(tmp_path: Path) -> Iterator[MariaDb]:
    """One that a test may ill-treat."""
    if reason := missing():
        pytest.skip(reason)
    server = MariaDb(tmp_path / "mariadb")
    server.start()
    server.prepare()
    yield server
    server.kill()
