"""Errors for readers of a data directory: one line each, with the remedy."""

from __future__ import annotations


class WalError(Exception):
    """The logs cannot be read as asked."""


class NotReadyError(WalError):
    """A broker has the directory, and is just starting or stopping."""


class TooMuchError(Exception):
    """A batch holds more than its reader wants to have in memory; nothing is wrong with it."""


class DataLossError(WalError):
    """Records that were asked for are no longer there."""

    why = "retention, DeleteRecords or a new topic of the same name took them away"

    def __init__(self, topic: str, partition: int, what: str) -> None:
        super().__init__(topic, partition, what)  # as it goes from process to process
        self.what = f"{topic}-{partition}: {what}; {self.why}"

    def __str__(self) -> str:
        return f"{self.what}. Set failOnDataLoss=false to go on with what is left"


class NewTopicError(DataLossError):
    """The topic is not the one that was asked for, but has its name."""

    why = "the topic was deleted meanwhile, and made again"
