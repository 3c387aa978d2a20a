"""The broker is killed many times while clients work: each acknowledged record is kept, once and in order."""

from __future__ import annotations

import random
import subprocess
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.broker_process import Barnabas
from compat_tests.crash.segments import dump_with_kafka, records_of, segment_files
from compat_tests.crash.workload import AiokafkaWriter, ConfluentWriter, Reader, Work, Writer
from compat_tests.tools import missing
from compat_tests.waiting import until

TOPIC = "crash"
PARTITIONS = 3
# Segments are small, so that many kills hit a roll, and some segments end with reserved zeros.
SETTINGS = {
    "log.segment.bytes": "12000",
    "log.index.interval.bytes": "500",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.segment.bytes": "12000",
}


class Victim(Barnabas):
    """A broker that is also killed while it starts."""

    def die_while_starting(self, after: float) -> None:
        """Start, and kill before the broker says that it is ready, or at that moment."""
        self.ready = False
        with self.log_file.open("a") as log:
            process = subprocess.Popen(self.command(), env=self.environment(), stdout=log, stderr=log, text=True)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(after)
        process.kill()
        process.wait(120)


def goes_on_or_fails(writer: Writer, aim: int, work: list[Work]) -> bool:
    return len(writer.acked) >= aim or any(each.failures for each in work)


def comes_back_or_fails(reader: Reader, records: int, resumed: int) -> bool:
    return bool(reader.failures) or (reader.records >= records and reader.resumed >= resumed)


def kill_again_and_again(server: Victim, work: list[Work], writers: list[Writer], kills: int, seed: int) -> None:
    """Kill at seeded moments, each after more records were acknowledged; every fifth time also during the start."""
    moments = random.Random(seed)
    for number in range(kills):
        for writer in writers:
            goes_on = partial(goes_on_or_fails, writer, len(writer.acked) + moments.randint(1, 200), work)
            until(goes_on, f"{writer.name} goes on after kill {number}")
        assert not any(each.failures for each in work), [each.failures for each in work]
        assert server.process
        with pytest.raises(subprocess.TimeoutExpired):
            server.process.wait(moments.uniform(0, 0.08))
        server.kill()
        if number % 5 == 4:
            server.die_while_starting(moments.uniform(0.3, 0.9))
        server.start()


def check_logs(server: Victim, writers: list[Writer]) -> int:
    """Check that each acknowledged record is at its offset, once and in order; returns the number of records."""
    total = 0
    for partition in range(PARTITIONS):
        records = records_of(server.data_dir, TOPIC, partition)
        total += len(records)
        places: dict[str, list[int]] = {writer.name: [] for writer in writers}
        for record in records:
            assert record.value is not None
            name, written_to, sent, _ = record.value.decode().split(":")
            assert int(written_to) == partition
            places[name].append(int(sent))
        for writer in writers:
            found = places[writer.name]
            assert found == sorted(set(found)), f"{writer.name}: twice or out of order in partition {partition}"
        for writer in writers:
            for (where, number), offset in writer.acked.items():
                if where == partition:
                    assert offset < len(records), f"lost: {writer.name} {number} at {offset} of {len(records)}"
                    assert records[offset].value == writer.value((where, number))
    return total


def run(tmp_path: Path, kills: int, seed: int) -> None:
    server = Victim(tmp_path, SETTINGS)
    server.start()
    admin = AdminClient({"bootstrap.servers": server.address})
    for done in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        done.result(30)
    writers: list[Writer] = [
        ConfluentWriter("confluent", server.address, TOPIC, PARTITIONS),
        AiokafkaWriter("aiokafka", server.address, TOPIC, PARTITIONS),
    ]
    readers = [Reader(server.address, TOPIC, f"group-{number}") for number in range(2)]
    work: list[Work] = [*writers, *readers]
    try:
        kill_again_and_again(server, work, writers, kills, seed)
        for reader in readers:
            comes_back = partial(comes_back_or_fails, reader, reader.records + 1, reader.resumed + PARTITIONS)
            until(comes_back, f"{reader.name} comes back")
    finally:
        for each in work:
            each.finish()
        status = server.stop()
    assert [each.failures for each in work] == [[], [], [], []]
    assert status == 0
    assert not server.errors()
    for writer in writers:
        assert not writer.refused, list(writer.refused.items())[:3]
        assert not writer.outstanding
    total = check_logs(server, writers)
    acked = {writer.name: len(writer.acked) for writer in writers}
    assert total == sum(acked.values()), "records that nobody sent, or sent twice"
    print(
        f"\nkills {kills} (seed {seed}), acknowledged {acked}, lost 0, twice 0, in "
        f"{sum(len(segment_files(server.data_dir, TOPIC, p)) for p in range(PARTITIONS))} segments; "
        f"read {sum(r.records for r in readers)}, commits {sum(r.commits for r in readers)}, "
        f"resumed {sum(r.resumed for r in readers)} times"
    )
    if reason := missing("java"):
        pytest.skip(f"the logs are good; Kafka's own tool has not read them: {reason}")
    for partition in range(PARTITIONS):
        files = segment_files(server.data_dir, TOPIC, partition)
        dump_with_kafka(files[-40:])


@pytest.mark.parametrize("seed", [1])
def test_nothing_acknowledged_is_lost_or_doubled_by_kills(tmp_path: Path, seed: int) -> None:
    run(tmp_path, 8, seed)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [2, 3])
def test_nothing_acknowledged_is_lost_or_doubled_by_many_kills(tmp_path: Path, seed: int) -> None:
    run(tmp_path, 60, seed)
