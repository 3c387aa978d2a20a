"""The content of a data directory, read by its documented format, without the code of `storage`."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from barnabas.wire import batch
from barnabas.wire.batch import Record
from compat_tests.tools import BRIEF_JVM, KAFKA_JARS


def segment_files(data_dir: Path, topic: str, partition: int) -> list[Path]:
    """The log segments of a partition, oldest first."""
    return sorted((data_dir / f"{topic}-{partition}").glob("*.log"))


def records_of(data_dir: Path, topic: str, partition: int, *, dense: bool = True) -> list[Record]:
    """Every record of a partition. Asserts that segments have whole batches, good CRCs, and offsets without gaps.

    With `dense=False`, records may be missing inside batches; the batches still follow one another, from the first
    segment's base offset.
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
    """The output of Kafka's own tool about segments. Asserts that it finds no error but gaps, and with `dense` none."""
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
    # The tool begins each file at offset -1, and calls the first batch of each later segment non-consecutive.
    gaps = [r"\n\s+\d+ is followed by"] if dense else []
    for complaint in ("Exception", "mismatch", "isvalid: false", "invalid bytes", *gaps):
        assert not re.search(complaint, said), said[-4000:]
    return done.stdout
