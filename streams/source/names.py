"""The columns of typed formats that are not fields of the values."""

from __future__ import annotations

from barnabas.streams.wal import COLUMNS

CORRUPT = "_corrupt_record"
#: In typed formats, a record's own columns have these names, so that they hide no field of the values.
META = {f"_{name}": name for name in COLUMNS if name != "value"}
#: In lower case, because Spark ignores case in names.
RESERVED = frozenset(name.lower() for name in (CORRUPT, *META))
