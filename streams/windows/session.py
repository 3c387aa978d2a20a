"""The Spark session of streams: beside that of query topics in the same JVM, with settings of its own.

Spark keeps some of these in a stream's checkpoint and continues with those: a change applies to new streams only.
"""

from __future__ import annotations

import threading

from pyspark.sql import SparkSession

from barnabas.streams.query.session import TEXT_SETTINGS
from barnabas.streams.source.workers import check_workers
from barnabas.streams.windows.limits import MAX_STATE_MEMORY_MB
from barnabas.streams.windows.local_files import use_local_files
from barnabas.streams.windows.source import StreamDataSource

_TASKS = "spark.sql.shuffle.partitions"
_SECOND_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
_SETTINGS = {
    **TEXT_SETTINGS,
    _TASKS: "1",
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state."
    "RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
    "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": str(MAX_STATE_MEMORY_MB),
    # Spark's default for a local folder starts about 60 processes (chmod, readlink, stat) per batch. This manager uses
    # local_files.py, which starts none.
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming.checkpointing."
    "FileSystemBasedCheckpointFileManager",
    # It refuses a stateful operator after an aggregate because of time-outs, which fill.py does not have. The plans are
    # ours, and all of them are tested.
    "spark.sql.streaming.unsupportedOperationCheck": "false",
    # Records are late by the watermark of the batch before, and windows close by the batch's own (one_batch.py).
    "spark.sql.streaming.statefulOperator.allowMultiple": "true",
    "spark.sql.streaming.noDataProgressEventInterval": "1000",
    "spark.sql.streaming.stopTimeout": "10000",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
    # The log is also read in batch mode (expired.py), by a reader that takes filters.
    "spark.sql.python.filterPushdown.enabled": "true",
}


def streams_session(spark: SparkSession) -> SparkSession:
    """The session for all streams in the JVM of `spark`, created once: Spark registers a source's name once.

    Raises WalError if the workers' Python cannot run the source.
    """
    application = str(spark.sparkContext.applicationId)
    with _making:  # the first stream is checked by one thread while another one starts it
        if application not in _made:
            made = spark.newSession()
            for name, value in _SETTINGS.items():
                made.conf.set(name, value)
            check_workers(made)
            use_local_files(made)
            made.dataSource.register(StreamDataSource)
            _made[application] = made
    return _made[application]


def set_query(session: SparkSession, tasks: int, *, source_plans_all: bool = False) -> None:
    """Settings of the next query to start, which takes those of that moment: the number of tasks that hold its state.

    With `source_plans_all`, Spark plans no batches without records by itself: its source has every batch planned.
    """
    session.conf.set(_TASKS, str(tasks))
    session.conf.set(_SECOND_BATCHES, str(not source_plans_all).lower())


_made: dict[str, SparkSession] = {}
_making = threading.Lock()
