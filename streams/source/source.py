"""The `wal` data source as Spark sees it: `spark.read.format("wal")` and `spark.readStream.format("wal")`."""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from barnabas.streams.source.batch import BatchReader
from barnabas.streams.source.options import TYPED, parse
from barnabas.streams.source.rows import Rows, rows_of
from barnabas.streams.source.stream import StreamReader
from barnabas.streams.wal import COLUMNS, WalError

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}
# Spark skips the null checks for columns declared without nulls; these are a sixth of a row's cost. A time may be null.
_NEVER_NULL = {"topic", "partition", "offset", "timestampType"}


class WalDataSource(DataSource):
    """Kafka-format logs in a data directory on this machine. Raises WalError for options that do not make a query."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = parse(options)

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return "wal"

    def schema(self) -> StructType:
        """The schema for a query that gives none: that of Spark's Kafka connector, or that of the option columns."""
        if self._options.format in TYPED:
            raise WalError(
                f'format={self._options.format} needs a schema: .schema("device string, temperature double")'
            )
        names = self._options.columns or [
            name for name in COLUMNS if name != "headers" or self._options.include_headers
        ]
        return StructType([StructField(name, _TYPES[name], name not in _NEVER_NULL) for name in names])

    def reader(self, schema: StructType) -> BatchReader:
        """The reader for a batch query."""
        return BatchReader(self._options, self._rows(schema))

    def streamReader(self, schema: StructType) -> StreamReader:
        """The reader for a streaming query."""
        return StreamReader(self._options, self._rows(schema))

    def _rows(self, schema: StructType) -> Rows:
        return rows_of(self._options, to_arrow_schema(schema, timezone="UTC"))
