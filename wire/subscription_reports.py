"""The state of subscriptions to binary logs: records in a compacted topic, which `barnabas connect binlog` writes.

`barnabas connect status` and the broker's metrics read them. The key of a record is the name of its subscription.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

TOPIC = "barnabas.connect.status"
#: Without a report for this long, a subscription counts as ended.
STALE_SECONDS = 60
#: The most characters of a reported error.
MOST_ERROR = 1000
State: TypeAlias = Literal["READING", "COPYING", "RETRYING", "ENDED"]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one subscription: messages per second since the previous report, and the last error with its time.

    `at` and `error_at` are in seconds since 1970. `behind` is the seconds from when the server made the last event
    until its topic had it.
    """

    state: State
    at: int
    per_second: float = 0.0
    behind: int = 0
    error: str = ""
    error_at: int = 0

    def state_at(self, now: float) -> str:
        """The state; a subscription that was killed no longer reports."""
        return "SILENT" if self.state != "ENDED" and now - self.at > STALE_SECONDS else self.state


def report_in(value: bytes) -> Report | None:
    """The report in a record's value. Any client may write to the topic, so a value may be something else: None."""
    try:
        report = msgspec.json.decode(value, type=Report)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return msgspec.structs.replace(report, error=report.error[:MOST_ERROR])
