"""One task: writes the records of a partition into files, from where the last run ended."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import msgspec
import pyarrow as pa

from barnabas.streams.export.target import ParquetFile, opened, position
from barnabas.streams.schema import parse_ddl
from barnabas.streams.source.options import Options
from barnabas.streams.source.rows import Rows, rows_of
from barnabas.streams.wal import DataLossError, LogDir, NewTopicError, WalError, offset_at, plan
from barnabas.wire.aliases import TopicPartition

_RAW = (
    "key BINARY, value BINARY, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)

REMEDY = "export to another folder"


class ExportPlan(msgspec.Struct, frozen=True):
    """The settings for all partitions. Without `since_ms` (ms since 1970), they begin with their oldest records."""

    data_dir: str
    to: str
    format: str
    schema: str
    rows_per_file: int
    since_ms: int | None = None

    def rows(self) -> Rows:
        """How to make the files' rows; a row always has its offset. Raises WalError for an invalid schema."""
        target = parse_ddl(self.schema or _RAW)
        if self.offset_column not in target.names:
            target = target.append(pa.field(self.offset_column, pa.int64()))
        return rows_of(Options(path=self.data_dir, format=self.format), target)

    @property
    def offset_column(self) -> str:
        """The column with the record's offset."""
        return "_offset" if self.format == "json" else "offset"


class Work(msgspec.Struct, frozen=True):
    """A partition whose records from `earliest` to before `end` can be read.

    `topic_id` goes into the files, so that a later run recognizes a new topic of the same name.
    """

    topic: str
    partition: int
    earliest: int
    end: int
    topic_id: str = ""

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Outcome(msgspec.Struct):
    """What a task did: the rows, files and bytes written, and messages for the user."""

    rows: int = 0
    files: int = 0
    bytes: int = 0
    warning: str = ""
    error: str = ""


def export_partition(plan_: ExportPlan, work: Work) -> Outcome:
    """Write what is not written yet. Errors are reported in the outcome; files completed before one stay."""
    outcome = Outcome()
    try:
        with opened(Path(plan_.to), work.key) as folder:
            start = _start(plan_, work, position(folder), outcome)
            _write(plan_, work, start, folder, outcome)
    except NewTopicError as error:
        outcome.error = f"{error.what}: {REMEDY}"
    except DataLossError as error:
        outcome.error = f"{error.what}; start the export again, it goes on behind them"
    except WalError as error:
        outcome.error = str(error)
    except OSError as error:
        outcome.error = f"{work}: {error}"
    return outcome


def _start(plan_: ExportPlan, work: Work, done: int | None, outcome: Outcome) -> int:
    if done is None:
        if plan_.since_ms is None:
            return work.earliest
        found = offset_at(LogDir(plan_.data_dir), work.key, plan_.since_ms, work.earliest, work.end)
        return work.end if found is None else found
    if done > work.end:
        raise WalError(f"{work}: offsets before {done} are exported, but the log ends at {work.end}: {REMEDY}")
    if done < work.earliest:
        outcome.warning = f"{work}: offsets {done} to {work.earliest - 1} were gone before they were exported"
    return max(done, work.earliest)


def _write(plan_: ExportPlan, work: Work, start: int, folder: Path, outcome: Outcome) -> None:
    made = plan_.rows()
    with closing(_Files(folder, work.topic_id, made.target, start, plan_.rows_per_file, outcome)) as files:
        for split in plan(LogDir(plan_.data_dir), {work.key: (start, work.end)}):
            for batch in made.batches(split._replace(topic_id=work.topic_id)):
                files.write(batch, batch.column(plan_.offset_column))
        files.finish(work.end)


class _Files:
    """Writes rows to one file after the other.

    A file is only finished when another row comes, so that the last file can stand for all offsets up to the end.
    """

    def __init__(
        self, folder: Path, topic_id: str, schema: pa.Schema, start: int, rows_per_file: int, outcome: Outcome
    ) -> None:
        self._folder, self._topic_id, self._schema, self._rows_per_file = folder, topic_id, schema, rows_per_file
        self._outcome = outcome
        self._start = start
        self._file: ParquetFile | None = None

    def write(self, batch: pa.RecordBatch, offsets: pa.Array) -> None:
        """Add rows, with their offsets."""
        at = 0
        while at < batch.num_rows:
            if self._file is not None and self._file.rows == self._rows_per_file:
                self.finish(offsets[at].as_py())
            if self._file is None:
                self._file = ParquetFile(self._folder, self._schema, self._start, self._topic_id)
            part = batch.slice(at, self._rows_per_file - self._file.rows)
            self._file.write(part)
            at += part.num_rows

    def finish(self, end: int) -> None:
        """Finish the current file, if there is one. It stands for all offsets before `end`."""
        if self._file is not None:
            self._outcome.bytes += self._file.finish(end - 1)
            self._outcome.rows += self._file.rows
            self._outcome.files += 1
            self._file, self._start = None, end

    def close(self) -> None:
        """Abandon an unfinished file."""
        if self._file is not None:
            self._file.close()
