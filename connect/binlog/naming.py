"""Which topic a table's changes go to, and which tables are read at all."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence

from barnabas.connect.binlog.place import TOPIC as POSITIONS
from barnabas.wire.subscription_reports import TOPIC as REPORTS

_OTHER = re.compile(r"[^A-Za-z0-9._-]")
_MOST = 249
PER = ("table", "database", "server")


class NameClashError(Exception):
    """Two tables would share a topic."""


class Topics:
    """Topic names. `per` table: PREFIX.TABLE, or DATABASE.TABLE without a prefix. `per` database: PREFIX.DATABASE.
    `per` server: PREFIX.
    """

    def __init__(self, per: str, prefix: str) -> None:
        self._per, self._prefix = per, prefix
        self._known: dict[tuple[str, str], str] = {}
        self._of: dict[str, tuple[str, str]] = {}

    def of(self, database: str, table: str) -> str:
        """The topic of a table. Raises NameClashError."""
        known = self._known.get((database, table))
        return known if known is not None else self._new(database, table)

    def _new(self, database: str, table: str) -> str:
        if self._per == "server":
            name, owner = self._prefix, ("", "")
        elif self._per == "database":
            name, owner = ".".join(filter(None, (self._prefix, database))), (database, "")
        else:
            name, owner = ".".join(filter(None, (self._prefix or database, table))), (database, table)
        topic = _OTHER.sub(lambda found: f"_u{ord(found[0]):04x}", name)
        if len(topic) > _MOST:
            raise NameClashError(f"the topic of {database}.{table} would have a name of more than {_MOST} characters")
        if topic in (POSITIONS, REPORTS):
            what = ".".join(filter(None, (database, table))) or "everything"
            raise NameClashError(
                f"{what} would go to {topic}, which has the status of subscriptions: choose another --prefix"
            )
        before = self._of.setdefault(topic, owner)
        if before != owner:
            raise NameClashError(
                f"{'.'.join(filter(None, before))} and {'.'.join(filter(None, owner))} would share the topic {topic}: "
                "leave --prefix out, so that topics are DATABASE.TABLE, or choose tables with --tables"
            )
        self._known[database, table] = topic
        return topic

    @property
    def frames(self) -> str | None:
        """The topic for the begin and end of transactions: the one topic for everything, if there is one."""
        return self.of("", "") if self._per == "server" else None

    def statements(self, database: str) -> str | None:
        """The topic for statements about a database, if there is one."""
        if self._per == "table" or not (database or self._per == "server"):
            return None
        return self.of(database, "")


class Chosen:
    """The tables to read: those that match one of the patterns `DATABASE.TABLE`, with `*` and `?`."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._all = not patterns
        self._match = [re.compile(fnmatch.translate(pattern)).fullmatch for pattern in patterns]
        self._databases = [re.compile(fnmatch.translate(p.partition(".")[0])).fullmatch for p in patterns]
        self._known: dict[tuple[str, str], bool] = {}

    def has(self, database: str, table: str) -> bool:
        key = (database, table)
        found = self._known.get(key)
        if found is None:
            text = f"{database}.{table}"
            found = self._known[key] = self._all or any(match(text) for match in self._match)
        return found

    def has_database(self, database: str) -> bool:
        """Whether statements about the database are read."""
        return self._all or any(match(database) for match in self._databases)

    def has_statement(self, named: Sequence[tuple[str, str]], database: str) -> bool:
        """Whether a statement that was issued in a database is read. If it names tables, they decide.

        A statement outside any database is read: XA COMMIT and XA ROLLBACK end transactions whose rows were read.
        """
        if named:
            return any(self.has(*table) for table in named)
        return not database or self.has_database(database)
