"""Configuration keys of the topics that streams write. Their types and defaults are the broker's (`broker.config`)."""

from __future__ import annotations

#: The stream's SELECT with its clauses and options, and what the broker has fixed of it (`wire.streams.plan`).
STREAM, STREAM_PLAN = "barnabas.stream", "barnabas.stream.plan"
#: The name by which statements call it, whether it runs, and how often it has been recalculated.
STREAM_NAME, STREAM_STATE, STREAM_RUN = "barnabas.stream.name", "barnabas.stream.state", "barnabas.stream.run"
STREAM_KEYS = (STREAM, STREAM_PLAN, STREAM_NAME, STREAM_STATE, STREAM_RUN)
RUNNING, PAUSED, STOPPED = "running", "paused", "stopped"
STATES = (RUNNING, PAUSED, STOPPED)

#: Groups of this prefix keep how far streams are: only the streams driver commits in them.
GROUP_PREFIX = "barnabas.stream."
#: The folder in the data directory that holds the checkpoints of streams.
CHECKPOINTS = "streams"


def is_stream(group: str) -> bool:
    """Whether a group says how far a stream is. That stays in the log as long as the topic of the stream is there."""
    return group.startswith(GROUP_PREFIX)


def group_of(topic: str) -> str:
    """The group that says which batches of the stream into `topic` are in."""
    return GROUP_PREFIX + topic
