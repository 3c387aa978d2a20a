"""What readers of a data directory are told, in one line with the remedy."""

from __future__ import annotations


class WalError(Exception):
    """The logs cannot be read as asked."""


class NotReadyError(WalError):
    """A broker has the directory, and is just starting or stopping."""


class DataLossError(WalError):
    """Records that were asked for are no longer there."""

    def __init__(self, topic: str, partition: int, what: str) -> None:
        self.what = (
            f"{topic}-{partition}: {what}; retention, DeleteRecords or a new topic of the same name took them away"
        )
        super().__init__(f"{self.what}. Set failOnDataLoss=false to go on with what is left")
