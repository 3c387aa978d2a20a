"""What lies in a data directory, read with nothing but the format: no storage code has a say in it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from barnabas.wire import batch
from barnabas.wire.batch import Record
from compat_tests.tools import BRIEF_JVM, KAFKA_JARS


def segment_files(data_dir: Path, topic: str, partition: int) -> list[Path]:
    """The logs of a partition, oldest first."""
    return sorted((data_dir / f"{topic}-{partition}").glob("*.log"))


def records_of(data_dir: Path, topic: str, partition: int, *, dense: bool = True) -> list[Record]:
    """Every record of a partition. Asserts that each segment is whole batches with good CRCs, offsets without a gap.

    Where records may be missing inside the batches (`dense=False`), the batches still follow one another, from where
    the first segment begins.
    """
    found: list[Record] = []
    paths = segment_files(data_dir, topic, partition)
    following = 0 if dense or not paths else int(paths[0].stem)
    for path in paths:
        data = path.read_bytes()
        assert not data or int(path.stem) == following, f"{path} should begin at {following}"
        whole = 0
        for header, view in batch.iter_batches(data):
            batch.check(view)
            assert header.base_offset == following, f"{path}: offset {header.base_offset} where {following} is due"
            found += batch.iter_records(view)
            following = header.last_offset + 1
            whole += len(view)
        assert whole == len(data), f"{path} ends in {len(data) - whole} bytes that are no batch"
    assert not dense or [record.offset for record in found] == list(range(following))
    return found


def dump_with_kafka(files: list[Path], *, dense: bool = True) -> str:
    """What Kafka's own tool says of segments. Asserts that it finds nothing wrong, except for gaps unless `dense`."""
    done = subprocess.run(
        [
            "java",
            "-Xmx256m",
            *BRIEF_JVM,
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
            "-cp",
            f"{KAFKA_JARS}/*",
            "org.apache.kafka.tools.DumpLogSegments",
            "--deep-iteration",
            "--files",
            ",".join(map(str, files)),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    # It begins each file at offset -1, and calls the first batch of all but the first segment non-consecutive.
    gaps = [r"\n\s+\d+ is followed by"] if dense else []
    for complaint in ("Exception", "mismatch", "isvalid: false", "invalid bytes", *gaps):
        assert not re.search(complaint, said), said[-4000:]
    return done.stdout
