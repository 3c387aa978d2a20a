"""Errors for readers of a data directory: one line each, with the remedy."""

from __future__ import annotations


class WalError(Exception):
    """The logs cannot be read as requested."""


class NotReadyError(WalError):
    """A broker is using the directory, and is just starting or stopping."""


class TooMuchError(Exception):
    """A batch is larger than its reader wants in memory; nothing is wrong with it."""


class DataLossError(WalError):
    """Records that were requested no longer exist."""

    why = "retention, DeleteRecords or a new topic of the same name took them away"

    def __init__(self, topic: str, partition: int, what: str) -> None:
        super().__init__(topic, partition, what)  # in the form that survives pickling
        self.what = f"{topic}-{partition}: {what}; {self.why}"

    def __str__(self) -> str:
        return f"{self.what}. Set failOnDataLoss=false to go on with what is left"


class NewTopicError(DataLossError):
    """The topic has the requested name, but is another one."""

    why = "the topic was deleted meanwhile, and made again"
