"""What broker and streams driver say to each other: JSON records in `__barnabas_queries`, which both append to.

broker  check    may this query be, and what does it read and give?
broker  changed  read the definitions of the queries anew
driver  checked  the answer to a check
driver  status   how the queries are, for whoever wants to show it
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from barnabas.wire.queries.plan import Reads


class Check(msgspec.Struct, frozen=True, tag="check"):
    """The question about a query for `topic`; `id` comes back in the answer."""

    id: str
    topic: str
    query: str


class Changed(msgspec.Struct, frozen=True, tag="changed"):
    """There are other query topics, or other sources, than before."""


class Checked(Reads, frozen=True, kw_only=True, tag="checked"):
    """The reason why the query cannot be, or what it reads and what comes out."""

    id: str
    error: str | None = None
    output_format: str = "raw"
    output_schema: str = ""


class QueryStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How one query is; `lag` is in records, `rows` and `dead_letters` are counted since the driver began."""

    topic: str
    source: str
    state: str
    lag: int = 0
    rows: int = 0
    rows_per_second: float = 0.0
    batch_ms: float = 0.0
    dead_letters: int = 0
    last_error: str | None = None


class Status(msgspec.Struct, frozen=True, tag="status"):
    """How all queries are, at a time in ms since 1970."""

    at_ms: int
    queries: list[QueryStatus]


#: Each thing that either side says.
Conversation: TypeAlias = Check | Changed | Checked | Status
_decoder = msgspec.json.Decoder(Conversation)
encode = msgspec.json.encode


def decode(value: bytes | memoryview | None) -> Conversation | None:
    """The message in a record's value; None for what is none of these, such as one of a later version."""
    try:
        found: Conversation = _decoder.decode(value or b"")
    except msgspec.DecodeError:
        return None
    return found
