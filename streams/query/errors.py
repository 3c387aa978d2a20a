"""What can be wrong with a query, in one line for its user."""

from __future__ import annotations


class QueryError(Exception):
    """A query that cannot be, or that cannot go on until somebody changes something."""


class FatalError(Exception):
    """The driver cannot run at all: no Java, no Spark, a broken init file."""


class TakenOverError(Exception):
    """Another driver has taken over; this one must write no more."""


class TooSlowError(Exception):
    """A query was at its records for too long, and was stopped."""


class MalformedRecordError(QueryError):
    """A record does not fit the schema, and the query is to stop at such a one."""
