"""BROKER_LOGGER resources: the level of the broker's log, by the names that Kafka gives to levels (KIP-412).

There is one log, named `root`. A level holds until the broker stops, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.broker.log import EventLog
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.logfmt import LEVELS

ROOT = "root"
SET, DELETE = 0, 1
#: Kafka's levels and ours. If several of Kafka's map to one of ours, the first is shown.
_OURS = {"DEBUG": "debug", "TRACE": "debug", "INFO": "info", "WARN": "warning", "ERROR": "error", "FATAL": "error"}


def level(log: EventLog) -> str:
    """The level of the log, by Kafka's name."""
    return next(name for name, ours in _OURS.items() if LEVELS[ours] == log.level)


def check_name(node_id: int, name: str) -> None:
    """Raises KafkaError if the resource is not this broker."""
    if name != str(node_id):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id} but got {name!r}")


def alter(log: EventLog, changes: Iterable[tuple[str, int, str | None]], *, validate_only: bool) -> None:
    """Set the level. Raises KafkaError; then nothing has changed."""
    wanted = log.level
    for logger, operation, value in changes:
        if logger.lower() != ROOT:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {logger} does not exist: there is {ROOT} only.")
        if operation == DELETE:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
        if operation != SET:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The level of a logger can only be set.")
        if value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for {logger}")
        if value not in _OURS:
            levels = ", ".join(sorted(_OURS))
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{value} is not a log level: expected one of {levels}")
        wanted = LEVELS[_OURS[value]]
    if not validate_only and wanted != log.level:
        log.level = wanted
        log.warning("log.level", level=level(log))
