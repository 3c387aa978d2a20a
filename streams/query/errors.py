"""The errors of a query, each one line for its user."""

from __future__ import annotations

import re


class QueryError(Exception):
    """A query is invalid, or cannot continue until a user changes something."""


class FatalError(Exception):
    """The driver cannot run at all: no Java, no Spark, a broken init file."""


class TakenOverError(Exception):
    """Another driver has taken over; this one must write no more."""


class TooSlowError(Exception):
    """A query worked on its records for too long, and was stopped. `size` is their bytes of log."""

    def __init__(self, message: str, size: int) -> None:
        super().__init__(message)
        self.size = size


class TaskError(Exception):
    """A task in another process has failed. The text begins with the exception's name, if there was one."""


class StartingError(Exception):
    """Spark must decide, but is not up yet: ask again."""


class NoSparkError(Exception):
    """Spark must decide, but does not start: the reason, in one line with the remedy."""


class RowTooLargeError(QueryError):
    """What a query may make of a record does not fit the memory of Spark's JVM."""


class DenseRowsError(Exception):
    """Rows are larger than their bytes on disk suggest; `rows` of them fit an Arrow batch."""

    def __init__(self, rows: int) -> None:
        super().__init__(f"{rows} rows fit an Arrow batch")
        self.rows = rows

    @staticmethod
    def told(reason: str) -> int | None:
        """The number of rows, from the text of a failed task; None if it failed for another reason."""
        found = re.search(rf"{DenseRowsError.__name__}: (\d+) rows", reason)
        return int(found[1]) if found else None


class MalformedRecordError(QueryError):
    """A record does not fit the schema, and the query is set to stop at such records."""


def reason_of(error: Exception | str) -> str:
    """One line about an error: the last line of a failure in a Python worker, otherwise the first one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if line.split(":")[0].rpartition(".")[2].endswith(("Error", "Exception"))]
    if "Traceback (most recent call last):" in str(error) and raised:
        return raised[-1]
    if isinstance(error, LookupError):  # its text is only the key
        return f"{type(error).__name__}: {error}"
    return lines[0] if lines else type(error).__name__
