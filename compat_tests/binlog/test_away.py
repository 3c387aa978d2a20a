"""A broker that is down, frozen or full while the server goes on: the reader waits, and no row is lost or doubled."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests import small_disk
from compat_tests.binlog.mariadb import MariaDb
from compat_tests.binlog.reading import place_of
from compat_tests.binlog.subscriber import Subscriber, messages
from compat_tests.broker_process import Barnabas
from compat_tests.waiting import until

ROWS, ROW_BYTES = 160, 500_000
#: Far less than the data that waits.
MOST_BYTES = 48 << 20


def memory(subscriber: Subscriber, what: str) -> int:
    """The memory of its process, now (VmRSS) or at its peak (VmHWM)."""
    assert subscriber.process is not None
    told = Path(f"/proc/{subscriber.process.pid}/status").read_text()
    found = re.search(rf"{what}:\s+(\d+) kB", told)
    assert found
    return int(found[1]) << 10


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Barnabas]:
    with Barnabas(tmp_path / "broker") as broker:
        yield broker


def fill(mariadb: MariaDb, first: int) -> None:
    last = first + ROWS - 1
    mariadb.sql("USE away", f"INSERT INTO t SELECT seq, REPEAT('x', {ROW_BYTES}) FROM seq_{first}_to_{last}")


@pytest.mark.long
def test_a_reader_stays_small_while_the_broker_is_down_and_while_it_is_frozen(
    tmp_path: Path, own_mariadb: MariaDb, broker: Barnabas
) -> None:
    own_mariadb.sql("CREATE DATABASE away", "CREATE TABLE away.t (id INT PRIMARY KEY, v LONGTEXT)")
    own_mariadb.sql("SET GLOBAL net_write_timeout = 1")
    subscriber = Subscriber(tmp_path, own_mariadb, broker.address, "away", "--tables", "away.*")
    subscriber.start()
    subscriber.reading()
    own_mariadb.sql("INSERT INTO away.t VALUES (0, 'before')")
    gtid = place_of(own_mariadb).gtids
    subscriber.wait_for(gtid)
    small = memory(subscriber, "VmRSS")

    broker.kill()
    fill(own_mariadb, 1)
    own_mariadb.sql("FLUSH BINARY LOGS")
    until(lambda: "binlog.retrying" in subscriber.told(), "it tries again")
    told = subscriber.told().splitlines()[-1]
    assert f"place={gtid}" in told
    assert "is a broker running there" in told
    assert memory(subscriber, "VmRSS") - small < MOST_BYTES
    broker.start()
    subscriber.wait_for(place_of(own_mariadb).gtids)

    def dumps() -> object:
        ((count,),) = own_mariadb.sql(
            "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'"
        )
        return count

    broker.signal_all(signal.SIGSTOP)
    try:
        fill(own_mariadb, 1001)
        until(lambda: dumps() == "0", "the server gives a reader up that takes nothing")
    finally:
        broker.signal_all(signal.SIGCONT)
    own_mariadb.sql("INSERT INTO away.t VALUES (9999, 'after')")
    subscriber.wait_for(place_of(own_mariadb).gtids)
    assert memory(subscriber, "VmHWM") - small < MOST_BYTES
    assert subscriber.stop() == 0
    found = [int(each["field"][0]) for each in messages(broker.address, "away.t")]
    assert found == [0, *range(1, ROWS + 1), *range(1001, 1001 + ROWS), 9999]


@pytest.fixture
def small_broker(tmp_path: Path) -> Iterator[Barnabas]:
    """A broker whose disk a test can fill."""
    broker = Barnabas(tmp_path / "small")
    if why := small_disk.mount(broker.data_dir, 64):
        pytest.skip(f"no small file system can be mounted: {why}")
    try:
        with broker:
            yield broker
    finally:
        small_disk.unmount(broker.data_dir)


@pytest.mark.long
def test_a_full_disk_of_the_broker_is_told_and_waited_for(
    tmp_path: Path, mariadb: MariaDb, small_broker: Barnabas
) -> None:
    mariadb.sql("CREATE DATABASE full", "CREATE TABLE full.t (id INT PRIMARY KEY, v TEXT)")
    subscriber = Subscriber(tmp_path, mariadb, small_broker.address, "full", "--tables", "full.*")
    subscriber.start()
    subscriber.reading()
    mariadb.sql("INSERT INTO full.t VALUES (0, 'before')")
    gtid = place_of(mariadb).gtids
    subscriber.wait_for(gtid)
    filler = small_broker.data_dir / "filler"
    small_disk.fill(filler)
    mariadb.sql("USE full", "INSERT INTO t SELECT seq, REPEAT('x', 1000) FROM seq_1_to_5000")
    until(lambda: subscriber.told().count("binlog.retrying") > 1, "it tries again")
    told = [line for line in subscriber.told().splitlines() if "binlog.retrying" in line][-2:]
    assert "No space left on device" in told[0]
    assert [(f"place={gtid}" in line, "make room on its disk" in line) for line in told] == [(True, True)] * 2
    filler.unlink()
    mariadb.sql("INSERT INTO full.t VALUES (9999, 'after')")
    subscriber.wait_for(place_of(mariadb).gtids)
    assert subscriber.stop() == 0
    found = [int(each["field"][0]) for each in messages(small_broker.address, "full.t")]
    assert found == [0, *range(1, 5001), 9999]
