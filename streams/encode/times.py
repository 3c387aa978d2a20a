"""Times in JSON with full precision: microseconds. Spark writes milliseconds unless a format says otherwise."""

from __future__ import annotations

_LOCAL = "yyyy-MM-dd'T'HH:mm:ss"
#: Options of `to_json`.
TIMES = {"timestampFormat": f"{_LOCAL}.SSSSSSXXX", "timestampNTZFormat": f"{_LOCAL}.SSSSSS"}
#: Options of `from_json` for the same times. A stream's state may have local times with milliseconds.
READ_TIMES = {**TIMES, "timestampNTZFormat": f"{_LOCAL}[.SSSSSS][.SSS]"}
#: Options for an object that includes all of its columns.
OBJECT = {"ignoreNullFields": "false", **TIMES}
