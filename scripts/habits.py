"""Statements that people know from other databases, and their equivalents here."""

from __future__ import annotations

import re

_INSTEAD = (
    (r"CREATE\s+(?:OR\s+REPLACE\s+)?(?:TEMP(?:ORARY)?\s+)?(?:EXTERNAL\s+)?TABLE\b",
     "here a table is a topic: write CREATE TOPIC name (column TYPE, ...), or CREATE TOPIC name AS SELECT ..."),
    (r"CREATE\s+(?:OR\s+REPLACE\s+)?(?:TEMP(?:ORARY)?\s+)?(?:MATERIALIZED\s+)?VIEW\b",
     "here a view is a query topic, whose results are records: write CREATE TOPIC name AS SELECT ..."),
    (r"CREATE\s+OR\s+REPLACE\b", "there is no OR REPLACE: write ALTER TOPIC name AS SELECT ..., or DROP and CREATE"),
    (r"DROP\s+(?:TABLE|VIEW|MATERIALIZED\s+VIEW)\b", "here a table is a topic: write DROP TOPIC name"),
    (r"ALTER\s+TABLE\b", "here a table is a topic: write ALTER TOPIC name SET ('key' = 'value', ...)"),
    (r"(?:CREATE|DROP)\s+(?:DATABASE|SCHEMA)\b", "there are no databases here: a broker has topics"),
    (r"CREATE\s+(?:UNIQUE\s+)?INDEX\b", "there are no indexes here: a topic is read by its offsets and times"),
    (r"SHOW\s+(?:DATABASES|SCHEMAS)\b", "there are no databases here: write SHOW TOPICS"),
    (r"USE\b", "there are no databases here, so USE is not needed: name topics as they are"),
    (r"SET\b", "settings are options of the command (barnabas sql --help), in the shell \\format, \\x, \\timing, \\o"),
    (r"(?:UPDATE|DELETE|MERGE)\b", "records are never changed: INSERT INTO topic VALUES (...) adds one"),
    (r"TRUNCATE\b", "records are not removed by a statement: set retention.ms, or DROP TOPIC and CREATE it again"),
    (r"(?:BEGIN|START\s+TRANSACTION|COMMIT|ROLLBACK)\b", "each statement stands alone: there are no transactions here"),
    (r"(?:GRANT|REVOKE)\b", "rights are ACLs: barnabas acls --help"),
    (r"(?:VACUUM|ANALYZE)\b", "there is nothing to do: the broker keeps its logs itself"),
    (r"INSERT\s+INTO\s+\S+\s+SELECT\b",
     "INSERT takes VALUES: for the results of a query write CREATE TOPIC name AS SELECT ..."),
)  # fmt: skip


def habit(text: str) -> str | None:
    """What to write here instead of another database's statement; None if the text is no such statement."""
    for form, instead in _INSTEAD:
        if re.match(form, text, re.IGNORECASE):
            return instead
    return None
