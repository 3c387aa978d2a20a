"""One MariaDB for the tests of a file, and databases of their own for the tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.binlog.mariadb import MariaDb, install, missing


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data with which each server begins."""
    if reason := missing():
        pytest.skip(reason)
    data = tmp_path_factory.mktemp("installed") / "data"
    install(data)
    return data


@pytest.fixture(scope="module")
def mariadb(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    server = MariaDb(tmp_path_factory.mktemp("mariadb"), installed, innodb_flush_log_at_trx_commit="0")
    server.start()
    server.prepare()
    yield server
    server.stop()
    shutil.rmtree(server.data)


@pytest.fixture(scope="module")
def target(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    """A second server, to which changes are applied."""
    server = MariaDb(tmp_path_factory.mktemp("target"), installed, innodb_flush_log_at_trx_commit="0", server_id="78")
    server.start()
    yield server
    server.stop()
    shutil.rmtree(server.data)


@pytest.fixture
def own_mariadb(installed: Path, tmp_path: Path) -> Iterator[MariaDb]:
    """A server for one test, which may freeze or kill it."""
    server = MariaDb(tmp_path / "mariadb", installed)
    server.start()
    server.prepare()
    yield server
    server.kill()
