"""The result of analysing a query, by Spark or without it."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from barnabas.streams.query.growth import Bound
from barnabas.streams.query.simple import Simple
from barnabas.streams.source.where import Condition


class Facts(NamedTuple):
    """A query, as far as who runs it needs to know."""

    names: frozenset[str]  # the columns of its source that it needs
    value_format: str
    value_schema: str  # DDL, empty for raw values
    least: tuple[Condition, ...]  # what a row must meet at least, as far as it can be said simply
    simple: Simple | None  # all of the query, if it is only columns and such conditions
    bound: Bound  # how large a result may be
    values: pa.Schema  # the typed columns of its source

    @property
    def names_bytes(self) -> int:
        """What the names of the columns take in an object, at most."""
        return self.simple.names_bytes if self.simple is not None else len(self.value_schema.encode())

    @property
    def parses(self) -> bool:
        """Whether it needs typed columns, so that a value must fit the schema."""
        return bool(self.names & set(self.values.names))
