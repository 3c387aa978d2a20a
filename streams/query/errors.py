"""The errors of a query, each one line for its user."""

from __future__ import annotations

import re


class QueryError(Exception):
    """A query that cannot be, or that cannot go on until somebody changes something."""


class FatalError(Exception):
    """The driver cannot run at all: no Java, no Spark, a broken init file."""


class TakenOverError(Exception):
    """Another driver has taken over; this one must write no more."""


class TooSlowError(Exception):
    """A query has worked at its records for too long, and was stopped. `size` are the bytes of log that they took."""

    def __init__(self, message: str, size: int) -> None:
        super().__init__(message)
        self.size = size


class TaskError(Exception):
    """A task in another process has failed; the text begins with the name of the exception, if there was one."""


class StartingError(Exception):
    """Spark must say, and is not up yet: ask again."""


class NoSparkError(Exception):
    """Spark must say, and does not start: why, in one line with the remedy."""


class RowTooLargeError(QueryError):
    """What a query may make of a record does not fit the memory of Spark's JVM."""


class DenseRowsError(Exception):
    """Rows are larger than their bytes on disk let expect; `rows` of them fit an Arrow batch."""

    def __init__(self, rows: int) -> None:
        super().__init__(f"{rows} rows fit an Arrow batch")
        self.rows = rows

    @staticmethod
    def told(reason: str) -> int | None:
        """The rows, out of the text of a failed task; None where it failed for another reason."""
        found = re.search(rf"{DenseRowsError.__name__}: (\d+) rows", reason)
        return int(found[1]) if found else None


class MalformedRecordError(QueryError):
    """A record does not fit the schema, and the query is to stop at such a one."""


def reason_of(error: Exception | str) -> str:
    """One line: of a failure in a Python worker its own last line, else the first one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if line.split(":")[0].rpartition(".")[2].endswith(("Error", "Exception"))]
    if "Traceback (most recent call last):" in str(error) and raised:
        return raised[-1]
    if isinstance(error, LookupError):  # its text is the key alone
        return f"{type(error).__name__}: {error}"
    return lines[0] if lines else type(error).__name__
