"""A subscription's position: a record in a compacted topic, in the same transaction as the messages before it.

Messages and position are therefore written together or not at all, whichever process dies and when.
"""

from __future__ import annotations

import time

import msgspec

from barnabas.client import admin
from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError, check
from barnabas.client.fetch import Reader as Consumer
from barnabas.client.offsets import EARLIEST, LATEST, list_offsets
from barnabas.connect.binlog.reader import Place
from barnabas.wire.batch import Record
from barnabas.wire.errors import ErrorCode

#: The topic of all positions; the key of a record is the name of its subscription.
TOPIC = "barnabas.connect"
_VERSION = 1
Table = tuple[str, str]


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """How far the copy of the existing rows is: it goes through the tables by database and name, then by primary key.

    All tables before this one are copied. This table's copy has started if `begun`, and is complete if `whole`;
    otherwise its rows up to `after` are copied, which is a primary key as literals (None: the table has none, so its
    copy starts again). A table that is renamed meanwhile changes its place in that order, but stays copied or not.
    Whatever the order says, the tables in `ahead` are copied and those in `left` are not. Those in `left` come last,
    when the copy is `through` with the order.
    """

    database: str = ""
    table: str = ""
    begun: bool = False
    whole: bool = False
    after: tuple[str, ...] | None = None
    #: A number for the order in which the table's rows come.
    order: int = 0
    ahead: tuple[Table, ...] = ()
    left: tuple[Table, ...] = ()
    through: bool = False
    #: How many messages the copy has written.
    messages: int = 0

    def has(self, table: Table) -> bool:
        """Whether a table's changes continue its copy. Those of other tables will be part of their copies."""
        if table in self.left:
            return False
        if table == (self.database, self.table):
            return self.whole or self.after is not None
        return self.through or table in self.ahead or table < (self.database, self.table)

    def has_part(self, table: Table) -> bool:
        """Whether the copy of a table has begun but not ended."""
        return table == (self.database, self.table) and self.begun and not self.whole

    def has_whole(self, table: Table) -> bool:
        """Whether the copy of a table is complete."""
        return self.has(table) and not self.has_part(table)

    def beginning(self, table: Table, order: int) -> Copied:
        """The state when the copy of a table begins."""
        return msgspec.structs.replace(
            self,
            database=table[0],
            table=table[1],
            begun=True,
            whole=False,
            after=None,
            order=order,
            left=tuple(other for other in self.left if other != table),
            through=self.through or table in self.left,
        )

    def renamed(self, before: Table, behind: Table, *, whole: bool) -> Copied:
        """The state after a rename. `whole`: the table is completely copied; otherwise its copy starts again."""
        ahead, left = (
            tuple(table for table in tables if table not in (before, behind)) for tables in (self.ahead, self.left)
        )
        found = msgspec.structs.replace(self, ahead=ahead, left=left)
        if any(map(self.has_part, (before, behind))):
            found = msgspec.structs.replace(found, after=None)
        if found.has(behind) == whole:
            return found
        if whole:
            return msgspec.structs.replace(found, ahead=(*ahead, behind))
        return msgspec.structs.replace(found, left=(*left, behind))


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """All groups before `place` are written, and the first `index` messages of `group`, which begins there."""

    place: Place
    group: str = ""
    index: int = 0
    #: Where the last group that has written messages began (file and position), and the fingerprint of its first event.
    file: str = ""
    start: int = 0
    fingerprint: int = 0
    source: str = ""
    #: When the server made the last event and when this was written (seconds since 1970), and the total of messages.
    made: int = 0
    written: int = 0
    messages: int = 0
    copied: Copied | None = None
    version: int = _VERSION

    def record(self, name: str) -> Record:
        """The record that stores the position."""
        value = msgspec.structs.replace(self, written=int(time.time()))
        return Record(name.encode(), msgspec.json.encode(value), value.written * 1000)


def make_topic(cluster: Cluster) -> None:
    """Create the topic of positions if it does not exist. Raises ClientError."""
    made = admin.create_topic(cluster, TOPIC, {"cleanup.policy": "compact"}, partitions=1)
    if made.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
        check(made.error_code, f"Topic {TOPIC}", made.error_message)


def positions(cluster: Cluster) -> dict[str, Position]:
    """All positions, by the subscription's name. Raises ClientError."""
    key = (TOPIC, 0)
    (start,) = list_offsets(cluster, [key], EARLIEST).values()
    (end,) = list_offsets(cluster, [key], LATEST).values()
    consumer = Consumer(cluster, TOPIC, committed_only=True)
    consumer.positions[0] = start
    found: dict[str, Position] = {}
    while consumer.positions[0] < end:
        for _, record in consumer.poll():
            name = (record.key or b"").decode("utf-8", "replace")
            if record.value is None:
                found.pop(name, None)
            else:
                found[name] = _position(name, record.value)
    return found


def _position(name: str, value: bytes) -> Position:
    try:
        found = msgspec.json.decode(value, type=Position)
    except msgspec.MsgspecError as error:
        raise ClientError(f"the position of {name} in {TOPIC} cannot be read: {error}") from None
    if found.version != _VERSION:
        raise ClientError(f"the position of {name} in {TOPIC} is of another version of barnabas ({found.version})")
    return found
