"""Configuration keys of the topics that streams write to. For types and defaults see `broker.settings.config`."""

from __future__ import annotations

#: The stream's SELECT with its clauses and options, and what the broker has fixed for it (`wire.streams.plan`).
STREAM, STREAM_PLAN = "barnabas.stream", "barnabas.stream.plan"
#: The stream's name in statements, whether it runs, and how often it has been recalculated.
STREAM_NAME, STREAM_STATE, STREAM_RUN = "barnabas.stream.name", "barnabas.stream.state", "barnabas.stream.run"
STREAM_KEYS = (STREAM, STREAM_PLAN, STREAM_NAME, STREAM_STATE, STREAM_RUN)
RUNNING, PAUSED, STOPPED = "running", "paused", "stopped"
STATES = (RUNNING, PAUSED, STOPPED)
#: Replaces any of these if the stream's owner lacks the rights for it.
STREAM_DENIED = "denied"

#: The group with the streams' progress, at partition 0 of each one's topic. Only the streams driver commits in it.
GROUP = "barnabas.streams"
#: The folder in the data directory with the streams' checkpoints.
CHECKPOINTS = "streams"


def is_stream(group: str) -> bool:
    """Whether a group holds a stream's progress. This stays in the log as long as the stream's topic exists."""
    return group == GROUP
