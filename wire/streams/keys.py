"""Configuration keys of the topics that streams write. Their types and defaults: `broker.settings.config`."""

from __future__ import annotations

#: The stream's SELECT with its clauses and options, and what the broker has fixed of it (`wire.streams.plan`).
STREAM, STREAM_PLAN = "barnabas.stream", "barnabas.stream.plan"
#: The name by which statements call it, whether it runs, and how often it has been recalculated.
STREAM_NAME, STREAM_STATE, STREAM_RUN = "barnabas.stream.name", "barnabas.stream.state", "barnabas.stream.run"
STREAM_KEYS = (STREAM, STREAM_PLAN, STREAM_NAME, STREAM_STATE, STREAM_RUN)
RUNNING, PAUSED, STOPPED = "running", "paused", "stopped"
STATES = (RUNNING, PAUSED, STOPPED)
#: Instead of any of these, where its owner may not do what it does.
STREAM_DENIED = "denied"

#: The group that keeps how far streams are, at partition 0 of each one's topic: only the streams driver commits in it.
GROUP = "barnabas.streams"
#: The folder in the data directory that holds the checkpoints of streams.
CHECKPOINTS = "streams"


def is_stream(group: str) -> bool:
    """Whether a group says how far streams are. That stays in the log as long as the topic of the stream is there."""
    return group == GROUP
