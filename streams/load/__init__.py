"""Rows into topics, by the topic's schema: CSV, JSON lines, and the VALUES of a statement.

text -> records with the numbers of their lines (`text`) -> typed columns, and which lines are malformed (`rows`)
-> values in the topic's format (`values`) -> batches for partitions, each answered by all replicas (`sender`)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from barnabas.streams.load.values import form_of, values_of
from barnabas.streams.source.json_values import parse_json, why_malformed
from barnabas.streams.wal import WalError

__all__ = ["WalError", "typed"]


def typed(topic: str, configs: Mapping[str, str], columns: Iterable[str], objects: Sequence[bytes]) -> list[bytes]:
    """JSON objects as values of a topic with a schema. Raises WalError for the first that does not fit."""
    form = form_of(topic, configs)
    if form is None:
        raise WalError(f"{topic} has no schema that says what its columns are")
    for name in columns:
        if name not in form.schema.names:
            raise WalError(f"{topic} has no column {name}; it has {', '.join(form.schema.names)}")
    table, bad = parse_json(pa.array(objects, pa.binary()), form.schema)
    if bad:
        raise WalError(f"row {bad[0] + 1}: {why_malformed(objects[bad[0]], form.schema)}; nothing was written")
    values: list[bytes] = values_of(table, form).to_pylist()
    return values
