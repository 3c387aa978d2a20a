"""Columns that subscribers must not see: they are left out, NULL, or a keyed hash that keeps equal values equal.

A hash without a key would not hide anything: anyone who knows the form of mail addresses could try them all.
"""

from __future__ import annotations

import fnmatch
import hashlib
import hmac
import re
from collections.abc import Callable, Sequence

from barnabas.connect.binlog.charsets import literal
from barnabas.connect.binlog.columns import Column, Layout, Value
from barnabas.connect.binlog.server import RefusedError

#: The environment variable with the key of the hashes.
KEY = "BARNABAS_MASK_KEY"
WAYS = ("drop", "null", "hash")
Row = list[Value]


class Masks:
    """`masks` are texts DB.TABLE.COLUMN=WAY, with `*` and `?`; the first match counts."""

    def __init__(self, masks: Sequence[str], key: bytes) -> None:
        """Raises ValueError."""
        self._rules: list[tuple[re.Pattern[str], str]] = []
        self._key = key
        for mask in masks:
            pattern, _, way = mask.rpartition("=")
            if way not in WAYS or pattern.count(".") < 2:
                raise ValueError(f"--mask {mask}: expected DB.TABLE.COLUMN=WAY, a WAY being one of {', '.join(WAYS)}")
            if way == "hash" and len(key) < 16:
                raise ValueError(f"--mask {mask}: set the environment variable {KEY} to at least 16 secret characters")
            self._rules.append((re.compile(fnmatch.translate(pattern)), way))
        self._known: dict[int, tuple[Layout, Layout, Callable[[Row], Row]]] = {}

    def __bool__(self) -> bool:
        return bool(self._rules)

    def masked(self, layout: Layout) -> tuple[Layout, Callable[[Row], Row]]:
        """The layout that subscribers see, and a function that makes its rows. Raises RefusedError."""
        known = self._known.get(id(layout))
        if known is None or known[0] is not layout:
            if len(self._known) >= 4096:
                self._known.clear()
            known = self._known[id(layout)] = (layout, *self._made(layout))
        return known[1], known[2]

    def _way(self, layout: Layout, column: Column) -> str:
        name = f"{layout.database}.{layout.table}.{column.name}"
        return next((way for pattern, way in self._rules if pattern.match(name)), "")

    def _made(self, layout: Layout) -> tuple[Layout, Callable[[Row], Row]]:
        ways = [self._way(layout, column) for column in layout.columns]
        for number in layout.key:
            if ways[number]:
                raise RefusedError(
                    f"--mask: {layout.database}.{layout.table}.{layout.columns[number].name} is of the primary key, "
                    "which names the row: leave the table out instead, or mask another column"
                )
        if not any(ways):
            return layout, _same
        kept = [(number, way) for number, way in enumerate(ways) if way != "drop"]
        columns = [layout.columns[number] for number, _ in kept]
        hashed = [number for number, (_, way) in enumerate(kept) if way == "hash"]
        for number in hashed:
            columns[number] = columns[number]._replace(kind="text", literal=literal)
        places = {number: place for place, (number, _) in enumerate(kept)}
        shown = Layout(layout.database, layout.table, tuple(columns), tuple(places[n] for n in layout.key))
        salt = f"{layout.database}.{layout.table}.".encode()

        def made(row: Row) -> Row:
            found = [None if way == "null" else row[number] for number, way in kept]
            for number in hashed:
                value = found[number]
                if value is not None:
                    told = salt + columns[number].name.encode() + b"\0" + repr(value).encode("utf-8", "surrogateescape")
                    found[number] = hmac.new(self._key, told, hashlib.sha256).hexdigest()
            return found

        return shown, made


def _same(row: Row) -> Row:
    return row
