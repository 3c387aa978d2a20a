"""What broker and streams driver say to each other: JSON records in `__barnabas_queries`, which both append to.

broker  check    may this query be, and what does it read and give?
broker  changed  read the definitions of the queries anew
broker  check_stream    the same question about a stream
driver  checked  the answer to a check
driver  checked_stream  the answer to the other question
driver  status   how queries and streams are, for whoever wants to show it
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from barnabas.wire.queries.plan import Reads
from barnabas.wire.streams.plan import StreamReads


class Check(msgspec.Struct, frozen=True, tag="check"):
    """The question about a query for `topic`; `id` comes back in the answer."""

    id: str
    topic: str
    query: str


class CheckStream(msgspec.Struct, frozen=True, tag="check_stream"):
    """The question about a stream into `topic`; `schema` are the columns that the topic has already (DDL)."""

    id: str
    topic: str
    stream: str
    schema: str = ""


class Changed(msgspec.Struct, frozen=True, tag="changed"):
    """There are other query topics, streams or sources than before."""


class Checked(Reads, frozen=True, kw_only=True, tag="checked"):
    """The reason why the query cannot be, or what it reads and what comes out."""

    id: str
    error: str | None = None
    no_spark: str | None = None  # why nobody can say: it needs Spark, which does not start
    #: The topics that it would read, also where it cannot be.
    tried: tuple[str, ...] = ()
    output_format: str = "raw"
    output_schema: str = ""


class CheckedStream(StreamReads, frozen=True, kw_only=True, tag="checked_stream"):
    """The reason why the stream cannot be, or what it reads and what comes out."""

    id: str
    error: str | None = None
    no_spark: str | None = None  # why nobody can say: it needs Spark, which does not start
    #: The topics that it would read, also where it cannot be.
    tried: tuple[str, ...] = ()
    output_format: str = "json"
    output_schema: str = ""


class QueryStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How one query is. `lag` is in records, None while it is not known; `rows` and `dead_letters` are counted since
    the driver began."""

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
    """How one stream is. `lag` is in records, None while it is not known; `rows`, `late` and `ignored` are counted
    since the driver began.

    `late` are updates of windows that were closed already, `ignored` records without a time, with one too far ahead, or
    with a value that does not fit the schema. The watermark is in ms since 1970.
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
    #: When its checkpoint was copied last, ms since 1970.
    copied: int | None = None
    last_error: str | None = None


class StreamBatch(msgspec.Struct, frozen=True, tag="stream_batch"):
    """What a batch of a query of streams reads, as Spark writes it: noted before the batch is in."""

    query: str
    batch: int
    offsets: str


class Status(msgspec.Struct, frozen=True, tag="status"):
    """How all queries and streams are, at a time in ms since 1970."""

    at_ms: int
    queries: list[QueryStatus]
    streams: list[StreamStatus] = []


#: What the broker asks, what the driver answers, and each thing that either side says.
Question: TypeAlias = Check | CheckStream
Answer: TypeAlias = Checked | CheckedStream
Conversation: TypeAlias = Question | Answer | Changed | Status | StreamBatch
_decoder = msgspec.json.Decoder(Conversation)
encode = msgspec.json.encode


def decode(value: bytes | memoryview | None) -> Conversation | None:
    """The message in a record's value; None for what is none of these, such as one of a later version."""
    try:
        found: Conversation = _decoder.decode(value or b"")
    except msgspec.DecodeError:
        return None
    return found
