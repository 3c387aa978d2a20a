"""The messages between broker and streams driver: JSON records in `__barnabas_queries`, to which both append.

broker  check    is this query allowed, and what does it read and return?
broker  changed  read the queries' definitions again
broker  check_stream    the same question about a stream
driver  checked  the answer to a check
driver  checked_stream  the answer to a check_stream
driver  status   the state of queries and streams, for programs that show it
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from barnabas.wire.queries.plan import Reads
from barnabas.wire.streams.plan import StreamReads


class Check(msgspec.Struct, frozen=True, tag="check"):
    """The question about a query for `topic`; the answer repeats the `id`."""

    id: str
    topic: str
    query: str


class CheckStream(msgspec.Struct, frozen=True, tag="check_stream"):
    """The question about a stream into `topic`; `schema` has the columns that the topic already has (DDL)."""

    id: str
    topic: str
    stream: str
    schema: str = ""


class Changed(msgspec.Struct, frozen=True, tag="changed"):
    """The query topics, streams or sources have changed."""


class Checked(Reads, frozen=True, kw_only=True, tag="checked"):
    """Why the query is not possible, or what it reads and returns."""

    id: str
    error: str | None = None
    no_spark: str | None = None  # why it is unknown: it needs Spark, which does not start
    #: The topics that it would read, even if it is not possible.
    tried: tuple[str, ...] = ()
    output_format: str = "raw"
    output_schema: str = ""


class CheckedStream(StreamReads, frozen=True, kw_only=True, tag="checked_stream"):
    """Why the stream is not possible, or what it reads and returns."""

    id: str
    error: str | None = None
    no_spark: str | None = None  # why it is unknown: it needs Spark, which does not start
    #: The topics that it would read, even if it is not possible.
    tried: tuple[str, ...] = ()
    output_format: str = "json"
    output_schema: str = ""


class QueryStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one query. `lag` is in records, None if unknown.

    `rows` and `dead_letters` are counted from the driver's start.
    """

    topic: str
    source: str
    state: str
    lag: int | None = None
    rows: int = 0
    rows_per_second: float = 0.0
    batch_ms: float = 0.0
    dead_letters: int = 0
    last_error: str | None = None


class StreamStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one stream. `lag` is in records, None if unknown.

    `rows`, `late` and `ignored` are counted from the driver's start. `late` are updates of windows that were already
    closed; `ignored` are records without a time, with a time too far ahead, or with a value that does not fit the
    schema. The watermark is in ms since 1970.
    """

    topic: str
    name: str
    source: str
    state: str
    lag: int | None = None
    rows: int = 0
    rows_per_second: float = 0.0
    batch_ms: float = 0.0
    watermark: int | None = None
    state_rows: int = 0
    late: int = 0
    ignored: int = 0
    query: str = ""
    #: When its checkpoint was last copied, in ms since 1970.
    copied: int | None = None
    last_error: str | None = None


class StreamBatch(msgspec.Struct, frozen=True, tag="stream_batch"):
    """What a batch of a stream's query reads, as Spark writes it. It is noted before the batch is complete."""

    query: str
    batch: int
    offsets: str


class Status(msgspec.Struct, frozen=True, tag="status"):
    """The state of all queries and streams at a time, in ms since 1970."""

    at_ms: int
    queries: list[QueryStatus]
    streams: list[StreamStatus] = []


#: The broker's questions, the driver's answers, and all messages of either side.
Question: TypeAlias = Check | CheckStream
Answer: TypeAlias = Checked | CheckedStream
Conversation: TypeAlias = Question | Answer | Changed | Status | StreamBatch
_decoder = msgspec.json.Decoder(Conversation)
encode = msgspec.json.encode


def decode(value: bytes | memoryview | None) -> Conversation | None:
    """The message in a record's value; None for anything else, such as a message of a later version."""
    try:
        found: Conversation = _decoder.decode(value or b"")
    except msgspec.DecodeError:
        return None
    return found
