"""The result of analysing a query, by Spark or without it."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from barnabas.streams.query.growth import Bound
from barnabas.streams.query.simple import Simple
from barnabas.streams.source.where import Condition


class Facts(NamedTuple):
    """The facts about a query that are needed to run it."""

    names: frozenset[str]  # the columns of its source that it needs
    value_format: str
    value_schema: str  # DDL, empty for raw values
    least: tuple[Condition, ...]  # necessary conditions for a row, as far as they can be expressed simply
    simple: Simple | None  # the whole query, if it consists only of columns and such conditions
    bound: Bound  # the limit of a result's size
    values: pa.Schema  # the typed columns of its source

    @property
    def names_bytes(self) -> int:
        """The most bytes that the columns' names take in an object."""
        return self.simple.names_bytes if self.simple is not None else len(self.value_schema.encode())

    @property
    def parses(self) -> bool:
        """Whether it needs typed columns, so that values must fit the schema."""
        return bool(self.names & set(self.values.names))
